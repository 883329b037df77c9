"""Samples of two objects at equal load, and how far a figure of theirs differs there. Called by `verdict` and `tails`.

Where one object has more traffic than the other, its figures differ by that alone: a canary with a twentieth of the
requests looks fast. So samples are only compared within a stratum, half an octave of batch size and a quarter of the
share of prompt tokens, and what is left of batch size, prompt mix and length of answers is taken out by regression.
None of these depends on how many drafts are accepted.

Objects of very different speed share no batch size at the same traffic. They are compared at equal requests per second
and pod. What these leave unequal widens the intervals: how much it slows an object cannot be learned in minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress

import numpy as np

from speculative_operator.comparing.measures import Sample
from speculative_operator.comparing.sequential import LEAST_SECONDS, Floats, Ints, half_width

FEWEST_SAMPLES = 2
"""Samples of each object in a stratum that counts."""
PROMPT_STRATA = 4
ROBUST = 1.5
"""Deviations, in robust standard deviations, from which a sample counts less: P. J. Huber's estimate of location."""
ROUNDS = 6
_NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

COMMON = 0.25
"""Share of the time at common batch sizes below which batch sizes hardly ever meet."""
ARRIVAL_SECONDS = 300.0
"""Of requests per second: in less time chance makes equal traffic look unequal, and unequal traffic equal."""
MOST_UNEQUAL = 0.1
"""Logarithm of requests or tokens in a second, B over A: near its limit an object slows by far more than they grow."""
STEEPEST = 2.0
"""Per cent by which a figure grows, at most, for each per cent that is left unequal."""

ABSURD_RATIO = 30.0
"""No speculator and no machine makes such a difference at equal load: figures say something else than they seem to."""

Figure = Callable[[Sample], float | None]


class Basis(StrEnum):
    """What is equal where two objects are compared."""

    BATCH = "equal batch size"
    ARRIVALS = "equal requests per second and pod"


@dataclass(frozen=True, slots=True)
class Load:
    """Under which a sample was taken."""

    size: float
    """Requests of a step; or requests that came per second and pod in the last minutes."""
    prompt_share: float
    prompts: float
    """Prompt tokens, and answers begun, per output token."""
    answers: float

    @property
    def stratum(self) -> tuple[int, int]:
        return math.floor(2.0 * math.log2(self.size)), min(int(PROMPT_STRATA * self.prompt_share), PROMPT_STRATA - 1)

    @property
    def logs(self) -> tuple[float, float, float]:
        """Of what comes in a second, for requests of a second as `size`: requests, prompt tokens, output tokens."""
        tokens = self.size / max(self.answers, 1e-12)
        return math.log(self.size), math.log(max(self.prompts * tokens, 1e-12)), math.log(tokens)


@dataclass(frozen=True, slots=True)
class Matched:
    """Samples of both objects in strata that both have."""

    basis: Basis
    samples: tuple[Sample, ...]
    loads: tuple[Load, ...]
    """Of each sample."""
    of_b: Floats
    """1 for a sample of B, 0 for one of A."""
    stratum: Ints
    moment: Ints
    """Number of the interval of time that a sample is of."""
    seconds: float
    """Of the object that has fewer."""

    @property
    def slack(self) -> float:
        """By which intervals are wider, on each side, for what is left unequal."""
        return STEEPEST * self.unequal

    def only(self, kept: Sequence[bool]) -> Matched:
        """Those of the samples, in strata where each object still has enough."""
        if all(kept):
            return self
        return _common(self.basis, list(compress(zip(self.samples, self.loads, self.of_b, strict=True), kept)))

    @property
    def covariates(self) -> Floats:
        """What regression takes out within strata: of `basis` ARRIVALS nothing."""
        if self.basis is Basis.ARRIVALS:
            return np.zeros((len(self.loads), 1))
        return np.array([(math.log2(one.size), math.log1p(one.prompts), one.answers) for one in self.loads])

    @property
    def unequal(self) -> float:
        """What strata leave unequal in requests and tokens of a second, in logarithms."""
        if self.basis is Basis.BATCH or not self.loads:
            return 0.0
        side = self.of_b - (np.bincount(self.stratum, self.of_b) / np.bincount(self.stratum))[self.stratum]
        logs = np.array([one.logs for one in self.loads])
        return float(np.abs(side @ logs / (side @ side)).max())


def match(a: Sequence[Sample], b: Sequence[Sample]) -> Matched:
    """The samples in which steps ran, of strata that both objects have: of batch size; of requests per second where too
    little time is at common batch sizes. Loads alone decide which. Samples are in order of time."""
    batch, whole = match_by(Basis.BATCH, a, b), min(sum(one.seconds for one in own if one.batch > 0) for own in (a, b))
    if batch.seconds >= max(COMMON * whole, LEAST_SECONDS):
        return batch
    arrivals = match_by(Basis.ARRIVALS, a, b)
    return arrivals if arrivals.seconds >= LEAST_SECONDS and arrivals.unequal <= MOST_UNEQUAL else batch


def match_by(basis: Basis, a: Sequence[Sample], b: Sequence[Sample]) -> Matched:
    """The same for one basis."""
    loads = _by_batch if basis is Basis.BATCH else _by_arrivals
    return _common(basis, [(one, load, side) for side, own in ((0.0, a), (1.0, b)) for one, load in loads(own)])


def _by_batch(own: Sequence[Sample]) -> Iterator[tuple[Sample, Load]]:
    for one in own:
        if one.batch > 0 and one.tokens > 0:
            shares = one.prompt_share, one.prompt_tokens / one.tokens, one.first_tokens / one.tokens
            yield one, Load(one.batch, *shares)


def _by_arrivals(own: Sequence[Sample]) -> Iterator[tuple[Sample, Load]]:
    """By the requests and tokens of the last minutes, idle ones included."""
    counts = np.array([(one.first_tokens, one.prompt_tokens, one.tokens, one.seconds * one.pods) for one in own])
    sums = np.vstack([np.zeros(4), np.cumsum(counts.reshape(-1, 4), axis=0)])
    ends = np.array([one.end for one in own])
    first = np.searchsorted(ends, ends - ARRIVAL_SECONDS, side="right")
    for one, come in zip(own, (sums[1:] - sums[first]).tolist(), strict=True):
        requests, prompts, tokens, seconds = come
        if one.batch > 0 and min(one.tokens, requests, tokens, seconds) > 0:
            yield one, Load(requests / seconds, prompts / (prompts + tokens), prompts / tokens, requests / tokens)


def _common(basis: Basis, rows: Sequence[tuple[Sample, Load, float]]) -> Matched:
    numbers: dict[tuple[int, int], int] = {}
    stratum = np.array([numbers.setdefault(load.stratum, len(numbers)) for _, load, _ in rows], dtype=np.int64)
    of_b = np.array([side for _, _, side in rows], dtype=np.float64)
    sides = [np.bincount(stratum[of_b == side], minlength=len(numbers)) for side in (0.0, 1.0)]
    common = np.minimum(*sides) >= FEWEST_SAMPLES if numbers else np.zeros(0, dtype=bool)
    chosen = common[stratum]
    kept = list(compress(rows, chosen))
    samples, loads, of_b = tuple(one for one, _, _ in kept), tuple(load for _, load, _ in kept), of_b[chosen]
    seconds = np.array([one.seconds for one in samples])
    length = float(np.median(seconds)) if kept else 1.0
    shorter = min(float(seconds[of_b == side].sum()) for side in (0.0, 1.0)) if kept else 0.0
    moment = np.array([math.floor((one.start + one.end) / 2 / length) for one in samples], dtype=np.int64)
    _, numbered = np.unique(stratum[chosen], return_inverse=True)
    return Matched(basis, samples, loads, of_b, numbered, moment, shorter)


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of both objects at equal load, and the interval of log(B / A), without an end that is not known."""

    a: float
    b: float
    low: float | None
    high: float | None


def difference(matched: Matched, figure: Figure, weight: Figure, error: float) -> Difference | None:
    """How far the geometric means of a figure differ; None where no stratum has samples of both with that figure.

    `weight` says how much a sample tells; beyond the median all count alike. `error`: most chance that the interval
    ever misses.
    """
    found = matched.only([figure(one) is not None for one in matched.samples])
    if not found.samples:
        return None
    y = np.log(np.array([figure(one) for one in found.samples], dtype=np.float64))
    raw = np.array([weight(one) or 0.0 for one in found.samples])
    weights = np.minimum(raw, np.median(raw)) + 1e-9 * (1.0 + raw.max())
    fit = _fit(y, found, weights / weights.mean())
    if fit is None:
        return None
    log_ratio, level, influences = fit
    a = math.exp(level)
    width = (half_width(influences, found.moment, found.seconds, error) or math.inf) + matched.slack
    known = width < math.log(ABSURD_RATIO)
    ends = (log_ratio - width, log_ratio + width) if known else (None, None)
    return Difference(a, a * math.exp(log_ratio), *ends)


def _fit(y: Floats, found: Matched, weights: Floats) -> tuple[float, float, Floats] | None:
    """Least squares of a figure's logarithm on the object, within strata and at equal load, with samples far off
    counting less: log(B / A), the logarithm of A's figure, and what each sample adds to the first. None where nothing
    is left to compare."""
    of_b, robust = found.of_b, np.ones(len(y))
    columns = [y, of_b, *found.covariates.T]
    for _ in range(ROUNDS):
        w = weights * robust
        rest, side = _at_equal_load([_within(one, found.stratum, w) for one in columns], w)
        information = float(w @ (side * side))
        if information < 1e-6 * float(w.sum()):
            return None
        log_ratio = float(w @ (side * rest)) / information
        left = rest - log_ratio * side
        far = ROBUST * _NORMAL * float(np.median(np.abs(left))) + 1e-9
        robust = np.minimum(1.0, far / np.maximum(np.abs(left), 1e-12))
    parameters = len(np.unique(found.stratum)) + len(columns) - 1
    near = float((weights * (np.abs(left) <= far)) @ (side * side))
    if near <= 0 or len(y) <= parameters:
        return None
    influences = weights * robust * left * side / near * math.sqrt(len(y) / (len(y) - parameters))
    # Strata count by what they say of the difference.
    level = float(w @ (side * side * (y - of_b * log_ratio))) / information
    return log_ratio, level, influences


def _at_equal_load(inner: Sequence[Floats], weights: Floats) -> tuple[Floats, Floats]:
    """What is left of the first two columns without what the others, the load, explain of them."""
    both, covariates = np.stack(inner[:2], axis=1), np.stack(inner[2:], axis=1)
    root = np.sqrt(weights)[:, None]
    rest = both - covariates @ np.linalg.lstsq(covariates * root, both * root, rcond=1e-8)[0]
    return rest[:, 0], rest[:, 1]


def _within(column: Floats, stratum: Ints, weights: Floats) -> Floats:
    """A column less its mean in each stratum."""
    total = np.bincount(stratum, weights=weights)
    mean = np.bincount(stratum, weights=weights * column) / np.maximum(total, 1e-12)
    return np.asarray(column - mean[stratum])
