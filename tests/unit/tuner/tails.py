"""The toy deployment with histograms of latency: requests differ in luck, and the more so the more is drafted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tests.unit.tuner.plant import TICK, Plant, Run, policy

from speculative_operator.domain.observation import Histogram, PodWindow
from speculative_operator.domain.spec import Goal, Objective
from speculative_operator.domain.table import KTable, Trial
from speculative_operator.tuner import Memory

BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, math.inf)
"""vLLM's, but for the last ones."""
FINE = (*(0.0005 * n for n in range(1, 100)), math.inf)


def histogram(mean: float, spread: float, count: float, bounds: tuple[float, ...] = BOUNDS) -> Histogram:
    """Of `count` requests whose latency is lognormal."""
    below = [0.5 * math.erfc(-math.log(bound / mean) / spread / math.sqrt(2.0)) for bound in bounds[:-1]] + [1.0]
    return tuple((bound, count * share) for bound, share in zip(bounds, np.diff([0.0, *below]).tolist(), strict=True))


@dataclass
class Lucky(Plant):
    """TPOT is lognormal around the mean one, its spread `base` + `by_k` x K; the first token comes after some steps."""

    base: float = 0.1
    by_k: float = 0.08
    bounds: tuple[float, ...] = FINE
    steps: float = 3.0
    waiting: float = 0.0

    def spread(self, k: int) -> float:
        return self.base + self.by_k * k

    def p99(self, batch: float, k: int) -> float:
        """Of TPOT."""
        return math.exp(2.326 * self.spread(k)) / self.speed(batch, k)

    def window(
        self, table: KTable, batch: float, end: float, seconds: float = TICK, trials: Sequence[Trial] = ()
    ) -> PodWindow:
        seen = super().window(table, batch, end, seconds, trials)
        k = table.k_at(batch)
        count = float(self.random.poisson(seen.first_tokens))
        tpot = histogram(1.0 / self.speed(batch, k), self.spread(k), count, self.bounds)
        ttft = histogram(self.steps * self.seconds(batch, k), 0.5, count, self.bounds)
        drawn = [
            tuple((bound, float(self.random.poisson(expected))) for bound, expected in one) for one in (tpot, ttft)
        ]
        return replace(seen, tpot_histogram=drawn[0], ttft_histogram=drawn[1], waiting=self.waiting)


def aimed(plant: Plant, tpot: float | None = None, ttft: float | None = None, goal: Goal = Goal.GOODPUT) -> Run:
    """A loop with targets in seconds; it starts with K = 4 everywhere."""
    wanted = policy(objective=Objective(goal, tpot, ttft))
    return Run(plant, wanted, Memory.fresh(KTable.constant(4, 256), 1_700_000_000.0))
