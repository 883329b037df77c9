"""Laws that maximise expected tokens per cost: SmartSpec's argmax, and a vLLM pull request that knows acceptance only.

Named in `registry`, run by `base.InEngine`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from speculative_lab.sim.policies.base import Step

Array = NDArray[np.float64]
_GUESS = 0.7
"""Acceptance before the first draft was seen: an assumption."""
_GRID = 2000


def geometric_length(a: float, k: int) -> float:
    """Tokens per step at chance `a` for each draft alike: 1 + a + ... + a^k (Leviathan et al. 2023)."""
    return sum(a**j for j in range(k + 1))


def chance_of(accepted: float, k: int) -> float:
    """The chance `a` of each draft at which `accepted` of `k` drafts are accepted in the mean, to three digits."""
    return bisect_left(_accepted(k), accepted) / _GRID


@cache
def _accepted(k: int) -> list[float]:
    return [geometric_length(a / _GRID, k) - 1.0 for a in range(_GRID)]


class SmartSpec:
    """Argmax of goodput in every step (arXiv 2406.14066; abstract and summary only, its equations are unverified).

    T = alpha * context tokens + gamma * batched tokens + delta + draft passes, fitted offline to the true steps of the
    deployment; acceptance is a moving average of the chance of one draft, not refreshed while K is 0; no hysteresis.
    `seconds(batch, k)` is the fitted step time at the profile's context.
    """

    def __init__(self, ks: tuple[int, ...], max_batch: int, seconds: Callable[[Array, int], Array]) -> None:
        self._ks = ks
        batches = np.arange(1, max_batch + 1, dtype=float)
        self._seconds: Array = np.stack([seconds(batches, k) for k in ks])
        self._chance = _GUESS
        self._best: NDArray[np.intp] = self._argmax()
        self._fresh = self._changed = True

    @property
    def changed(self) -> bool:
        """See `Law`; the argmax is taken when this is asked, not after every step."""
        if not self._fresh:
            best, self._fresh = self._argmax(), True
            self._changed = self._changed or not np.array_equal(best, self._best)
            self._best = best
        return self._changed

    @changed.setter
    def changed(self, value: bool) -> None:
        self._changed = value

    def observe(self, step: Step, weight: float = 0.05) -> None:
        if step.k > 0 and step.batch > 0:
            self._chance += weight * (chance_of(step.accepted, step.k) - self._chance)
            self._fresh = False

    def choose(self, batch: int) -> int:
        if not self._fresh:
            _ = self.changed
        return self._ks[int(self._best[batch - 1])]

    def _argmax(self) -> NDArray[np.intp]:
        lengths = np.array([geometric_length(self._chance, k) for k in self._ks])
        return np.asarray(np.argmax(lengths[:, None] / self._seconds, axis=0))


def fitted_seconds(
    measure: Callable[[Array, Array, Array], Array], context: float, max_batch: int, ks: tuple[int, ...]
) -> Callable[[Array, int], Array]:
    """SmartSpec's offline profile: least squares of its linear form on `measure(batch, k, context)`."""
    sizes = [2**i for i in range(12) if 2**i <= max_batch]
    cells = [(b, k, c) for b in sizes for k in ks for c in (context / 2, context)]
    batch, k, length = (np.array(column, dtype=float) for column in zip(*cells, strict=True))
    terms = _terms(batch, k, length)
    weights = 1.0 / measure(batch, k, length)
    solution, *_ = np.linalg.lstsq(terms * weights[:, None], np.ones(len(cells)), rcond=None)

    def seconds(at: Array, drafts: int) -> Array:
        return np.maximum(_terms(at, np.full_like(at, drafts), np.full_like(at, context)) @ solution, 1e-4)

    return seconds


def _terms(batch: Array, k: Array, context: Array) -> Array:
    """Columns: constant, context tokens, batched tokens, draft passes."""
    return np.stack([np.ones_like(batch), batch * context, batch * (k + 1.0), k], axis=1)


class VllmAdaptive:
    """vLLM pull request 44336 (closed): K of the best (1 + accepted) / (K c + 1 + v), the same at every batch size.

    Acceptance per position as a moving average; one round in ten explores; decided every 10 steps; moves only by more
    than one step at a time. Read in the thread; the draft cost ratio `c`, the overhead `v` and the average's weight are
    assumptions, and position chances come from the mean of accepted drafts, because the step log has no positions.
    """

    def __init__(
        self, ks: tuple[int, ...], random: np.random.Generator, cost: float = 0.1, overhead: float = 0.05
    ) -> None:
        self.changed = True
        self._ks, self._random = ks, random
        self._cost, self._overhead = cost, overhead
        self._k = max((k for k in ks if k <= 3), default=0)
        self._chance, self._steps = _GUESS, 0

    def observe(self, step: Step) -> None:
        if step.batch <= 0:
            return
        if step.k > 0:
            self._chance += 0.1 * (chance_of(step.accepted, step.k) - self._chance)
        self._steps += 1
        if self._steps % 10:
            return
        k = self._wanted()
        if abs(k - self._k) > 1:
            self._k, self.changed = k, True

    def _wanted(self) -> int:
        if self._random.random() < 0.1:
            return int(self._random.choice(self._ks))
        scores = [geometric_length(self._chance, k) / (k * self._cost + 1.0 + self._overhead) for k in self._ks]
        return self._ks[int(np.argmax(scores))]

    def choose(self, batch: int) -> int:
        return self._k
