"""The grid of batch sizes, and tables made from choices on it."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculative_operator.domain.table import KTable
from speculative_operator.tuner.grid import best_path, choices, edges, grid, nearest, overlay

FEW = settings(max_examples=50, derandomize=True, deadline=None)
sizes = st.integers(1, 2048)


@FEW
@given(sizes)
def test_cells_cover_every_batch_size_once(max_batch: int) -> None:
    covered = [size for first, last in edges(max_batch) for size in range(first, last + 1)]
    assert covered == list(range(1, max_batch + 1))
    assert all(first <= point <= last for point, (first, last) in zip(grid(max_batch), edges(max_batch), strict=True))


@FEW
@given(sizes, st.floats(0, 4096))
def test_nearest_is_the_cell_of_the_rounded_size(max_batch: int, batch: float) -> None:
    first, last = edges(max_batch)[nearest(batch, max_batch)]
    held = min(max(batch, 1.0), float(max_batch))
    assert first - 0.5 <= held <= last + 0.5


@FEW
@given(st.integers(1, 300), st.data())
def test_overlay_changes_only_cells_that_differ(max_batch: int, data: st.DataObject) -> None:
    table = KTable.constant(3, max_batch)
    count = len(grid(max_batch))
    chosen = tuple(data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)))
    new = overlay(table, chosen, max_batch)
    assert choices(new, max_batch) == chosen
    assert new.max_batch == max_batch


def test_overlay_keeps_the_exact_bands_of_unchanged_cells() -> None:
    table = KTable.from_rows([[1, 50, 3], [51, 256, 1]])
    assert overlay(table, choices(table, 256), 256) == table
    lowered = tuple(0 if point > 200 else k for point, k in zip(grid(256), choices(table, 256), strict=True))
    assert overlay(table, lowered, 256).k_at(50) == 3
    assert overlay(table, lowered, 256).k_at(51) == 1


def worth(scores: np.ndarray, path: tuple[int, ...], rise: float) -> float:
    rises = sum(later > earlier for earlier, later in pairwise(path))
    return float(sum(scores[row, column] for row, column in enumerate(path))) - rise * rises


@FEW
@given(st.integers(1, 5), st.integers(1, 4), st.sampled_from([0.0, 0.02, 0.5, 1e9]), st.integers(0, 1000))
def test_the_best_path_is_the_best_of_all(rows: int, columns: int, rise: float, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(rows, columns))
    best = max(worth(scores, path, rise) for path in product(range(columns), repeat=rows))
    assert worth(scores, best_path(scores, rise), rise) == pytest.approx(best)


def test_a_rise_that_is_dear_never_happens_and_a_free_one_follows_the_scores() -> None:
    scores = np.random.default_rng(3).normal(size=(40, 5))
    assert list(best_path(scores, 1e9)) == sorted(best_path(scores, 1e9), reverse=True)
    assert best_path(scores, 0.0) == tuple(np.argmax(scores, axis=1).tolist())
