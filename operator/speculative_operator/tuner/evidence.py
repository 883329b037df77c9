"""Checks that a pod's figures must pass before the tuner learns or decides anything from them.

Called by quorum. Figures that fail a check are named and left out: absurd figures never change anything.
"""

from __future__ import annotations

import math
from itertools import pairwise

from speculative_operator.domain.knobs import KnobSpace
from speculative_operator.domain.observation import PodWindow

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
    by position may have them from the plug-in, read at another instant; `telemetry` judges those."""
    return () if window.drafted_per_position else window.accepted_per_position
