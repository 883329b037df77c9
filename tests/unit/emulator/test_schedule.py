"""The table by batch size: vLLM's reading of it and its exact error texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_lab.emulator.errors import LateError
from speculative_lab.emulator.schedule import lookup
from speculative_operator.domain.table import KTable

PREFIX = "num_speculative_tokens_per_batch_size"


def test_gap_tail_and_clamp_as_vllm_computes_them() -> None:
    assert lookup([(1, 2, 4), (5, 6, 9), (8, 8, 0)], 12, 4) == [0, 4, 4, 4, 4, 4, 4, 4, 0, 0, 0, 0, 0]


def test_entries_are_sorted_and_cut_at_the_capacity() -> None:
    assert lookup([[3, 900, 1], [1, 2, 3]], 4, 3) == [0, 3, 3, 1, 1]


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (None, f"{PREFIX} is required for dynamic speculative decoding."),
        ({}, f"{PREFIX} must be a non-empty list of (range_start, range_end, num_speculative_tokens) entries."),
        ([], f"{PREFIX} must not be empty."),
        ([[1, 2]], f"Each {PREFIX} entry must be a 3-item sequence: (range_start, range_end, num_speculative_tokens)."),
        ([[0, 2, 3]], "Batch-size range (0, 2) must be positive."),
        ([[1, -2, 3]], "Batch-size range (1, -2) must be positive."),
        ([[4, 2, 3]], "Batch-size range start must be <= end for (4, 2, 3)."),
        ([[1, 2, -1]], f"{PREFIX} values must be >= 0."),
        ([[1, 4, 3], [4, 8, 1]], "Batch-size ranges must be non-overlapping and sorted."),
        (
            [[2, 4, 3]],
            "The first batch-size range must start at 1 so every runtime batch size has a defined schedule.",
        ),
    ],
)
def test_errors(schedule: object, text: str) -> None:
    with pytest.raises(LateError) as raised:
        lookup(schedule, 256, 4)
    assert str(raised.value) == text


def test_cells_that_are_no_numbers() -> None:
    with pytest.raises(LateError, match="invalid literal"):
        lookup([[1, "many", 3]], 256, 4)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), min_size=1, max_size=6), st.integers(1, 120))
def test_a_complete_table_reads_as_ours(bands: list[tuple[int, int]], max_num_seqs: int) -> None:
    rows, start = [], 1
    for width, k in bands:
        rows.append([start, start + width - 1, k])
        start += width
    dense = lookup(rows, max_num_seqs, 6)
    table = KTable.from_rows(rows)
    assert dense[1:] == [table.k_at(batch) for batch in range(1, max_num_seqs + 1)]
