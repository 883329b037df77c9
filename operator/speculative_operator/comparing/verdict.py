"""Compare two objects at equal load: a ratio with an interval for each measure, and a verdict on B against A.

Called by `speculative compare` and by reconcile for a canary, as often as there are new samples: the intervals hold
however often one looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from speculative_operator.comparing.matching import Figure, Matched, difference, match
from speculative_operator.comparing.measures import Sample
from speculative_operator.comparing.plausible import plausible
from speculative_operator.comparing.tails import tails
from speculative_operator.domain.observation import Histogram


class Verdict(StrEnum):
    """Of B against A."""

    BETTER = "Better"
    WORSE = "Worse"
    EQUIVALENT = "Equivalent"
    UNDECIDED = "Undecided"


class Measure(StrEnum):
    """What is compared. Less is better for all but THROUGHPUT."""

    TPOT = "TPOT"
    TTFT = "TTFT"
    TPOT_P99 = "P99 of TPOT"
    TTFT_P99 = "P99 of TTFT"
    THROUGHPUT = "tokens per second and accelerator"
    COST = "cost per 1,000 tokens"


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as a difference, and how sure a verdict must be."""

    error: float = 0.05
    """Most chance of a false Better or Worse in the whole comparison, all measures and all looks together."""
    equivalent: float = 0.02
    """Ratios within 1 / (1 + this) and 1 + this count as no difference."""


SHARES = {
    Measure.TPOT: 0.5,
    Measure.THROUGHPUT: 0.5,
    Measure.COST: 0.5,
    Measure.TTFT: 0.1,
    Measure.TPOT_P99: 0.05,
    Measure.TTFT_P99: 0.05,
}
"""Share of `Limits.error` of each measure. At equal batch size throughput and cost are TPOT's inverse, so that these
three err together and have one share. The rest is kept back: queues scatter in longer tails than the boundary knows."""
ABSURD_RATIO = 30.0
"""No speculator and no machine makes such a difference at equal load: figures say something else than they seem to."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One measure. Figures are at equal load: both objects weighted to the load that they have in common."""

    measure: Measure
    verdict: Verdict
    why: str = ""
    """Why it is Undecided; empty otherwise."""
    a: float | None = None
    b: float | None = None
    """Seconds, tokens per second, or currency."""
    ratio: float | None = None
    """B over A."""
    low: float | None = None
    high: float | None = None
    """Interval of `ratio`; None for an end that is not known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is known of B against A."""

    verdict: Verdict
    why: str
    """One sentence: which measures decided, or what is missing."""
    measures: tuple[Judged, ...]
    matched_seconds: float = 0.0
    """Seconds at loads that both had, of the object that has fewer."""

    def of(self, measure: Measure) -> Judged:
        """The judgement of one measure."""
        return next(one for one in self.measures if one.measure is measure)


def compare(a: Sequence[Sample], b: Sequence[Sample], limits: Limits = Limits()) -> Comparison:
    """Compare B with A by samples of the same hours, in any order."""
    sides = {"A": plausible(a), "B": plausible(b)}
    for name, (kept, fault) in sides.items():
        if fault or not kept:
            return _nothing(f"{name}: {fault}" if fault else f"there are no figures of {name}")
    matched = match(sides["A"][0], sides["B"][0])
    if not matched.samples:
        return _nothing("the two had no batch size with the same share of prompt tokens in common")
    judged = tuple(_judge(measure, matched, limits) for measure in Measure)
    return Comparison(*_overall(judged), judged, matched.seconds)


def _nothing(why: str) -> Comparison:
    judged = tuple(Judged(measure, Verdict.UNDECIDED, why) for measure in Measure)
    return Comparison(Verdict.UNDECIDED, why, judged)


_MEANS: dict[Measure, tuple[Figure, Figure, str]] = {
    Measure.TPOT: (lambda one: one.tpot, lambda one: one.request_seconds, "no answer had a second token"),
    Measure.TTFT: (lambda one: one.ttft, lambda one: one.first_tokens, "the engine tells no time to first token"),
    Measure.THROUGHPUT: (
        lambda one: one.throughput,
        lambda one: one.request_seconds,
        "the number of accelerators is not known",
    ),
    Measure.COST: (
        lambda one: one.cost,
        lambda one: one.request_seconds,
        "spec.accelerator.hourlyCost of A or B is not set",
    ),
}
"""Measure -> its figure, how much a sample tells of it, and why it is missing."""
_TAILS: dict[Measure, Callable[[Sample], Histogram]] = {
    Measure.TPOT_P99: lambda one: one.tpot_histogram,
    Measure.TTFT_P99: lambda one: one.ttft_histogram,
}


def _judge(measure: Measure, matched: Matched, limits: Limits) -> Judged:
    error = limits.error * SHARES[measure]
    if measure in _TAILS:
        return _judge_tail(measure, matched, error)
    figure, weight, missing = _MEANS[measure]
    found = difference(matched, figure, weight, error)
    if found is None:
        return Judged(measure, Verdict.UNDECIDED, missing)
    ends: tuple[float | None, float | None] = (None, None)
    if found.half_width is not None:
        ends = found.log_ratio - found.half_width, found.log_ratio + found.half_width
    return _decide(measure, found.a, found.a * math.exp(found.log_ratio), ends, math.log1p(limits.equivalent))


def _judge_tail(measure: Measure, matched: Matched, error: float) -> Judged:
    found = tails(matched, _TAILS[measure], error)
    if found is None:
        return Judged(measure, Verdict.UNDECIDED, "the engine tells no such histogram, or it ends below the percentile")
    return _decide(measure, found.a.value, found.b.value, (found.low, found.high), None)


def _decide(
    measure: Measure, a: float, b: float, ends: tuple[float | None, float | None], equivalent: float | None
) -> Judged:
    """The verdict of a measure by the ends of its interval, as logarithms of B over A. Without `equivalent`, which is a
    logarithm, it is never Equivalent: buckets are coarser than what counts as no difference."""
    low, high = ends
    verdict, why = Verdict.UNDECIDED, "the interval holds 1 and is too wide; more requests narrow it"
    if low is None or high is None:
        why = "too few requests so far" if equivalent else "too few requests so far, or all in one bucket"
    if abs(math.log(b / a)) > math.log(ABSURD_RATIO):
        why = f"a ratio of {b / a:.3g} is absurd: look at the counters of both"
    elif low is not None and low > 0:
        verdict, why = _directed(measure, more=True), ""
    elif high is not None and high < 0:
        verdict, why = _directed(measure, more=False), ""
    if low is not None and high is not None and equivalent is not None and max(-low, high) < equivalent:
        verdict, why = Verdict.EQUIVALENT, ""
    ratios = [None if one is None else math.exp(one) for one in ends]
    return Judged(measure, verdict, why, a, b, b / a, *ratios)


def _directed(measure: Measure, *, more: bool) -> Verdict:
    return Verdict.BETTER if more == (measure is Measure.THROUGHPUT) else Verdict.WORSE


def _overall(judged: Sequence[Judged]) -> tuple[Verdict, str]:
    """The verdict of all measures together, and one sentence on it.

    What is better in one and worse in another is Undecided: which counts more is the user's to say. A better or equal
    tail or time to first token decides nothing while TPOT is not known.
    """
    by = {verdict: [one.measure.value for one in judged if one.verdict is verdict] for verdict in Verdict}
    better, worse = ", ".join(by[Verdict.BETTER]), ", ".join(by[Verdict.WORSE])
    if better and worse:
        return Verdict.UNDECIDED, f"B is better in {better} and worse in {worse}: which counts more is yours to say"
    if worse:
        return Verdict.WORSE, f"B is worse in {worse}, and better in nothing"
    pace = [one for one in judged if one.measure in (Measure.TPOT, Measure.THROUGHPUT, Measure.COST)]
    known = [one.verdict for one in pace if one.ratio is not None]
    if Verdict.UNDECIDED in known or not known:
        return Verdict.UNDECIDED, next(one.why for one in pace if one.verdict is Verdict.UNDECIDED)
    if better:
        return Verdict.BETTER, f"B is better in {better}, and worse in nothing"
    return Verdict.EQUIVALENT, f"{', '.join(by[Verdict.EQUIVALENT])} differ by less than counts"
