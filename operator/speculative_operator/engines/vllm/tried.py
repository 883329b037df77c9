"""The payload's counters of tried blocks -> comparisons of a window. Called by `telemetry`.

A block of steps at a candidate stands between two blocks at the active K: docs/metrics.md, "Tried blocks", has the
names and what counts. Label sets of a table that is no longer active may go away with it.
"""

from __future__ import annotations

from speculative_operator.domain.observation import BlockTotals, Comparison
from speculative_operator.engines.vllm.pieces import PREFIX, Piece, Row, UnusableError, rows, whole

_OF_BLOCKS = tuple(f"{PREFIX}tried_{name}_total" for name in ("blocks", "seconds_square", "tokens_square"))
_TOTALS = ("steps", "step_seconds", "requests", "request_seconds", "tokens", "decode_steps", "decode_step_seconds")
_OF_STEPS = tuple(f"{PREFIX}tried_{name}_total" for name in _TOTALS)
NAMES: tuple[str, ...] = (*_OF_BLOCKS, *_OF_STEPS)
"""Series of a window's comparisons: seventeen for each label set."""
LABELS = ("k", "against", "first", "last")
SIDE = "side"
LARGEST_K = 128
_MOST_REQUESTS = 99_999


def comparisons(piece: Piece) -> tuple[Comparison, ...]:
    """Comparisons of the piece, by label set. Raises UnusableError where series are missing or have fallen."""
    blocks = rows(piece, _OF_BLOCKS, LABELS, may_end=True)
    sides = rows(piece, _OF_STEPS, (*LABELS, SIDE), may_end=True)
    if set(sides) != {(*key, side) for key in blocks for side in ("tried", "beside")}:
        raise UnusableError("blocks and their steps differ")
    found = (_comparison(key, row, sides[(*key, "tried")], sides[(*key, "beside")]) for key, row in blocks.items())
    return tuple(one for one in found if one is not None)


def _comparison(key: tuple[str, ...], row: Row, tried: Row, beside: Row) -> Comparison | None:
    """One comparison; None where the piece has none."""
    if len({row.new, tried.new, beside.new}) > 1:
        raise UnusableError(f"not all figures of {key}")
    if not any((*row.figures, *tried.figures, *beside.figures)):
        return None
    blocks, seconds_square, tokens_square = row.figures
    k, against = (whole(text, LARGEST_K) for text in key[:2])
    first, last = (whole(text, _MOST_REQUESTS) for text in key[2:])
    return Comparison(
        k,
        against,
        first,
        last,
        blocks,
        BlockTotals(*tried.figures),
        BlockTotals(*beside.figures),
        seconds_square,
        tokens_square,
    )
