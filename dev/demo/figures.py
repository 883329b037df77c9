"""The demo's results as numbers: what the report shows and the last line prints. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from demo.scene import AUTO, BEST, OFF, STATIC
from demo.watch import Sight
from speculative_operator.comparing.measures import sample_of
from speculative_operator.comparing.verdict import Comparison, compare
from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.spec import AcceleratorRequest

TABLE_ROW = re.compile(r"(\d+)(?:-(\d+))?:(\d+)")
"""Requests and K of a table as status tells it, such as 1-8:4."""
ADOPTED = re.compile(r"table version (\d+) in force since (\S+): ")
GAVE_UP = re.compile(r"the engine clock gave up (\S+) s;")


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of the replay that count as low, peak and after."""

    low: tuple[float, float]
    peak: tuple[float, float]
    after: tuple[float, float]

    @classmethod
    def of(cls, seconds: float) -> Phases:
        """The plateaus of `Profile.climb_and_fall`, each once it has settled."""
        return cls((0.16 * seconds, 0.34 * seconds), (0.44 * seconds, 0.72 * seconds), (0.84 * seconds, seconds))

    def named(self) -> dict[str, tuple[float, float]]:
        """Name of a phase -> its first and last second."""
        return {"low": self.low, "peak": self.peak, "after": self.after}


def within(sights: Iterable[Sight], span: tuple[float, float]) -> list[Sight]:
    return [sight for sight in sights if span[0] <= sight.at <= span[1]]


def mean_k(sights: Sequence[Sight]) -> float | None:
    """Drafted tokens per request-step over all windows; None when nothing was decoded."""
    steps = sum(sight.window.decode_request_steps for sight in sights)
    drafted = sum(sight.window.draft_tokens or 0.0 for sight in sights)
    return round(drafted / steps, 2) if steps else None


def mean_tpot_ms(sights: Sequence[Sight], span: tuple[float, float] = (-math.inf, math.inf)) -> float | None:
    """Milliseconds per output token in `span`, every token counted once. A window that lies in it in part counts in
    part: each pod is scraped at moments of its own."""
    shares = [(sight.window, _share(sight, span)) for sight in sights]
    seconds = sum(share * window.step_seconds for window, share in shares)
    tokens = sum(share * (window.generated_tokens - window.first_tokens) for window, share in shares)
    return round(1000.0 * seconds / tokens, 3) if tokens else None


def _share(sight: Sight, span: tuple[float, float]) -> float:
    length = sight.window.seconds
    return max(0.0, min(sight.at, span[1]) - max(sight.at - length, span[0])) / length


def slowdowns(
    ours: Sequence[Sight], theirs: Sequence[Sight], span: tuple[float, float], seconds: float = 10.0
) -> list[float]:
    """Per cent by which a token of `ours` took longer than one of `theirs`, in each stretch of so many seconds of
    `span` in which both generated some; negative where it was faster."""
    first, last = span
    found = []
    for number in range(int((last - first) // seconds)):
        stretch = (first + number * seconds, first + (number + 1) * seconds)
        mine, other = (mean_tpot_ms(seen, stretch) for seen in (ours, theirs))
        if mine and other:
            found.append(round(100.0 * (mine / other - 1.0), 1))
    return found


def compared_blocks(window: PodWindow | None) -> dict[int, float]:
    """K that the engine tried -> blocks of steps at it that were compared with those beside them."""
    found: dict[int, float] = {}
    for one in window.comparisons if window is not None else ():
        found[one.k] = found.get(one.k, 0.0) + one.blocks
    return dict(sorted(found.items()))


def compared_variants(sights: Mapping[str, Sequence[Sight]], given: AcceleratorRequest) -> dict[str, Comparison]:
    """The tuned variant as B, held against each of the others as A, as `speculative compare` does it."""
    samples = {
        role: [
            made
            for sight in own
            if (
                made := sample_of([sight.window], accelerators_per_pod=given.per_replica, hourly_cost=given.hourly_cost)
            )
        ]
        for role, own in sights.items()
    }
    return {role: compare(samples[role], samples.get(AUTO, [])) for role in (OFF, STATIC, BEST) if role in samples}


def most_concurrent(sights: Sequence[Sight]) -> float:
    return max((sight.window.running + sight.window.waiting for sight in sights), default=0.0)


def mean_ttft_ms(sights: Sequence[Sight]) -> float | None:
    """Milliseconds from arrival to first token, mean over requests."""
    firsts = sum(sight.window.first_tokens for sight in sights)
    return round(1000.0 * sum(sight.window.ttft_seconds for sight in sights) / firsts, 1) if firsts else None


def tables(
    decisions: Sequence[Mapping[str, Any]], adopted: Mapping[int, float], started: float, text: str
) -> list[tuple[float, str]]:
    """(second of the replay since which the engine drafts by it, table as status tells it), oldest first. `text` is the
    table where none was decided."""
    since = [
        (adopted.get(int(one.get("tableVersion", -1)), unix(one["time"])) - started, one["to"]) for one in decisions
    ]
    return [(-math.inf, decisions[0].get("from") or text if decisions else text), *since]


def asked_ks(sights: Iterable[Sight], known: Sequence[tuple[float, str]]) -> list[tuple[float, int | None]]:
    """(second, K that the table then in force has for the load of the window); None where it has no row."""
    return [
        (
            sight.at,
            _k_of([text for since, text in known if since <= sight.at][-1], max(1, round(sight.window.load))),
        )
        for sight in sights
    ]


def _k_of(text: str, load: int) -> int | None:
    rows = ((int(first), int(last or first), int(k)) for first, last, k in TABLE_ROW.findall(text))
    return next((k for first, last, k in rows if first <= load <= last), None)


def decision_row(decision: Mapping[str, Any], started: float, adopted: Mapping[int, float]) -> dict[str, str]:
    """A decision as the report tells it."""
    moment = unix(decision["time"])
    since = adopted.get(int(decision.get("tableVersion", -1)))
    return {
        "at": f"{moment - started:.0f} s",
        "reason": decision["reason"],
        "message": decision["message"],
        "table": decision["to"],
        "latency": f"{since - moment:.2f} s" if since is not None else "–",
    }


def adoptions(log: str) -> dict[int, float]:
    """Table version -> unix seconds at which the engine said that it is in force."""
    return {int(version): unix(moment) for version, moment in ADOPTED.findall(log)}


def lost_seconds(log: str) -> float:
    """Seconds that an emulator could not keep up with its own clock, because this machine was too busy."""
    return sum(float(seconds) for seconds in GAVE_UP.findall(log))


def table_latencies(decisions: Iterable[Mapping[str, Any]], adopted: Mapping[int, float]) -> list[float]:
    """Seconds from each decision to its table being in force at the engine."""
    pairs = ((int(decision.get("tableVersion", -1)), str(decision["time"])) for decision in decisions)
    return [adopted[version] - unix(moment) for version, moment in pairs if version in adopted]


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Median and largest, rounded to milliseconds."""
    if not values:
        return {"p50": None, "max": None}
    return {"p50": round(median(values), 3), "max": round(max(values), 3)}


def unix(moment: str) -> float:
    """Unix seconds of an RFC 3339 moment."""
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
