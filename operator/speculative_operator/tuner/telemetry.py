"""Checks a pod's figures before the tuner learns or decides anything from them.

`absurdity`, called by quorum, names what is wrong with the engine's own counters: such a pod is left out, since absurd
figures never change anything. `believable`, called by decide() on every pod that is left, checks the telemetry beyond
these counters: steps by K and batch, drafts by position, tried blocks. It comes from another target of the pod, so it
may be missing, late or wrong by itself: then the tuner uses the window without it. Histograms of latencies are checked
where they are added (`tail`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from speculative_operator.domain.observation import BlockTotals, Comparison, PodWindow, StepCell
from speculative_operator.domain.table import KnobSpace

STALE_SECONDS = 60.0
"""A window that ended longer ago (or further in the future) than this tells nothing about now."""
LONGEST_WINDOW = 900.0
FASTEST_STEPS = 20_000.0
"""Steps per second that no engine reaches."""
FEWEST_STEPS = 1e-3
"""Steps are whole; their difference may come from a rate."""
SHORTEST_STEP = 1e-5
LONGEST_PREFILL = 1_000_000.0
"""Prompt tokens per step that no engine takes."""
LARGEST_POOL = 1e12
"""Tokens of KV memory that no pod has."""
SLACK = 1.05
"""Counters of one scrape are read at slightly different instants: relations between them hold to 5 %."""
APART = 1.5
FEW_STEPS = 20.0
"""Two targets of a pod are scraped up to an interval apart: their counts of steps agree to this factor, or so many."""
LONGEST_BLOCK = 256.0
"""Steps. A comparison counts when its last block ends: by so many for each block, more may count than a window had."""
LARGEST_SQUARE = 100.0
"""Of the difference of two logs: no block is 20,000 times as fast as the one beside it."""


def absurdity(window: PodWindow, knobs: KnobSpace) -> str | None:
    """What is absurd in the figures of `window`: no number, or a contradiction; None when all are plausible."""
    for name, value in _figures(window):
        if not math.isfinite(value) or value < 0:
            return f"{name} is {value}"
    top_k, room = max((*knobs.ks, 0)), knobs.max_batch
    seconds, steps, requests = window.seconds, window.steps, window.decode_request_steps
    gain = window.tokens_per_step
    relations = (
        (0 < seconds <= LONGEST_WINDOW, f"the window lasts {seconds:g} s"),
        (steps <= FASTEST_STEPS * seconds, f"{steps:g} steps in {seconds:g} s"),
        (not steps or steps >= FEWEST_STEPS, f"{steps:g} steps"),
        (requests <= SLACK * steps * room + room, f"{requests:g} request-steps in {steps:g} steps of <= {room}"),
        (
            window.first_tokens <= SLACK * steps * room + room,
            f"{window.first_tokens:g} first tokens in {steps:g} steps",
        ),
        (not requests or (window.step_period or 0.0) >= SHORTEST_STEP, f"a step lasts {window.step_period} s"),
        (window.step_seconds <= 2 * room * (seconds + 60), f"step periods sum to {window.step_seconds:g} s"),
        (
            window.generated_tokens <= window.first_tokens + requests * (top_k + 1.5) + room,
            f"{window.generated_tokens:g} tokens in {requests:g} request-steps at K <= {top_k}",
        ),
        (gain is None or 0.5 <= gain <= top_k + 1.5, f"{gain or 0:.2f} tokens per step at K <= {top_k}"),
        (window.prompt_tokens <= LONGEST_PREFILL * (steps + 1), f"{window.prompt_tokens:g} prompt tokens"),
        (window.kv_usage is None or window.kv_usage <= SLACK, f"KV usage is {window.kv_usage}"),
        ((window.kv_capacity_tokens or 0.0) <= LARGEST_POOL, f"KV memory of {window.kv_capacity_tokens} tokens"),
    )
    broken = next((text for holds, text in relations if not holds), None)
    return broken or _absurd_drafts(window, top_k)


def _absurd_drafts(window: PodWindow, top_k: int) -> str | None:
    drafts, tokens, accepted = (value or 0.0 for value in (window.drafts, window.draft_tokens, window.accepted_tokens))
    positions = _engine_positions(window)
    most = SLACK * window.decode_request_steps + window.first_tokens + 1
    relations = (
        (drafts <= most, f"{drafts:g} drafts in {window.decode_request_steps:g} request-steps"),
        (tokens <= SLACK * drafts * top_k, f"{tokens:g} draft tokens in {drafts:g} drafts at K <= {top_k}"),
        (accepted <= SLACK * tokens, f"{accepted:g} of {tokens:g} draft tokens accepted"),
        (all(count <= SLACK * drafts + 1 for count in positions), "a position is accepted more often than drafted"),
        (
            all(later <= SLACK * earlier + 1 for earlier, later in pairwise(positions)),
            "a later position is accepted more often than an earlier one",
        ),
    )
    return next((text for holds, text in relations if not holds), None)


def _figures(window: PodWindow) -> list[tuple[str, float]]:
    names = (
        "start",
        "end",
        "steps",
        "decode_request_steps",
        "step_seconds",
        "first_tokens",
        "generated_tokens",
        "prompt_tokens",
        "ttft_seconds",
        "running",
        "waiting",
        "preemptions",
        "kv_usage",
        "kv_capacity_tokens",
        "drafts",
        "draft_tokens",
        "accepted_tokens",
    )
    found = [(name, getattr(window, name)) for name in names if getattr(window, name) is not None]
    return found + [(f"accepted at position {j}", v) for j, v in enumerate(_engine_positions(window), start=1)]


def _engine_positions(window: PodWindow) -> tuple[float, ...]:
    """Accepted drafts by position where they are the engine's own counters, else an empty tuple. A window with drafts
    by position may have them from the plug-in, read at another instant; `believable` judges those."""
    return () if window.drafted_per_position else window.accepted_per_position


def believable(window: PodWindow, knobs: KnobSpace) -> PodWindow:
    """`window` without telemetry that contradicts itself, the knobs or the engine's own counters."""
    if window.cells and not _steps_agree(window, knobs.max_batch, max((*knobs.ks, 0))):
        window = replace(window, cells=())
    if window.drafted_per_position and not _positions_agree(window):
        window = replace(window, drafted_per_position=(), accepted_per_position=())
    if window.comparisons and not _comparisons_agree(window, knobs):
        window = replace(window, comparisons=())
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
