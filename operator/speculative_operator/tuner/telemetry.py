"""What an engine tells beyond its own counters: steps by K and batch, drafts by position. Used where it can be true.

Called by decide() on every believed observation. Telemetry comes from another target of the pod than the counters, so
it may be missing, late or wrong by itself: then the window is taken as if it had none.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from speculative_operator.domain.knobs import KnobSpace
from speculative_operator.domain.observation import PodWindow, StepCell
from speculative_operator.tuner.evidence import FASTEST_STEPS, SHORTEST_STEP, SLACK

APART = 1.5
FEW_STEPS = 20.0
"""Two targets of a pod are scraped up to an interval apart: their counts of steps agree to this factor, or so many."""


def believable(window: PodWindow, knobs: KnobSpace) -> PodWindow:
    """`window` without telemetry that contradicts itself, the knobs or the engine's own counters."""
    if window.cells and not _steps_agree(window, knobs.max_batch, max((*knobs.ks, 0))):
        window = replace(window, cells=())
    if window.drafted_per_position and not _positions_agree(window):
        window = replace(window, drafted_per_position=(), accepted_per_position=())
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
