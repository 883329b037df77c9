"""The payload's series -> exact cells, survival and acknowledgement of a window. Called by `reading`.

They come from another port of the same pod, hence another scrape target with other instants than vLLM's: their piece
runs from the last of their scrapes before a window's start to the last one before its end, so that pieces of joining
windows join. They only ever add to a window: where they are missing, stale, partial or absurd it stays as it was.
Names and meanings: docs/metrics.md, "Step telemetry of the payload".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from speculative_operator.domain.observation import PodWindow, Series, StepCell
from speculative_operator.engines.samples import EXACT_BELOW, SAME_SCRAPE_SECONDS, Need, UnreadableError
from speculative_operator.engines.targets import one_target

PREFIX = "speculative_payload_"
INFO = f"{PREFIX}info"
TABLE_VERSION = f"{PREFIX}table_version"
TABLE_SINCE = f"{PREFIX}table_applied_timestamp_seconds"
STEPS = f"{PREFIX}steps_total"
SECONDS = f"{PREFIX}step_seconds_total"
REQUESTS = f"{PREFIX}requests_total"
TOKENS = f"{PREFIX}tokens_total"
PREFILL = f"{PREFIX}prefill_tokens_total"
DRAFTED = f"{PREFIX}drafted_tokens_total"
ACCEPTED = f"{PREFIX}accepted_tokens_total"

_CELL = (STEPS, SECONDS, REQUESTS, TOKENS, PREFILL)
NAMES: tuple[str, ...] = (INFO, TABLE_VERSION, *_CELL, DRAFTED, ACCEPTED)
"""What is asked of Prometheus. TABLE_SINCE is for people: the operator only needs to know which version is in force."""

_NEED = Need((INFO,), gauges=frozenset({TABLE_VERSION}), infos=frozenset({INFO}))
_SLACK_SECONDS = 5.0
"""By this much steps may have taken longer than passed between scrapes: one that began before ends within."""
_LARGEST_K = 128
_VERSION_LENGTH = 64


class _UnusableError(Exception):
    """Why the payload's series add nothing."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Scrapes of the payload from `start` to `end` (unix seconds) and its series."""

    tracks: Sequence[Series]
    start: float
    end: float


def extended(window: PodWindow, series: Sequence[Series], stale_after: float) -> PodWindow:
    """`window` with what `series` (of this pod, of NAMES) tell beside it; the same window where they tell nothing."""
    try:
        own = one_target(series, stale_after, _NEED)
    except UnreadableError:
        return window
    info = max((track for track in own if track.name == INFO and track.samples), key=_last, default=None)
    if info is None or abs(window.end - _last(info)) > stale_after:
        return window
    live = {"true": True, "false": False}.get(info.labels.get("live", ""))
    if live is None:
        return window
    told = replace(
        window,
        live=live,
        table_version=_table_version(own, _last(info)),
        engine_version=info.labels.get("engine_version", "")[:_VERSION_LENGTH],
    )
    piece = _piece(own, window)
    if piece is None:
        return told
    try:
        return _counted(told, piece)
    except _UnusableError:
        return told


def _last(track: Series) -> float:
    return max(time for time, _ in track.samples)


def _table_version(tracks: Iterable[Series], newest: float) -> int | None:
    values = [_value(track, newest) for track in tracks if track.name == TABLE_VERSION]
    known = [value for value in values if value is not None]
    if len(known) != 1 or not 0 <= known[0] < EXACT_BELOW or known[0] != int(known[0]):
        return None
    return int(known[0])


def _piece(tracks: Sequence[Series], window: PodWindow) -> _Piece | None:
    """None where fewer than two scrapes bound the window."""
    scrapes = sorted({time for track in tracks if track.name == INFO for time, _ in track.samples})
    until = [time for time in scrapes if time <= window.end + SAME_SCRAPE_SECONDS]
    before = [time for time in until if time <= window.start + SAME_SCRAPE_SECONDS]
    if not until:
        return None
    start = before[-1] if before else until[0]
    return _Piece(tracks, start, until[-1]) if until[-1] > start else None


def _counted(window: PodWindow, piece: _Piece) -> PodWindow:
    """Raises _UnusableError when a series is missing, has fallen or contradicts another one."""
    cells = tuple(_cells(piece))
    drafted, accepted = _positions(piece, len(window.accepted_per_position))
    if sum(cell.seconds for cell in cells) > piece.end - piece.start + _SLACK_SECONDS:
        raise _UnusableError("more seconds of steps than passed")
    if window.drafts is None or not any(drafted):
        return replace(window, cells=cells)
    return replace(window, cells=cells, accepted_per_position=accepted, drafted_per_position=drafted)


def _cells(piece: _Piece) -> Iterator[StepCell]:
    grown = {name: _growth(piece, name, "k", "batch") for name in _CELL}
    for key in sorted(set[tuple[str, str]]().union(*grown.values())):
        if not all(key in grown[name] for name in _CELL):
            raise _UnusableError(f"not all figures of the cell {key}")
        k, upper = _whole(key[0]), _bucket(key[1])
        steps, seconds, requests, tokens, prefill = (grown[name][key] for name in _CELL)
        if not steps and not (seconds or requests or tokens):
            continue
        cell = StepCell(k, requests / steps if steps else 0.0, steps, seconds, tokens, prefill)
        # a scrape may fall between two figures only in another process than this payload: then nothing is exact
        if seconds <= 0 or not steps <= requests <= steps * upper or tokens > requests * (k + 1):
            raise _UnusableError(f"{cell} contradicts itself")
        yield cell


def _positions(piece: _Piece, length: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Drafted and accepted by position over all K, both `length` long or as long as positions are told."""
    drafted, accepted = (_growth(piece, name, "k", "position") for name in (DRAFTED, ACCEPTED))
    if set(drafted) != set(accepted):
        raise _UnusableError("positions drafted and accepted differ")
    by_k: dict[int, dict[int, tuple[float, float]]] = {}
    for (k, position), count in drafted.items():
        by_k.setdefault(_whole(k), {})[_whole(position)] = (count, accepted[k, position])
    for figures in by_k.values():
        _check_positions(figures)
    longest = max([length, *(position + 1 for figures in by_k.values() for position in figures)])
    sums = [
        tuple(math.fsum(figures.get(position, (0.0, 0.0))[side] for figures in by_k.values()) for side in (0, 1))
        for position in range(longest)
    ]
    return tuple(drafts for drafts, _ in sums), tuple(hits for _, hits in sums)


def _check_positions(figures: Mapping[int, tuple[float, float]]) -> None:
    """A draft is verified from its first token on, and accepted up to the first rejection."""
    if set(figures) != set(range(len(figures))):
        raise _UnusableError("a position is missing")
    rows = [figures[position] for position in range(len(figures))]
    if any(accepted > drafted for drafted, accepted in rows):
        raise _UnusableError("more accepted than drafted")
    if any(after[0] > before[0] or after[1] > before[1] for before, after in pairwise(rows)):
        raise _UnusableError("a position exceeds the one before it")


def _growth(piece: _Piece, name: str, first: str, second: str) -> dict[tuple[str, str], float]:
    """Growth between the piece's scrapes by two labels. A label set that is new began at 0: the process was there."""
    grown: dict[tuple[str, str], float] = {}
    for track in piece.tracks:
        if track.name != name:
            continue
        key = (track.labels.get(first, ""), track.labels.get(second, ""))
        if key in grown:
            raise _UnusableError(f"{name} {key} twice")
        increase = _increase(track, piece)
        if increase is not None:
            grown[key] = increase
    return grown


def _increase(track: Series, piece: _Piece) -> float | None:
    """None for a label set that appears only after the piece."""
    low, high = piece.start - SAME_SCRAPE_SECONDS, piece.end + SAME_SCRAPE_SECONDS
    inside = sorted((time, value) for time, value in track.samples if low <= time <= high)
    if not inside:
        if any(time < low for time, _ in track.samples):
            raise _UnusableError(f"{track.name} has ended")
        return None
    values = [value for _, value in inside]
    if inside[-1][0] < piece.end - SAME_SCRAPE_SECONDS:
        raise _UnusableError(f"{track.name} has ended")
    if inside[0][0] > piece.start + SAME_SCRAPE_SECONDS:
        values.insert(0, 0.0)
    if not all(0 <= value < EXACT_BELOW for value in values) or any(b < a for a, b in pairwise(values)):
        raise _UnusableError(f"{track.name} fell or is no count")
    return values[-1] - values[0]


def _value(track: Series, time: float) -> float | None:
    return next((value for seen, value in track.samples if abs(seen - time) <= SAME_SCRAPE_SECONDS), None)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) <= _LARGEST_K):
        raise _UnusableError(f"label {text!r} is no K or position")
    return int(text)


def _bucket(text: str) -> float:
    if text == "+Inf":
        return math.inf
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) > 0):
        raise _UnusableError(f"label {text!r} is no batch")
    return float(text)
