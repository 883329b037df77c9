"""Batch sizes at which tables are judged, and conversion of the K chosen there to a table.

Called by memory (load histogram) and judging. Exact up to eight requests, then in steps of about 12 %: the goodput of a
K changes by less than the decision margin between two of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache
from itertools import pairwise

import numpy as np

from speculative_operator.domain.table import KTable
from speculative_operator.tuner.prior import Array

EXACT = 8
STEP = 1.12


@lru_cache(maxsize=64)
def grid(max_batch: int) -> tuple[int, ...]:
    """Ascending batch sizes from 1 to `max_batch`, both included."""
    points = list(range(1, min(EXACT, max_batch) + 1))
    while points[-1] < max_batch:
        points.append(min(max_batch, max(points[-1] + 1, round(points[-1] * STEP))))
    return tuple(points)


@lru_cache(maxsize=64)
def edges(max_batch: int) -> tuple[tuple[int, int], ...]:
    """(first, last) batch size that each grid point stands for; they cover 1..max_batch."""
    points = grid(max_batch)
    lasts = [int((low * high) ** 0.5) for low, high in pairwise(points)] + [max_batch]
    firsts = [1] + [last + 1 for last in lasts[:-1]]
    return tuple(zip(firsts, lasts, strict=True))


def nearest(batch: float, max_batch: int) -> int:
    """Index of the grid point that stands for `batch`."""
    return bisect_left(_lasts(max_batch), min(max(batch, 1.0), float(max_batch)) - 0.5)


@lru_cache(maxsize=64)
def _lasts(max_batch: int) -> tuple[int, ...]:
    return tuple(last for _, last in edges(max_batch))


@lru_cache(maxsize=1024)
def choices(table: KTable, max_batch: int) -> tuple[int, ...]:
    """K of `table` at every grid point."""
    return tuple(table.k_at(point) for point in grid(max_batch))


def overlay(table: KTable, chosen: tuple[int, ...], max_batch: int) -> KTable:
    """`table` with K changed where `chosen` differs from it at a grid point; elsewhere its bands stay exact."""
    held = choices(table, max_batch)
    if held == chosen:
        return table
    dense = np.array(table.dense())
    for (first, last), old, new in zip(edges(max_batch), held, chosen, strict=True):
        if new != old:
            dense[first - 1 : last] = new
    return KTable.from_dense(dense.tolist())


def best_path(scores: Array, rise: float) -> tuple[int, ...]:
    """The column of each row that maximises the sum of `scores[row, column]`, less `rise` for each step up to a higher
    column. A K that rises with load is rarely right and often noise, so it must pay for itself.
    """
    origins: list[list[int]] = []
    rows = scores.tolist()
    best = rows[0]
    for row in rows[1:]:
        peak = max(range(len(best)), key=best.__getitem__)
        level, source = -math.inf, 0
        reached, origin = [0.0] * len(row), [0] * len(row)
        for column in range(len(row) - 1, -1, -1):
            if best[column] >= level:
                level, source = best[column], column
            up = best[peak] - rise
            reached[column], origin[column] = (up, peak) if up > level else (level, source)
        best = [score + before for score, before in zip(row, reached, strict=True)]
        origins.append(origin)
    path = [max(range(len(best)), key=best.__getitem__)]
    for origin in reversed(origins):
        path.append(origin[path[-1]])
    return tuple(reversed(path))
