"""Checks telemetry beyond the engine's own counters: steps by K and batch, drafts by position, tried blocks, latencies
of requests.

Called by decide() on every believed observation. Telemetry comes from another target of the pod than the counters, so
it may be missing, late or wrong by itself: then the tuner uses the window without it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from speculative_operator.domain.knobs import KnobSpace
from speculative_operator.domain.observation import BlockTotals, Comparison, Histogram, PodWindow, StepCell
from speculative_operator.tuner.evidence import FASTEST_STEPS, SHORTEST_STEP, SLACK

APART = 1.5
FEW_STEPS = 20.0
"""Two targets of a pod are scraped up to an interval apart: their counts of steps agree to this factor, or so many."""
LONGEST_BLOCK = 256.0
"""Steps. A comparison counts when its last block ends: by so many for each block, more may count than a window had."""
LARGEST_SQUARE = 100.0
"""Of the difference of two logs: no block is 20,000 times as fast as the one beside it."""


def believable(window: PodWindow, knobs: KnobSpace) -> PodWindow:
    """`window` without telemetry that contradicts itself, the knobs or the engine's own counters."""
    if window.cells and not _steps_agree(window, knobs.max_batch, max((*knobs.ks, 0))):
        window = replace(window, cells=())
    if window.drafted_per_position and not _positions_agree(window):
        window = replace(window, drafted_per_position=(), accepted_per_position=())
    if window.comparisons and not _comparisons_agree(window, knobs):
        window = replace(window, comparisons=())
    if not _is_histogram(window.tpot_histogram):
        window = replace(window, tpot_histogram=())
    if not _is_histogram(window.ttft_histogram):
        window = replace(window, ttft_histogram=())
    return window


def behind(window: PodWindow, version: int | None) -> bool:
    """True when the pod is known to run an older table than the one of `version`."""
    return version is not None and window.table_version is not None and window.table_version < version


def _steps_agree(window: PodWindow, room: int, top_k: int) -> bool:
    if not all(_possible(cell, room, top_k) for cell in window.cells):
        return False
    steps = math.fsum(cell.steps for cell in window.cells)
    return steps <= APART * window.steps + FEW_STEPS and window.steps <= APART * steps + FEW_STEPS


def _possible(cell: StepCell, room: int, top_k: int) -> bool:
    figures = (cell.k, cell.batch, cell.steps, cell.seconds, cell.tokens, cell.prefill_tokens)
    return (
        all(math.isfinite(value) and value >= 0 for value in figures)
        and cell.k <= top_k
        and cell.batch <= SLACK * room + 1
        and SHORTEST_STEP * cell.steps <= cell.seconds
        and cell.steps <= FASTEST_STEPS * max(cell.seconds, 1.0)
        and cell.tokens <= SLACK * cell.steps * (cell.batch * (cell.k + 1) + 1) + room
    )


def _positions_agree(window: PodWindow) -> bool:
    drafted, accepted = window.drafted_per_position, window.accepted_per_position
    if len(drafted) != len(accepted) or not all(math.isfinite(count) and count >= 0 for count in (*drafted, *accepted)):
        return False
    rarer = all(later <= SLACK * earlier + 1 for counts in (drafted, accepted) for earlier, later in pairwise(counts))
    return rarer and all(taken <= SLACK * tried + 1 for tried, taken in zip(drafted, accepted, strict=True))


def _comparisons_agree(window: PodWindow, knobs: KnobSpace) -> bool:
    if not all(_comparable(one, knobs) for one in window.comparisons):
        return False
    tried = math.fsum(one.trial.steps for one in window.comparisons)
    beside = math.fsum(one.beside.steps for one in window.comparisons)
    most = APART * window.steps + FEW_STEPS + LONGEST_BLOCK
    # a block at the active K stands beside the tried one before it and the one after it
    return tried <= most and beside <= 2 * most


def _comparable(one: Comparison, knobs: KnobSpace) -> bool:
    squares = (one.seconds_square, one.tokens_square)
    return (
        all(math.isfinite(value) and value >= 0 for value in (one.blocks, *squares))
        and 0 < one.blocks <= min(one.trial.steps, one.beside.steps)
        and all(square <= LARGEST_SQUARE * one.blocks for square in squares)
        and {one.k, one.against} <= set(knobs.ks)
        and one.k != one.against
        and 1 <= one.first <= one.last <= knobs.max_batch
        and _possible_blocks(one.trial, one.k, knobs.max_batch)
        and _possible_blocks(one.beside, one.against, knobs.max_batch)
    )


def _possible_blocks(totals: BlockTotals, k: int, room: int) -> bool:
    figures = (totals.steps, totals.seconds, totals.requests, totals.request_seconds, totals.tokens)
    return (
        all(math.isfinite(value) and value > 0 for value in figures)
        and all(math.isfinite(value) and value >= 0 for value in (totals.decode_steps, totals.decode_seconds))
        and totals.decode_steps <= SLACK * totals.steps
        and SHORTEST_STEP * totals.decode_steps <= totals.decode_seconds <= SLACK * totals.seconds
        and totals.steps <= SLACK * totals.requests
        and totals.requests <= SLACK * room * totals.steps
        and totals.seconds <= SLACK * totals.request_seconds
        and totals.request_seconds <= SLACK * room * totals.seconds
        and SHORTEST_STEP * totals.steps <= totals.seconds
        and totals.tokens <= SLACK * totals.requests * (k + 1)
    )


def _is_histogram(histogram: Histogram) -> bool:
    """True where bounds ascend to infinity and counts are possible; also for an empty histogram."""
    bounds = [bound for bound, _ in histogram]
    return (
        all(bound > 0 for bound in bounds)
        and all(earlier < later for earlier, later in pairwise(bounds))
        and (not bounds or bounds[-1] == math.inf)
        and all(math.isfinite(count) and count >= 0 for _, count in histogram)
    )
