"""Intervals that hold at every look: one may read them after each new sample and stop when one likes.

Called by `matching` and `tails`. The boundary is that of an asymptotic confidence sequence (I. Waudby-Smith, D. Arbour,
R. Sinha, E. Kennedy, A. Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences", Annals of
Statistics 52, 2024, theorem 2.2): Robbins' normal mixture, in standard errors. Samples that follow each other are
alike, so the standard error is that of a long run, with the correlation of neighbours in time as in a process of first
order. `python -m bench.compare` counts how often the intervals miss.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FEWEST = 20
"""Moments with samples below which nobody knows how far they scatter."""
LEAST_SECONDS = 240.0
"""Matched seconds below which the same holds: queues, texts and neighbours on a machine change in minutes."""
FEWEST_FREE = 4.0
"""Degrees of freedom below which that holds where neighbours are alike."""
STRETCHES = (3, 12)
"""Samples in a row whose sums are looked at too."""
FEWEST_STRETCHES = 8
TIGHTEST_SECONDS = 600.0
"""Seconds of matched samples at which the boundary is tightest."""
LEAST = 0.001
"""Half width, in logarithms, that no interval goes below: counters and their scrapes are no more exact."""


def boundary(seconds: float, error: float) -> float:
    """Half width, in standard errors, of the interval after so many matched seconds that holds at all looks together
    with probability 1 - error."""
    tightest = -2.0 * math.log(error) + math.log(-2.0 * math.log(error) + 1.0)
    information = tightest * seconds / TIGHTEST_SECONDS
    return math.sqrt(2.0 * (1.0 + 1.0 / information) * math.log(math.sqrt(information + 1.0) / error))


def widened(reach: float, freedom: float) -> float:
    """The half width, in standard errors that are themselves estimated with so many degrees of freedom, that errs as
    rarely as `reach` does with known ones: Student's t by D. L. Wallace's approximation (Annals of Mathematical
    Statistics 30, 1959)."""
    scaled = reach * (8.0 * freedom + 3.0) / (8.0 * freedom + 1.0)
    return math.sqrt(freedom * math.expm1(min(scaled * scaled / freedom, 600.0)))


def half_width(influences: Floats, moments: Ints, seconds: float, error: float) -> float | None:
    """Half width of the interval of an estimate; None where there is too little to know it.

    `influences`: what each sample adds to the estimate beyond its truth; `moments`: the number of the interval of time
    that each sample is of; `seconds`: matched seconds.
    """
    sums = _sums(influences, moments)
    if len(sums) < FEWEST or seconds < LEAST_SECONDS:
        return None
    variance = float(sums @ sums)
    if not 0 < variance < math.inf:
        return LEAST if variance == 0 else None
    deviation, freedom = _long_run(sums)
    if freedom < FEWEST_FREE:
        return None
    # Some likeness shows in longer stretches only, where each single sample scatters much more.
    longer, longest = (_sums(influences, moments // samples) for samples in STRETCHES)
    if len(longer) >= FEWEST_STRETCHES:
        deviation = max(deviation, _long_run(longer)[0])
    if len(longest) >= FEWEST_STRETCHES:
        deviation = max(deviation, math.sqrt(float(longest @ longest) * len(longest) / (len(longest) - 1)))
    return max(deviation * widened(boundary(seconds, error), freedom), LEAST)


def _sums(influences: Floats, moments: Ints) -> Floats:
    _, place = np.unique(moments, return_inverse=True)
    return np.asarray(np.bincount(place, weights=influences), dtype=np.float64)


def _long_run(sums: Floats) -> tuple[float, float]:
    """Standard error of a sum whose parts follow each other in a process of first order, and its degrees of freedom."""
    variance, count = float(sums @ sums), len(sums)
    alike = float(sums[1:] @ sums[:-1]) / max(variance, 1e-300)
    # An estimate of a correlation from few values is too low by this much (M. G. Kendall, Biometrika 41, 1954).
    alike = min(max(alike + (1.0 + 3.0 * alike) / count, 0.0), 0.95)
    return math.sqrt(variance * (1.0 + alike) / (1.0 - alike)), count * (1.0 - alike) / (1.0 + alike) - 1.0
