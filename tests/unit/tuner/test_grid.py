"""The grid of batch sizes, and tables made from choices on it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.domain.table import KTable
from speculative_operator.tuner.grid import best_path, choices, edges, grid, nearest, overlay

sizes = st.integers(1, 2048)


@given(sizes)
def test_cells_cover_every_batch_size_once(max_batch: int) -> None:
    covered = [size for first, last in edges(max_batch) for size in range(first, last + 1)]
    assert covered == list(range(1, max_batch + 1))
    assert all(first <= point <= last for point, (first, last) in zip(grid(max_batch), edges(max_batch), strict=True))


@given(sizes, st.floats(0, 4096))
def test_nearest_is_the_cell_of_the_rounded_size(max_batch: int, batch: float) -> None:
    first, last = edges(max_batch)[nearest(batch, max_batch)]
    held = min(max(batch, 1.0), float(max_batch))
    assert first - 0.5 <= held <= last + 0.5


@given(st.integers(1, 300), st.data())
def test_overlay_changes_only_cells_that_differ(max_batch: int, data: st.DataObject) -> None:
    table = KTable.constant(3, max_batch)
    count = len(grid(max_batch))
    chosen = tuple(data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)))
    new = overlay(table, chosen, max_batch, monotone=False)
    assert choices(new, max_batch) == chosen
    falling = overlay(table, chosen, max_batch, monotone=True).dense()
    assert falling == sorted(falling, reverse=True)


def test_overlay_keeps_the_exact_bands_of_unchanged_cells() -> None:
    table = KTable.from_rows([[1, 50, 3], [51, 256, 1]])
    assert overlay(table, choices(table, 256), 256, monotone=True) == table


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 1000))
def test_the_best_path_is_the_best_of_all(rows: int, columns: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(rows, columns))
    path = best_path(scores)
    assert list(path) == sorted(path, reverse=True)
    falling = [p for p in product(range(columns), repeat=rows) if list(p) == sorted(p, reverse=True)]
    best = max(sum(scores[row, column] for row, column in enumerate(p)) for p in falling)
    assert sum(scores[row, column] for row, column in enumerate(path)) == pytest.approx(best)
