"""Whether the speculator of a training that is done is still accepted as its held-out prompts let expect. Called by
`shell.trainings` every ten minutes. It proposes another training, and starts none.

K follows the load, so a live acceptance length is compared with what was expected at the same K. Looks that find no
figures change nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.reading import at, items, mapping, seconds_of, text
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.training import Training
from speculative_operator.training.follow import is_length, with_condition

HOLDS = 0.9
"""Share of the expected acceptance length from which on acceptance holds."""
BELOW_SECONDS = 7 * 86_400.0
"""Seconds for which every look that finds figures must find them below, before acceptance is said to have fallen."""
RECENT_SECONDS = 3600.0
"""Age of figures that still tell how a SpeculativeDeployment serves."""
LEAST_RATE = 0.05
"""Percent of draft tokens accepted from which on K can be told from rate and length, which are rounded."""
_LONGEST_NAME, _LONGEST_ADDRESS = 50, 512
"""Characters that the API takes (`api.training`, `api.scalars`)."""
_DAY = re.compile(r"-\d{8}$")


@dataclass(frozen=True, slots=True)
class Served:
    """What one SpeculativeDeployment reports of the speculator; lengths in tokens per step of the verifier."""

    name: str
    k: float
    length: float
    expected: float


def compare_acceptance(
    training: Training, status: Mapping[str, Any], deployments: Iterable[Mapping[str, Any]], now: float
) -> dict[str, Any]:
    """The status of a training that is done, after a look at the SpeculativeDeployments of its namespace. Where several
    serve the speculator, the one whose acceptance holds best counts. `now` in unix seconds."""
    expected = [_figure(one) for one in items(status, "expectedAcceptanceByK")]
    told = [one for body in deployments if (one := _read_served(body, text(status, "speculator"), expected, now))]
    if not told or not all(map(is_length, expected)):
        return dict(status)
    best = max(told, key=lambda one: one.length / one.expected)
    what = f"SpeculativeDeployment {best.name} has acceptance length {best.length:.2f} at K {round(best.k, 1):g}, "
    what += f"and held-out prompts let expect {best.expected:.2f} or more"
    if best.length >= HOLDS * best.expected:
        left = {name: value for name, value in status.items() if name not in ("acceptanceBelowSince", "retrainWith")}
        made = Condition(ConditionType.ACCEPTANCE_HOLDS, Truth.TRUE, Reason.ACCEPTANCE_HOLDS, what)
        return with_condition(left, made, training.generation, now)
    since, ended = seconds_of(text(status, "acceptanceBelowSince")), seconds_of(text(status, "endedAt"))
    if since is None or ended is None or not ended <= since <= now:
        since = now
    found = {**status, "acceptanceBelowSince": timestamp(since)}
    if now - since < BELOW_SECONDS:
        return found
    found["retrainWith"] = _retrain_with(training, best.name, since + BELOW_SECONDS)
    what += f"; it was below {HOLDS:.0%} of that since {timestamp(since)}. If prompts have changed, collect new ones, "
    what += "and train on them with the command in status.retrainWith. Sampled requests are accepted less, too"
    made = Condition(ConditionType.ACCEPTANCE_HOLDS, Truth.FALSE, Reason.ACCEPTANCE_FELL, what)
    return with_condition(found, made, training.generation, now)


def _read_served(body: Mapping[str, Any], speculator: str, expected: Sequence[float], now: float) -> Served | None:
    """What the object reports; None where it serves another speculator, or has no recent figures of this one."""
    figures, runs = mapping(body, "status", "speculation"), text(body, "status", "pair", "speculator")
    wanted, seen = text(body, "spec", "speculator", "model").rstrip("/"), seconds_of(text(figures, "observedAt"))
    if not expected or wanted != speculator or not f"{runs}@".startswith(f"{speculator}@"):
        return None
    length, rate = (_figure(at(figures, name)) for name in ("acceptanceLength", "acceptanceRate"))
    if text(figures, "state") != "On" or seen is None or abs(now - seen) > RECENT_SECONDS:
        return None
    if not is_length(length) or not 0.0 <= rate <= 100.0:
        return None
    # Accepted tokens per step are K times the rate.
    k = max(1.0, 100.0 * (length - 1.0) / rate) if rate >= LEAST_RATE else 1.0
    return Served(text(body, "metadata", "name"), k, length, _least_expected(expected, k))


def _least_expected(expected: Sequence[float], k: float) -> float:
    """Acceptance length that draft lengths with mean `k` let expect at least. Less is accepted of a mixture than of its
    mean: least of one of K = 1 and the largest K."""
    share = min((k - 1.0) / max(len(expected) - 1, 1), 1.0)
    return expected[0] + share * (expected[-1] - expected[0])


def _figure(told: Any) -> float:
    """The number in a figure of a status; NaN where there is none."""
    try:
        return float(told.removesuffix("%")) if isinstance(told, str) else math.nan
    except ValueError:
        return math.nan


def _retrain_with(training: Training, beside: str, day: float) -> str:
    """The command that creates the next training: new prompts, output and name end with the day. Prompts of a
    hub are taken at its main branch. All names in it have passed the API's patterns, so none ends a quotation."""
    end = timestamp(day)[:10].replace("-", "")
    prompts = _with_day(training.prompts.uri.removesuffix(".jsonl"), f"-{end}.jsonl")
    output = _with_day(training.output.uri, f"-{end}")
    meta: dict[str, Any] = {"name": _with_day(training.name, f"-{end}", _LONGEST_NAME), "namespace": training.namespace}
    meta |= {"labels": {names.QUEUE: training.queue}} if training.queue else {}
    made = f'.metadata = {json.dumps(meta)} | del(.status, .spec.data.revision) | .spec.data.prompts = "{prompts}"'
    if training.copy_to:
        made += f' | .spec.copyTo = "{_with_day(training.copy_to.uri, f"-{end}")}"'
    made += f' | .spec.output = "{output}" | .spec.tryOn = "{beside}"'
    return f"kubectl get spectrain {training.name} -n {training.namespace} -o json | jq '{made}' | kubectl create -f -"


def _with_day(text: str, end: str, most: int = _LONGEST_ADDRESS) -> str:
    """`text` with `end` in place of an earlier day, cut before it where the whole would be too long for the API."""
    return f"{_DAY.sub('', text)[: most - len(end)].rstrip('-/')}{end}"
