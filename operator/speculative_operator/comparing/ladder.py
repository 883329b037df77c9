"""What a load generator measured at several request rates, with drafts and without, and what follows from it.

A step is one Job of `speculative bench`, which makes them and prints what is found here. Times are in seconds.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Measure(StrEnum):
    """What is compared. TPOT is over tokens, TTFT over requests that were answered."""

    TPOT = "TPOT p50"
    TPOT_P99 = "TPOT p99"
    TTFT = "TTFT p50"
    TTFT_P99 = "TTFT p99"
    THROUGHPUT = "output tokens/s"


@dataclass(frozen=True, slots=True)
class Step:
    """Requests of one Job."""

    rate: float
    """Requests per second that are sent, evenly spaced."""
    drafts: bool
    repeat: int
    values: Mapping[Measure, float] = field(default_factory=dict)
    """Empty until it was measured; a measure is left out where no request was answered."""
    done: int = 0
    failed: int = 0
    cut: int = 0
    """Requests that were under way when the time was over. They count for nothing."""
    running: float = 0.0
    """Mean number of those under way that were answered."""
    prompt_tokens: float = 0.0
    """Mean of a prompt, as the engine counted."""
    k: float | None = None
    """Draft tokens per request and step, of all requests that the pods served; None where no counter tells."""
    acceptance_length: float | None = None
    """Tokens per request and step, of the same."""


_P99 = 9
"""Its place in GuideLLM's list: least, P0.1, P1, P5, P10, P25, P75, P90, P95, P99, largest."""
_TPOT, _TTFT = ("Inter Token Latency", "Successful ms"), ("Time to First Token", "Successful ms")
_COLUMNS = {
    Measure.TPOT: (*_TPOT, "Median"),
    Measure.TPOT_P99: (*_TPOT, "Percentiles"),
    Measure.TTFT: (*_TTFT, "Median"),
    Measure.TTFT_P99: (*_TTFT, "Percentiles"),
    Measure.THROUGHPUT: ("Token Throughput", "Successful Output Tokens/Sec", "Mean"),
}


def measured(step: Step, table: str) -> Step:
    """The step with the figures of GuideLLM's table of one benchmark: three lines of headers and one of values. Raises
    ValueError where it is no such table."""
    try:
        rows = list(csv.reader(io.StringIO(table, newline="")))[:4]
    except csv.Error as problem:
        raise ValueError(str(problem)) from None
    if len(rows) < 4 or len({len(row) for row in rows}) != 1:
        raise ValueError("there is no row of values")
    told = {tuple(column[:3]): _number(column[3]) for column in zip(*rows, strict=True)}
    counts = [told.get(("Request Counts", name, "")) for name in ("Successful", "Errored", "Incomplete")]
    if None in counts:
        raise ValueError("it does not count requests")
    done, failed, cut = (int(one or 0) for one in counts)
    values = {}
    for measure, column in _COLUMNS.items():
        value = told.get(column)
        if value is not None and value > 0:
            values[measure] = value if measure is Measure.THROUGHPUT else value / 1000
    running = told.get(("Server Throughput", "Successful Concurrency", "Mean")) or 0.0
    prompt = told.get(("Token Metrics", "Successful Input Tokens", "Mean")) or 0.0
    return replace(step, values=values, done=done, failed=failed, cut=cut, running=running, prompt_tokens=prompt)


def _number(text: str) -> float | None:
    """A finite number, or the 99th percentile of a list of percentiles; None for anything else."""
    try:
        told = json.loads(text)
        value = float(told[_P99] if isinstance(told, list) else told)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Ratio:
    """With drafts over without, of one measure at one rate: the geometric mean over the repeats, and their range, which
    is no confidence interval."""

    value: float
    low: float
    high: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Rung:
    """All steps at one rate, by repeat."""

    rate: float
    plain: tuple[Step, ...]
    """Without drafts."""
    drafted: tuple[Step, ...]

    def ratio(self, measure: Measure) -> Ratio | None:
        """Of the repeats in which both sides are known; None without any."""
        plain = {one.repeat: one.values.get(measure) for one in self.plain}
        pairs = [(one.values.get(measure), plain.get(one.repeat)) for one in self.drafted]
        found = [math.log(a / b) for a, b in pairs if a and b]
        if not found:
            return None
        return Ratio(math.exp(sum(found) / len(found)), math.exp(min(found)), math.exp(max(found)), len(found))


def mean(steps: Sequence[Step], measure: Measure) -> float | None:
    """Over the steps in which it is known."""
    known = [one.values[measure] for one in steps if measure in one.values]
    return sum(known) / len(known) if known else None


def rungs(steps: Sequence[Step]) -> list[Rung]:
    """The steps by rate."""
    return [
        Rung(rate, *(tuple(one for one in steps if (one.rate, one.drafts) == (rate, side)) for side in (False, True)))
        for rate in sorted({one.rate for one in steps})
    ]


def verdict(ladder: Sequence[Rung]) -> Iterator[str]:
    """Yield what the figures say, and what they cannot say."""
    known = [(one.rate, found) for one in ladder if (found := one.ratio(Measure.TPOT)) is not None]
    if not known:
        yield "nothing is known: at no rate were requests answered both with drafts and without"
        return
    groups: dict[str, list[str]] = {"shorter": [], "longer": [], "not told apart": []}
    for rate, one in known:
        clear = one.repeats > 1
        kind = "shorter" if clear and one.high < 1 else "longer" if clear and one.low > 1 else "not told apart"
        spread = f", repeats {one.low:.2f} to {one.high:.2f}" if clear else ""
        groups[kind].append(f"{rate:g}/s ({one.value:.2f}{spread})")
    said = [f"{kind} at {', '.join(own)}" for kind, own in groups.items() if own]
    yield f"with drafts the time per token is {'; '.join(said)}"
    for rung in ladder:
        if any(one.cut > 2 * one.running + 10 for one in (*rung.plain, *rung.drafted)):
            yield f"at {rung.rate:g}/s requests piled up: the times are those of the few that were answered"
    if any(one.repeats < 2 for _, one in known):
        yield "one repeat shows no spread, so nothing is told apart: raise --repeats"
