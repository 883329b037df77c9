"""Samples of two objects at equal load, and how far a figure of theirs differs there. Called by `verdict`.

Where one object has more traffic than the other, its figures differ by that alone: a canary with a twentieth of the
requests looks fast. So samples are only compared within a stratum, half an octave of batch size and a quarter of the
share of prompt tokens, and what is left of batch size, prompt mix and length of answers is taken out by regression.
None of these depends on how many drafts are accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from speculative_operator.comparing.measures import Sample
from speculative_operator.comparing.sequential import Floats, Ints, half_width

FEWEST_SAMPLES = 2
"""Samples of each object in a stratum that counts."""
PROMPT_STRATA = 4
ROBUST = 1.5
"""Deviations, in robust standard deviations, from which a sample counts less: P. J. Huber's estimate of location."""
ROUNDS = 6
_NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

Figure = Callable[[Sample], float | None]


@dataclass(frozen=True, slots=True)
class Matched:
    """Samples of both objects in strata that both have."""

    samples: tuple[Sample, ...]
    of_b: Floats
    """1 for a sample of B, 0 for one of A."""
    stratum: Ints
    moment: Ints
    """Number of the interval of time that a sample is of."""
    seconds: float
    """Of the object that has fewer."""

    def only(self, kept: Sequence[bool]) -> Matched:
        """Those of the samples, in strata where each object still has enough."""
        samples = [one for one, keep in zip(self.samples, kept, strict=True) if keep]
        chosen = np.array(kept, dtype=bool)
        return _common(samples, self.of_b[chosen])


def match(a: Sequence[Sample], b: Sequence[Sample]) -> Matched:
    """The samples in which steps ran, of strata that both objects have."""
    both = [(one, side) for side, every in ((0.0, a), (1.0, b)) for one in every if one.batch > 0 and one.tokens > 0]
    return _common([one for one, _ in both], np.array([side for _, side in both], dtype=np.float64))


def _common(samples: Sequence[Sample], of_b: Floats) -> Matched:
    numbers: dict[tuple[int, int], int] = {}
    stratum = np.array([numbers.setdefault(_stratum(one), len(numbers)) for one in samples], dtype=np.int64)
    sides = [np.bincount(stratum[of_b == side], minlength=len(numbers)) for side in (0.0, 1.0)]
    common = np.minimum(*sides) >= FEWEST_SAMPLES if numbers else np.zeros(0, dtype=bool)
    chosen = common[stratum]
    kept = tuple(one for one, keep in zip(samples, chosen, strict=True) if keep)
    of_b, length = of_b[chosen], float(np.median([one.seconds for one in kept])) if kept else 1.0
    seconds = np.array([one.seconds for one in kept])
    shorter = min(float(seconds[of_b == side].sum()) for side in (0.0, 1.0)) if kept else 0.0
    moment = np.array([math.floor((one.start + one.end) / 2 / length) for one in kept], dtype=np.int64)
    return Matched(kept, of_b, stratum[chosen], moment, shorter)


def _stratum(one: Sample) -> tuple[int, int]:
    return math.floor(2.0 * math.log2(one.batch)), min(int(PROMPT_STRATA * one.prompt_share), PROMPT_STRATA - 1)


def _load(one: Sample) -> tuple[float, float, float]:
    return math.log2(one.batch), math.log1p(one.prompt_tokens / one.tokens), one.first_tokens / one.tokens


@dataclass(frozen=True, slots=True)
class Difference:
    """Of a figure's logarithm, B less A, at equal load."""

    a: float
    """Geometric mean of A's figure at the loads that are compared."""
    log_ratio: float
    half_width: float | None
    """Of the interval of `log_ratio`; None where too little is known."""
    seconds: float


def difference(matched: Matched, figure: Figure, weight: Figure, error: float) -> Difference | None:
    """How far B's figure differs from A's; None where no stratum has samples of both with that figure.

    `weight` says how much a sample tells; beyond the median all count alike. `error`: most chance that the interval
    ever misses.
    """
    values = [figure(one) for one in matched.samples]
    found = matched.only([value is not None for value in values])
    if not found.samples:
        return None
    y = np.log(np.array([figure(one) for one in found.samples], dtype=np.float64))
    raw = np.array([weight(one) or 0.0 for one in found.samples])
    weights = np.minimum(raw, np.median(raw)) + 1e-9 * (1.0 + raw.max())
    fit = _Fit(y, found.of_b, found.stratum, np.array([_load(one) for one in found.samples]), weights / weights.mean())
    if not fit.works:
        return None
    width = half_width(fit.influences, found.moment, found.seconds, error)
    return Difference(math.exp(fit.level), fit.log_ratio, width, found.seconds)


class _Fit:
    """Least squares of a figure's logarithm on the object, within strata and at equal `load`, with samples far off
    counting less. An estimate's influences are what each sample adds to it."""

    works = False

    def __init__(self, y: Floats, of_b: Floats, stratum: Ints, load: Floats, weights: Floats) -> None:
        self._stratum, robust = stratum, np.ones(len(y))
        for _ in range(ROUNDS):
            w = weights * robust
            rest, side = self._at_equal_load(y, of_b, load, w)
            information = float(w @ (side * side))
            if information < 1e-6 * float(w.sum()):
                return
            self.log_ratio = float(w @ (side * rest)) / information
            left = rest - self.log_ratio * side
            far = ROBUST * _NORMAL * float(np.median(np.abs(left))) + 1e-9
            robust = np.minimum(1.0, far / np.maximum(np.abs(left), 1e-12))
        parameters = len(np.unique(stratum)) + load.shape[1] + 1
        near = float((weights * (np.abs(left) <= far)) @ (side * side))
        if near <= 0 or len(y) <= parameters:
            return
        self.works = True
        self.influences = weights * robust * left * side / near * math.sqrt(len(y) / (len(y) - parameters))
        # Strata count by what they say of the difference.
        self.level = float(w @ (side * side * (y - of_b * self.log_ratio))) / information

    def _at_equal_load(self, y: Floats, of_b: Floats, load: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """What strata and load leave of `y` and of `of_b`."""
        inner = [self._within(column, weights) for column in (y, of_b, *load.T)]
        both, covariates = np.stack(inner[:2], axis=1), np.stack(inner[2:], axis=1)
        root = np.sqrt(weights)[:, None]
        slopes = np.linalg.lstsq(covariates * root, both * root, rcond=1e-8)[0]
        rest = both - covariates @ slopes
        return rest[:, 0], rest[:, 1]

    def _within(self, column: Floats, weights: Floats) -> Floats:
        """A column less its mean in each stratum."""
        total = np.bincount(self._stratum, weights=weights)
        mean = np.bincount(self._stratum, weights=weights * column) / np.maximum(total, 1e-12)
        return np.asarray(column - mean[self._stratum])
