"""Compare two objects at equal load: a ratio with an interval for each measure, and a verdict on B against A.

Called by `speculative compare` and by reconcile for a canary, as often as there are new samples: the intervals hold
however often one looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from speculative_operator.comparing.measures import Sample


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
    """Interval of `ratio`."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is known of B against A."""

    verdict: Verdict
    why: str
    """One sentence: which measures decided, or what is missing."""
    measures: tuple[Judged, ...]
    matched_seconds: float = 0.0
    """Seconds of B at loads that A had too."""

    def of(self, measure: Measure) -> Judged:
        """The judgement of one measure."""
        return next(one for one in self.measures if one.measure is measure)


def compare(a: Sequence[Sample], b: Sequence[Sample], limits: Limits = Limits()) -> Comparison:
    """Compare B with A by samples of the same hours, in any order."""
    raise NotImplementedError
