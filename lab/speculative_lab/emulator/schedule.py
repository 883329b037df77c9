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
    for start, end, k in validated(schedule):
        for batch in range(filled + 1, min(start - 1, max_num_seqs) + 1):
            dense[batch] = last
        last = min(k, max_k)
        for batch in range(start, min(end, max_num_seqs) + 1):
            dense[batch] = last
        filled = min(end, max_num_seqs)
    for batch in range(filled + 1, max_num_seqs + 1):
        dense[batch] = last
    return dense


def validated(schedule: object) -> list[tuple[int, int, int]]:
    """The entries sorted by their start. Raises LateError with vLLM's text for what vLLM refuses."""
    if schedule is None:
        raise LateError(f"{_NAME} is required for dynamic speculative decoding.")
    if not isinstance(schedule, list):
        raise LateError(
            f"{_NAME} must be a non-empty list of (range_start, range_end, num_speculative_tokens) entries."
        )
    if not schedule:
        raise LateError(f"{_NAME} must not be empty.")
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
    if not isinstance(raw, (list, tuple)) or len(raw) != 3:
        raise LateError(
            f"Each {_NAME} entry must be a 3-item sequence: (range_start, range_end, num_speculative_tokens)."
        )
    try:
        start, end, k = (int(cell) for cell in raw)
    except (TypeError, ValueError) as error:
        raise LateError(str(error)) from None
    if start <= 0 or end <= 0:
        raise LateError(f"Batch-size range ({start}, {end}) must be positive.")
    if start > end:
        raise LateError(f"Batch-size range start must be <= end for ({start}, {end}, {k}).")
    if k < 0:
        raise LateError(f"{_NAME} values must be >= 0.")
    return start, end, k
