"""Whether two engines are equally fast: pairs of short runs, turn about, until their ratio is known well enough.

Called by `measure` and `off`, and by the end-to-end harness of the real engine for its verdicts. Noise never helps: a
ratio whose error stays above MOST_ERROR is undecided, and undecided is not passed. Pure but for the runs that it is
given.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

MARGIN = 0.02
"""Share of the speed that counts as equal."""
MOST_ERROR = 0.005
"""Standard error above which a ratio tells nothing about MARGIN."""
ERRORS = 2.5
"""Standard errors between the ratio and its bounds: of twelve pairs, one in seventy lies beyond the lower one."""
FEWEST = 12
"""Pairs below which their scatter is not known."""


class Verdict(StrEnum):
    """What a ratio of speeds shows."""

    EQUAL = "no slower"
    SLOWER = "slower"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Speed of one engine over that of another: geometric mean over pairs, and its standard error."""

    value: float
    error: float
    pairs: int

    @property
    def low(self) -> float:
        return self.value - ERRORS * self.error

    @property
    def high(self) -> float:
        return self.value + ERRORS * self.error

    @property
    def resolved(self) -> bool:
        """Whether noise is small enough for a verdict."""
        return self.pairs >= FEWEST and self.error <= MOST_ERROR

    def verdict(self, margin: float = MARGIN) -> Verdict:
        """EQUAL where the lower bound is within `margin` of 1, SLOWER where the upper bound is not, else UNDECIDED."""
        if self.pairs >= FEWEST and self.high < 1.0 - margin:
            return Verdict.SLOWER
        return Verdict.EQUAL if self.resolved and self.low >= 1.0 - margin else Verdict.UNDECIDED

    def __str__(self) -> str:
        return f"{self.value:.4f} +- {self.error:.4f} of {self.pairs} pairs"


def between(engine: float, plain: float, copy: float) -> float:
    """Speed of an engine over that of two equal ones, by seconds: their mean halves what two processes differ by."""
    return math.sqrt(plain * copy) / engine


def beside_copies(ratio: Ratio, copies: Ratio, margin: float = MARGIN) -> Verdict:
    """The verdict of a ratio to the mean of two equal engines, `copies` being that of these two: no number of pairs
    shows what differs from one process to the next. Where they differ by more than `margin`, nothing is decided."""
    alike = copies.resolved and abs(math.log(copies.value)) <= margin
    return ratio.verdict(margin) if alike else Verdict.UNDECIDED


def ratio_of(ratios: Sequence[float]) -> Ratio:
    """The ratio of pairs; its error is infinite where there are fewer than two."""
    if not ratios:
        return Ratio(1.0, math.inf, 0)
    logarithms = [math.log(one) for one in ratios]
    mean = math.exp(statistics.fmean(logarithms))
    error = mean * statistics.stdev(logarithms) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.inf
    return Ratio(mean, error, len(ratios))


def until_resolved(
    pair: Callable[[int], dict[str, float]], seconds: float, clock: Callable[[], float], margin: float = MARGIN
) -> dict[str, list[float]]:
    """Ratios by name of pair after pair, `pair(number)`, until each has a verdict or so many seconds are over.

    Looks from FEWEST pairs on, at each doubling alone: who looks after every pair stops where chance is kind.
    """
    found: dict[str, list[float]] = {}
    began, number, look = clock(), 0, FEWEST
    while clock() - began < seconds:
        for name, ratio in pair(number).items():
            found.setdefault(name, []).append(ratio)
        number += 1
        if number == look:
            look *= 2
            if all(ratio_of(ratios).verdict(margin) is not Verdict.UNDECIDED for ratios in found.values()):
                break
    return found
