"""Compare two objects at equal load: a ratio with an interval for each measure, and a verdict on B against A.

Called by `speculative compare` and by reconcile for a canary, as often as there are new samples: the intervals hold
however often one looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from speculative_operator.comparing.matching import (
    ABSURD_RATIO,
    Basis,
    Difference,
    Figure,
    Matched,
    difference,
    match,
)
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
    tolerated: float = 0.05
    """Part by which B may be worse in what is no time to first token, where something else is better."""
    ttft_tolerated: float = 0.25

    def tolerates(self, measure: Measure) -> float:
        """Part by which B may be worse in a measure."""
        return self.ttft_tolerated if measure in (Measure.TTFT, Measure.TTFT_P99) else self.tolerated


SHARES = {
    Measure.TPOT: 0.3,
    Measure.THROUGHPUT: 0.3,
    Measure.COST: 0.3,
    Measure.TTFT: 0.1,
    Measure.TPOT_P99: 0.05,
    Measure.TTFT_P99: 0.05,
}
"""Share of `Limits.error` of each measure. At equal batch size throughput and cost are TPOT's inverse, so that these
three err together and have one share. The rest is kept back: queues scatter in longer tails than the boundary knows."""
BASIS_SHARES = {Basis.BATCH: 0.75, Basis.ARRIVALS: 0.25}
"""What each has of that: which is used can change from look to look, so that both may err."""
PACE = (Measure.TPOT, Measure.THROUGHPUT, Measure.COST)
"""Measures of what each token costs: only these decide for an object, the others against it."""


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

    @property
    def worse_by(self) -> tuple[float, float]:
        """Interval of the part by which B is worse; below 0 where it is better, infinite where an end is not known."""
        low, high = self.low or 0.0, self.high or math.inf
        if self.measure is Measure.THROUGHPUT:
            low, high = 1.0 / high, 1.0 / low if low else math.inf
        return low - 1.0, high - 1.0

    def __str__(self) -> str:
        """The ratio with its interval."""
        ends = [f"{end:.2f}" if end is not None else "?" for end in (self.low, self.high)]
        return f"{self.measure} {self.ratio:.2f} ({ends[0]} to {ends[1]})"

    def beyond(self, limits: Limits) -> bool:
        """True where B is surely worse by more than is tolerated."""
        return self.verdict is Verdict.WORSE and self.worse_by[0] > limits.tolerates(self.measure)

    def within(self, limits: Limits) -> bool:
        """True where B is surely worse by no more than is tolerated, if at all."""
        return self.ratio is not None and self.worse_by[1] <= limits.tolerates(self.measure)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is known of B against A."""

    verdict: Verdict
    why: str
    """One sentence: which measures decided, or what is missing."""
    measures: tuple[Judged, ...]
    matched_seconds: float = 0.0
    """Seconds at loads that both had, of the object that has fewer."""
    basis: Basis = Basis.BATCH

    def of(self, measure: Measure) -> Judged:
        """The judgement of one measure."""
        return next(one for one in self.measures if one.measure is measure)

    @property
    def with_figures(self) -> tuple[Judged, ...]:
        """Measures that have figures of both."""
        return tuple(one for one in self.measures if one.ratio is not None)

    @property
    def pace(self) -> frozenset[Verdict]:
        """Verdicts on what each token costs."""
        return frozenset(one.verdict for one in self.with_figures if one.measure in PACE)

    def losses(self, limits: Limits) -> str:
        """In what B is surely worse than is tolerated, in words; empty where it is in nothing."""
        worse = ", ".join(str(one) for one in self.measures if one.beyond(limits))
        return f"{self.basis}: {worse}" if worse else ""

    def __str__(self) -> str:
        """Verdict and ratios."""
        return f"{self.verdict} at {self.basis}: {', '.join(map(str, self.with_figures)) or self.why}"


def compare(a: Sequence[Sample], b: Sequence[Sample], limits: Limits = Limits()) -> Comparison:
    """Compare B with A by samples of the same hours, in any order."""
    (kept_a, fault_a), (kept_b, fault_b) = plausible(a), plausible(b)
    for name, kept, fault in (("A", kept_a, fault_a), ("B", kept_b, fault_b)):
        if not kept:
            return _nothing(f"{name}: {fault}" if fault else f"there are no figures of {name}")
    return compare_matched(match(kept_a, kept_b), limits)


def compare_matched(matched: Matched, limits: Limits) -> Comparison:
    """Compare by samples of equal load."""
    if not matched.samples:
        return _nothing(
            "the two had neither batch size nor requests per second in common at equal share of prompt tokens"
        )
    judged = tuple(_judge(measure, matched, limits) for measure in Measure)
    return Comparison(*_overall(judged, limits), judged, matched.seconds, matched.basis)


def _nothing(why: str) -> Comparison:
    judged = tuple(Judged(measure, Verdict.UNDECIDED, why) for measure in Measure)
    return Comparison(Verdict.UNDECIDED, why, judged)


_MEANS: dict[Measure, tuple[Figure, str]] = {
    Measure.TPOT: (lambda one: one.tpot, "no answer had a second token"),
    Measure.TTFT: (lambda one: one.ttft, "the engine tells no time to first token"),
    Measure.THROUGHPUT: (lambda one: one.throughput, "the number of accelerators is not known"),
    Measure.COST: (lambda one: one.cost, "spec.accelerator.hourlyCost of A or B is not set"),
}
"""Measure -> its figure, and why it is missing."""
_TAILS: dict[Measure, Callable[[Sample], Histogram]] = {
    Measure.TPOT_P99: lambda one: one.tpot_histogram,
    Measure.TTFT_P99: lambda one: one.ttft_histogram,
}


def _judge(measure: Measure, matched: Matched, limits: Limits) -> Judged:
    error = limits.error * SHARES[measure] * BASIS_SHARES[matched.basis]
    if measure in _TAILS:
        found = tails(matched, _TAILS[measure], error)
        missing = "the engine tells no such histogram, or it ends below the percentile"
    elif matched.basis is Basis.ARRIVALS and measure in (Measure.THROUGHPUT, Measure.COST):
        found = None
        missing = "at equal requests per second both generate the same tokens; it shows where batch sizes are equal"
    else:
        figure, missing = _MEANS[measure]
        weight = "first_tokens" if measure is Measure.TTFT else "request_seconds"
        found = difference(matched, figure, attrgetter(weight), error)
    return _decide(measure, found, limits) if found is not None else Judged(measure, Verdict.UNDECIDED, missing)


def _decide(measure: Measure, found: Difference, limits: Limits) -> Judged:
    """The verdict of a measure by the ends of its interval. A tail is never Equivalent: buckets are coarser than what
    counts as no difference."""
    low, high, ratio = found.low, found.high, found.b / found.a
    verdict, why = Verdict.UNDECIDED, "the interval holds 1 and is too wide; more requests narrow it"
    if low is None or high is None:
        why = "too few requests or minutes in common so far" + (", or all in one bucket" if measure in _TAILS else "")
    if abs(math.log(ratio)) > math.log(ABSURD_RATIO):
        why = f"a ratio of {ratio:.3g} is absurd: look at the counters of both, and whether one is at its limit"
    elif (low is not None and low > 0) or (high is not None and high < 0):
        more = low is not None and low > 0
        verdict, why = Verdict.BETTER if more is (measure is Measure.THROUGHPUT) else Verdict.WORSE, ""
    equivalent = math.log1p(limits.equivalent) if measure not in _TAILS else 0.0
    if low is not None and high is not None and max(-low, high) < equivalent:
        verdict, why = Verdict.EQUIVALENT, ""
    ends = [None if end is None else math.exp(end) for end in (low, high)]
    return Judged(measure, verdict, why, found.a, found.b, ratio, *ends)


def _overall(judged: Sequence[Judged], limits: Limits) -> tuple[Verdict, str]:
    """The verdict of all measures together, and one sentence on it.

    A tolerated loss beside a clear gain in TPOT is Better: drafts lengthen the time to first token a little. Any other
    mix of better and worse is Undecided: which counts more is the user's to say. While TPOT is not known, a tail or a
    time to first token decides nothing but where it is worse by more than is tolerated.
    """
    by = {verdict: [one.measure.value for one in judged if one.verdict is verdict] for verdict in Verdict}
    better, worse = ", ".join(by[Verdict.BETTER]), ", ".join(by[Verdict.WORSE])
    tpot = next(one for one in judged if one.measure is Measure.TPOT)
    clear = (tpot.high or math.inf) < 1.0 / (1.0 + limits.equivalent)
    outweighed = clear and all(one.within(limits) for one in judged if one.verdict is Verdict.WORSE)
    if better and worse and not outweighed:
        return Verdict.UNDECIDED, f"B is better in {better} and worse in {worse}: which counts more is yours to say"
    pace = [one for one in judged if one.measure in PACE]
    known = [one.verdict for one in pace if one.ratio is not None]
    waits = Verdict.UNDECIDED in known or not known
    decisive = any(one.beyond(limits) or (one in pace and one.verdict is Verdict.WORSE) for one in judged)
    if worse and not better and (decisive or not waits):
        return Verdict.WORSE, f"B is worse in {worse}, and better in nothing"
    if waits:
        return Verdict.UNDECIDED, next(one.why for one in pace if one.verdict is Verdict.UNDECIDED)
    if better:
        losses = [
            f"{one.measure} (at most {one.worse_by[1]:.0%}, of {limits.tolerates(one.measure):.0%} tolerated)"
            for one in judged
            if one.verdict is Verdict.WORSE
        ]
        lost = f"a little worse in {', '.join(losses)}" if losses else "worse in nothing"
        return Verdict.BETTER, f"B is better in {better}, and {lost}"
    return Verdict.EQUIVALENT, f"{', '.join(by[Verdict.EQUIVALENT])} differ by less than counts"
