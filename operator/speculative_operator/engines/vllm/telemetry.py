"""The payload's series -> exact cells, survival and acknowledgement of a window. Called by `reading`.

They only ever add to a window: where they are missing, stale, partial or absurd it stays as it was. Names and meanings:
docs/metrics.md, "Step telemetry of the payload".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from speculative_operator.domain.observation import PodWindow, Series, StepCell
from speculative_operator.engines.samples import EXACT_BELOW, SAME_SCRAPE_SECONDS, Need, UnreadableError, UnusableError
from speculative_operator.engines.shared.reading import of_the_same_target, one_target
from speculative_operator.engines.vllm import pieces
from speculative_operator.engines.vllm.pieces import INFO, PREFIX, Piece, piece_of, rows, whole

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
OFF = f"{PREFIX}off"
"""Parts that turned themselves off, and why; the part `Hooks` names what of the engine the payload lacks."""
NAMES: tuple[str, ...] = (INFO, TABLE_VERSION, OFF, *_CELL, DRAFTED, ACCEPTED, *pieces.TRIED_NAMES)
"""Series that a query asks for. TABLE_SINCE is for people: the operator needs only the version of the active table."""

_TRIED = frozenset(pieces.TRIED_NAMES)
_NEED = Need((INFO,), gauges=frozenset({TABLE_VERSION}), infos=frozenset({INFO, OFF}))
_SLACK_SECONDS = 5.0
"""By this much steps may have taken longer than passed between scrapes: one that began before ends within."""
_VERSION_LENGTH, _REASON_LENGTH = 64, 200


def extend(window: PodWindow, series: Sequence[Series], stale_after: float) -> PodWindow:
    """`window` with what `series` (of this pod, of NAMES) tell beside it; the same window where they tell nothing."""
    of_tries = [track for track in series if track.name in _TRIED]
    try:
        own = one_target([track for track in series if track.name not in _TRIED], stale_after, _NEED)
    except UnreadableError:
        return window
    info = max((track for track in own if track.name == INFO and track.samples), key=_last, default=None)
    if info is None or abs(window.end - (newest := _last(info))) > stale_after:
        return window
    live = {"true": True, "false": False}.get(info.labels.get("live", ""))
    if live is None:
        return window
    counted = replace(
        window,
        live=live,
        inert="" if live else _why_inert(info, own),
        table_version=_table_version(own, newest),
        engine_version=info.labels.get("engine_version", "")[:_VERSION_LENGTH],
    )
    piece = piece_of(own, window)
    if piece is None:
        return counted
    beside = Piece(of_the_same_target(own, of_tries), piece.start, piece.end)
    return _add_counts(_add_comparisons(counted, beside), piece)


def _why_inert(info: Series, tracks: Iterable[Series]) -> str:
    hooks = (one.labels.get("reason", "") for one in tracks if one.name == OFF and one.labels.get("part") == "Hooks")
    told = (info.labels.get("reason", ""), next(hooks, ""))
    return " ".join(": ".join(filter(None, told)).split())[:_REASON_LENGTH]


def _add_comparisons(window: PodWindow, piece: Piece) -> PodWindow:
    try:
        return replace(window, comparisons=pieces.comparisons(piece))
    except UnusableError:
        return window


def _last(track: Series) -> float:
    return max(time for time, _ in track.samples)


def _table_version(tracks: Iterable[Series], newest: float) -> int | None:
    values = [_value(track, newest) for track in tracks if track.name == TABLE_VERSION]
    known = [value for value in values if value is not None]
    if len(known) != 1 or not 0 <= known[0] < EXACT_BELOW or known[0] != int(known[0]):
        return None
    return int(known[0])


def _add_counts(window: PodWindow, piece: Piece) -> PodWindow:
    """`window` with cells and survival; unchanged where a series is missing, has fallen or contradicts another one."""
    try:
        cells = tuple(_cells(piece))
        drafted, accepted = _positions(piece, len(window.accepted_per_position))
    except UnusableError:
        return window
    if sum(cell.seconds for cell in cells) > piece.end - piece.start + _SLACK_SECONDS:
        return window
    if window.drafts is None or not any(drafted):
        return replace(window, cells=cells)
    return replace(window, cells=cells, accepted_per_position=accepted, drafted_per_position=drafted)


def _cells(piece: Piece) -> Iterator[StepCell]:
    for key, row in rows(piece, _CELL, ("k", "batch")).items():
        k, upper = whole(key[0], pieces.LARGEST_K), _bucket(key[1])
        steps, seconds, requests, tokens, prefill = row.figures
        if not steps and not (seconds or requests or tokens):
            continue
        cell = StepCell(k, requests / steps if steps else 0.0, steps, seconds, tokens, prefill)
        # a scrape may fall between two figures only in another process than this payload: then nothing is exact
        if seconds <= 0 or not steps <= requests <= steps * upper or tokens > requests * (k + 1):
            raise UnusableError(f"{cell} contradicts itself")
        yield cell


def _positions(piece: Piece, length: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(drafted, accepted) tokens by position, summed over all K; at least `length` positions each."""
    by_k: dict[int, dict[int, tuple[float, float]]] = {}
    for (k, position), row in rows(piece, (DRAFTED, ACCEPTED), ("k", "position")).items():
        drafted, accepted = row.figures
        by_k.setdefault(whole(k, pieces.LARGEST_K), {})[whole(position, pieces.LARGEST_K)] = (drafted, accepted)
    for figures in by_k.values():
        _check_positions(figures)
    longest = max([length, *(position + 1 for figures in by_k.values() for position in figures)])
    sums = [
        tuple(math.fsum(figures.get(position, (0.0, 0.0))[side] for figures in by_k.values()) for side in (0, 1))
        for position in range(longest)
    ]
    return tuple(drafts for drafts, _ in sums), tuple(hits for _, hits in sums)


def _check_positions(figures: Mapping[int, tuple[float, float]]) -> None:
    """Raises UnusableError unless counts only fall by position: acceptance ends at the first rejected token."""
    if set(figures) != set(range(len(figures))):
        raise UnusableError("a position is missing")
    rows = [figures[position] for position in range(len(figures))]
    if any(accepted > drafted for drafted, accepted in rows):
        raise UnusableError("more accepted than drafted")
    if any(after[0] > before[0] or after[1] > before[1] for before, after in pairwise(rows)):
        raise UnusableError("a position exceeds the one before it")


def _value(track: Series, time: float) -> float | None:
    return next((value for seen, value in track.samples if abs(seen - time) <= SAME_SCRAPE_SECONDS), None)


def _bucket(text: str) -> float:
    if text == "+Inf":
        return math.inf
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) > 0):
        raise UnusableError(f"label {text!r} is no batch")
    return float(text)
