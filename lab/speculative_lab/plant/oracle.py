"""The best table in hindsight of a world, by a bounded search over tables by bands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.serving import Outcome, constant, fresh, outcome, until
from speculative_lab.plant.types import Floats, Ints, State
from speculative_lab.plant.world import World

ROUNDS = 2
MOST = 14
"""Tables that are looked at beside the constants."""
BANDS = (1, 2, 3, 5, 9, 17, 33, 65, 129)
"""First number of requests of each band."""


@dataclass(frozen=True, slots=True)
class Best:
    """What a search found."""

    constants: tuple[Outcome, ...]
    """By K, in the order of those that the engine has."""
    tables: tuple[tuple[Ints, Outcome], ...]
    """All that were looked at, constants included."""

    def fastest(self, allowed: Callable[[Outcome], bool] = lambda _: True) -> tuple[Ints, Outcome] | None:
        """The fastest of those that are allowed."""
        good = [pair for pair in self.tables if allowed(pair[1])]
        return max(good, key=lambda pair: pair[1].speed) if good else None


def search(world: World) -> Best:
    """Constants, then the best K by band as the constants' own steps have it, then changes band by band."""
    ks = world.policy.knobs.ks
    found: list[tuple[Ints, Outcome]] = []
    sums = []
    for k in ks:
        run, cells = measured(world, constant(world, k))
        found.append((constant(world, k), run))
        sums.append(cells)
    speeds, weights = _by_band(np.array(sums))
    constants = tuple(run for _, run in found)
    best = max(range(len(ks)), key=lambda i: constants[i].speed)
    start = np.where(np.isfinite(speeds).any(axis=0), np.argmax(np.nan_to_num(speeds, nan=-1.0), axis=0), best)
    _climb(world, found, start, weights)
    return Best(constants, tuple(found))


def measured(world: World, table: Ints) -> tuple[Outcome, Floats]:
    """A run, and its tokens and request-seconds by power of two of scheduled requests."""
    states = [fresh(replica, world.top_k, world.seconds) for replica in world.replicas]
    for replica, state in zip(world.replicas, states, strict=True):
        until(state, replica, table, world.seconds)
    return outcome(world, states), load_totals(states)


def load_totals(states: Sequence[State]) -> Floats:
    """Tokens and request-seconds of replicas together, each by power of two of scheduled requests."""
    cells = np.sum([state.cells.sum(axis=0) for state in states], axis=0)
    steps = np.maximum(cells[:, at.C_STEPS], 1.0)
    return np.stack([cells[:, at.C_TOKENS], cells[:, at.C_SECONDS] * cells[:, at.C_REQUESTS] / steps])


def _by_band(sums: Floats) -> tuple[Floats, Floats]:
    """Tokens per request-second by (K, band), NaN where hardly seen; and each band's request-seconds."""
    tokens, times = sums[:, 0, : len(BANDS)], sums[:, 1, : len(BANDS)]
    with np.errstate(invalid="ignore", divide="ignore"):
        speeds = np.where(times > 5.0, tokens / times, np.nan)
    return speeds, times.mean(axis=0)


def spread(per_band: Ints, most: int) -> Ints:
    """The table of one K a band."""
    edges = np.searchsorted(np.array(BANDS), np.maximum(np.arange(most + 1), 1), side="right") - 1
    return np.asarray(per_band, dtype=np.int64)[edges]


class _Climb:
    """Changes band by band, each run kept in `found`. Bands hold places of K among those that the engine has."""

    def __init__(self, world: World, found: list[tuple[Ints, Outcome]]) -> None:
        self._world, self._found, self._left = world, found, MOST
        self._most, self.ks = world.policy.knobs.max_batch, np.array(world.policy.knobs.ks)

    def look(self, bands: Ints) -> float:
        """Speed of a table of one K a band."""
        table = spread(self.ks[bands], self._most)
        for other, run in self._found:
            if np.array_equal(other, table):
                return run.speed
        self._left -= 1
        self._found.append((table, measured(self._world, table)[0]))
        return self._found[-1][1].speed

    def better(self, bands: Ints, speed: float, band: int) -> tuple[Ints, float] | None:
        """The table with this band's K one up or down, where that is faster."""
        for change in (1, -1):
            other = bands.copy()
            other[band] = min(max(other[band] + change, 0), len(self.ks) - 1)
            if self._left <= 0 or other[band] == bands[band]:
                continue
            tried = self.look(other)
            if tried > speed * 1.001:
                return other, tried
        return None


def _climb(world: World, found: list[tuple[Ints, Outcome]], start: Ints, weights: Floats) -> None:
    climb = _Climb(world, found)
    climb.look(start)
    table, run = max(found, key=lambda pair: pair[1].speed)
    chosen = np.searchsorted(climb.ks, [table[min(first, len(table) - 1)] for first in BANDS])
    speed = run.speed
    order = [int(i) for i in np.argsort(-weights) if weights[i] > 0.03 * weights.sum()]
    for _ in range(ROUNDS):
        before = speed
        for band in order:
            chosen, speed = climb.better(chosen, speed, band) or (chosen, speed)
        if speed == before:
            return
