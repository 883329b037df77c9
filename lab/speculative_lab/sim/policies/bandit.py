"""A bandit over K in bins of batch size, after Nightjar (arXiv 2512.22420).

Only the paper's summary was read: arms K in bins of batch size, tokens per second of an episode as reward, a cost for
going from 0 to K (the drafter's KV cache must be filled again). Unverified and chosen here: UCB1 with its usual width,
episodes of 50 steps, rewards relative to the best mean of the bin, a switching cost of 2 % of the reward. The paper's
offloading of the drafter to the host is left out. Named in `registry`, run by `base.InEngine`.
"""

from __future__ import annotations

from bisect import bisect_left
from math import log, sqrt

from speculative_lab.sim.policies.base import Step

BINS = (4, 8, 16, 32, 64, 128)
"""Inclusive upper ends; one more bin lies above."""
EPISODE = 50
SWITCHING_COST = 0.02
WIDTH = 0.1
"""Width of the confidence bound on rewards that are scaled to about 1."""


class Arms:
    """One bin: counts and mean rewards of its arms, and the episode under way."""

    def __init__(self, count: int, first: int) -> None:
        self.counts = [0] * count
        self.means = [0.0] * count
        self.current = first
        self.steps = 0
        self.tokens = 0.0
        self.seconds = 0.0

    def close(self, penalty: float) -> None:
        """Books the episode on the current arm, its reward cut by `penalty`."""
        reward = (1.0 - penalty) * self.tokens / self.seconds
        self.counts[self.current] += 1
        self.means[self.current] += (reward - self.means[self.current]) / self.counts[self.current]
        self.steps, self.tokens, self.seconds = 0, 0.0, 0.0

    def best(self) -> int:
        """An arm never pulled, lowest first; else the largest upper confidence bound."""
        if 0 in self.counts:
            return self.counts.index(0)
        total, scale = sum(self.counts), max(self.means)
        bounds = [
            mean / scale + WIDTH * sqrt(2.0 * log(total) / count)
            for mean, count in zip(self.means, self.counts, strict=True)
        ]
        return bounds.index(max(bounds))


class Bandit:
    """UCB1 per bin. Rewards are tokens per second and request, so that bins of unequal batches compare."""

    def __init__(self, ks: tuple[int, ...], episode: int = EPISODE) -> None:
        self.changed = True
        self._ks, self._episode = ks, episode
        self.bins = [Arms(len(ks), 0) for _ in range(len(BINS) + 1)]
        self._from_zero = [False] * len(self.bins)

    def observe(self, step: Step) -> None:
        if step.batch <= 0:
            return
        at = bisect_left(BINS, step.batch)
        arms = self.bins[at]
        arms.steps += 1
        arms.tokens += step.emitted / step.batch
        arms.seconds += step.seconds
        if arms.steps < self._episode:
            return
        arms.close(SWITCHING_COST if self._from_zero[at] else 0.0)
        before, arms.current = arms.current, arms.best()
        self._from_zero[at] = self._ks[before] == 0 and self._ks[arms.current] > 0
        self.changed = self.changed or arms.current != before

    def choose(self, batch: int) -> int:
        return self._ks[self.bins[bisect_left(BINS, batch)].current]
