"""The payload's counters between the two of its scrapes that bound a window, and the comparisons that its tried
blocks give. Used by `telemetry`.

They come from another port of the same pod, hence another scrape target with other instants than vLLM's: their piece
runs from the last of their scrapes before a window's start to the last one before its end, so that pieces of joining
windows join.

A tried block of steps at a candidate stands between two blocks at the active K: docs/metrics.md, "Tried blocks", has
the names and what counts. Label sets of a table that is no longer active may go away with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speculative_operator.domain.observation import BlockTotals, Comparison, PodWindow, Series
from speculative_operator.engines.samples import SAME_SCRAPE_SECONDS, UnusableError, growth

PREFIX = "speculative_payload_"
INFO = f"{PREFIX}info"
_LONGEST_LABEL = 5


@dataclass(frozen=True, slots=True)
class Piece:
    """Scrapes of the payload from `start` to `end` (unix seconds) and its series."""

    tracks: Sequence[Series]
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Row:
    """What several counters with the same labels grew by in a piece."""

    figures: tuple[float, ...]
    new: bool
    """The label set appeared within the piece, where it began at 0: the process was there."""


def piece_of(tracks: Sequence[Series], window: PodWindow) -> Piece | None:
    """The piece of `tracks` that belongs to `window`, between two scrapes of INFO; None with fewer than two."""
    scrapes = sorted({time for track in tracks if track.name == INFO for time, _ in track.samples})
    until = [time for time in scrapes if time <= window.end + SAME_SCRAPE_SECONDS]
    before = [time for time in until if time <= window.start + SAME_SCRAPE_SECONDS]
    if not until:
        return None
    start = before[-1] if before else until[0]
    return Piece(tracks, start, until[-1]) if until[-1] > start else None


def rows(piece: Piece, names: Sequence[str], labels: Sequence[str]) -> dict[tuple[str, ...], Row]:
    """Growth of the counters `names` by the values of `labels`. A label set that is no longer exported is passed over.

    Raises UnusableError when a counter has fallen or is no count, and when it lacks a label set, or begins it at
    another scrape, that the others have: then a scrape was read by half.
    """
    columns = [_column(piece, name, labels) for name in names]
    found = {}
    for key in sorted(set[tuple[str, ...]]().union(*columns)):
        cells = [column[key] for column in columns if key in column]
        if len(cells) < len(names) or len({new for _, new in cells}) > 1:
            raise UnusableError(f"not all figures of {key}")
        found[key] = Row(tuple(grown for grown, _ in cells), cells[0][1])
    return found


def whole(text: str, most: int) -> int:
    """A label that is a whole number of at most `most`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_LABEL and int(text) <= most):
        raise UnusableError(f"label {text!r} is no number up to {most}")
    return int(text)


def _column(piece: Piece, name: str, labels: Sequence[str]) -> dict[tuple[str, ...], tuple[float, bool]]:
    grown: dict[tuple[str, ...], tuple[float, bool]] = {}
    for track in piece.tracks:
        if track.name != name:
            continue
        key = tuple(track.labels.get(label, "") for label in labels)
        if key in grown:
            raise UnusableError(f"{name} {key} twice")
        increase = growth(track, piece.start, piece.end)
        if increase is not None:
            grown[key] = increase
    return grown


_OF_BLOCKS = tuple(f"{PREFIX}tried_{name}_total" for name in ("blocks", "seconds_square", "tokens_square"))
_TOTALS = ("steps", "step_seconds", "requests", "request_seconds", "tokens", "decode_steps", "decode_step_seconds")
_OF_STEPS = tuple(f"{PREFIX}tried_{name}_total" for name in _TOTALS)
TRIED_NAMES: tuple[str, ...] = (*_OF_BLOCKS, *_OF_STEPS)
"""Series of a window's comparisons: seventeen for each label set."""
TRIED_LABELS = ("k", "against", "first", "last")
SIDE = "side"
LARGEST_K = 128
_MOST_REQUESTS = 99_999


def comparisons(piece: Piece) -> tuple[Comparison, ...]:
    """Comparisons of the piece, by label set. Raises UnusableError where series are missing or have fallen."""
    blocks = rows(piece, _OF_BLOCKS, TRIED_LABELS)
    sides = rows(piece, _OF_STEPS, (*TRIED_LABELS, SIDE))
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
