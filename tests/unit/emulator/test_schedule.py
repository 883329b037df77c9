"""The table by batch size: vLLM's reading of it, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_lab.emulator.errors import LateError
from speculative_lab.emulator.schedule import lookup
from speculative_operator.domain.table import KTable


def test_gap_tail_and_clamp_as_vllm_computes_them() -> None:
    assert lookup([[8, 8, 0], [5, 6, 9], [1, 2, 4]], 12, 4) == [0, 4, 4, 4, 4, 4, 4, 4, 0, 0, 0, 0, 0]
    assert lookup([[3, 900, 1], [1, 2, 3]], 4, 3) == [0, 3, 3, 1, 1]


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ({}, "must be a non-empty list"),
        ([], "must be a non-empty list"),
        ([[1, 2]], "3-item sequence"),
        ([[1, "many", 3]], "3-item sequence"),
        ([[0, 2, 3]], "must be positive"),
        ([[4, 2, 3]], "must be positive and rise"),
        ([[1, 2, -1]], "K of 0 or more"),
        ([[1, 4, 3], [4, 8, 1]], "non-overlapping"),
        ([[2, 4, 3]], "must start at 1"),
    ],
)
def test_errors(schedule: object, text: str) -> None:
    with pytest.raises(LateError, match=text):
        lookup(schedule, 256, 4)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), min_size=1, max_size=6), st.integers(1, 120))
def test_a_complete_table_reads_as_ours(bands: list[tuple[int, int]], max_num_seqs: int) -> None:
    rows, start = [], 1
    for width, k in bands:
        rows.append([start, start + width - 1, k])
        start += width
    dense = lookup(rows, max_num_seqs, 6)
    table = KTable.from_rows(rows)
    assert dense[1:] == [table.k_at(batch) for batch in range(1, max_num_seqs + 1)]
