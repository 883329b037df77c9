"""Batch sizes at which tables are judged, and the way from choices there back to a table.

Called by memory (load histogram) and judging. Exact up to eight requests, then in steps of about 12 %: the goodput of a
K changes by less than the decision margin between two of them.
"""

from __future__ import annotations

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
    lasts = [last for _, last in edges(max_batch)]
    return int(np.searchsorted(lasts, min(max(batch, 1.0), float(max_batch)) - 0.5))


def choices(table: KTable, max_batch: int) -> tuple[int, ...]:
    """K of `table` at every grid point."""
    return tuple(table.k_at(point) for point in grid(max_batch))


def overlay(table: KTable, chosen: tuple[int, ...], max_batch: int, *, monotone: bool) -> KTable:
    """`table` with the cells changed whose choice differs; the others keep their exact bands."""
    dense = np.array(table.dense())
    for (first, last), old, new in zip(edges(max_batch), choices(table, max_batch), chosen, strict=True):
        if new != old:
            dense[first - 1 : last] = new
    if monotone:
        dense = np.minimum.accumulate(dense)
    return KTable.from_dense(dense.tolist())


def best_path(scores: Array) -> tuple[int, ...]:
    """Column per row that maximises the sum of `scores[row, column]` while columns never rise from row to row."""
    rows, columns = scores.shape
    best, origin = scores[0], np.zeros((rows, columns), dtype=int)
    for row in range(1, rows):
        reverse = best[::-1]
        top = np.maximum.accumulate(reverse)
        where = np.maximum.accumulate(np.where(reverse == top, np.arange(columns), 0))
        origin[row] = columns - 1 - where[::-1]
        best = scores[row] + top[::-1]
    column = int(np.argmax(best))
    path = [column]
    for row in range(rows - 1, 0, -1):
        column = int(origin[row, column])
        path.append(column)
    return tuple(reversed(path))
