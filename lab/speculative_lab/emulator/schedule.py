"""The table `num_speculative_tokens_per_batch_size` as vLLM 0.32 reads it: errors, gaps, clamping (pure).

Used by `config.EngineConfig.lookup` when the weights are "loaded": vLLM validates it that late.
"""

from __future__ import annotations

from speculative_lab.emulator.errors import LateError

_NAME = "num_speculative_tokens_per_batch_size"


def lookup(schedule: object, max_num_seqs: int, max_k: int) -> list[int]:
    """K for each number of scheduled requests: a list of length `max_num_seqs + 1`, index 0 unused.

    Gaps and the tail carry the K before them; a K above `max_k` is clamped, silently. Raises LateError with vLLM's
    text.
    """
    dense = [0] * (max_num_seqs + 1)
    filled, last = 0, 0
    for start, end, k in _validated(schedule):
        for batch in range(filled + 1, min(start - 1, max_num_seqs) + 1):
            dense[batch] = last
        last = min(k, max_k)
        for batch in range(start, min(end, max_num_seqs) + 1):
            dense[batch] = last
        filled = min(end, max_num_seqs)
    for batch in range(filled + 1, max_num_seqs + 1):
        dense[batch] = last
    return dense


def _validated(schedule: object) -> list[tuple[int, int, int]]:
    """The entries sorted by their start."""
    if not isinstance(schedule, list) or not schedule:
        raise LateError(
            f"{_NAME} must be a non-empty list of (range_start, range_end, num_speculative_tokens) entries."
        )
    entries = sorted((_entry(raw) for raw in schedule), key=lambda entry: entry[0])
    previous = 0
    for start, end, _ in entries:
        if start <= previous:
            raise LateError("Batch-size ranges must be non-overlapping and sorted.")
        previous = end
    if entries[0][0] != 1:
        raise LateError(
            "The first batch-size range must start at 1 so every runtime batch size has a defined schedule."
        )
    return entries


def _entry(raw: object) -> tuple[int, int, int]:
    if not isinstance(raw, list) or len(raw) != 3 or not all(type(cell) is int for cell in raw):
        raise LateError(
            f"Each {_NAME} entry must be a 3-item sequence: (range_start, range_end, num_speculative_tokens)."
        )
    start, end, k = raw
    if not 1 <= start <= end or k < 0:
        raise LateError(f"Batch-size range ({start}, {end}, {k}) must be positive and rise, with K of 0 or more.")
    return start, end, k
