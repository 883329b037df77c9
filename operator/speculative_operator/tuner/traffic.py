"""Describes the load: one look pooled over replicas, and a fading memory of looks.

Called by decide() (figures of the estimate) and learning. All replicas run one table, so their windows are pooled;
means over requests are weighted by request-steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from statistics import median
from typing import Any

from speculative_operator.domain.observation import BlockTotals, Comparison, PodWindow
from speculative_operator.tuner.grid import grid, nearest
from speculative_operator.tuner.prior import CONTEXT_TOKENS, PROMPT_RATIO
from speculative_operator.tuner.request_time import MEMORY_FULL, TimeShares

TRAFFIC_SECONDS = 60.0
"""Time constant of context and prompt share: they steer a prediction, and should follow the load."""
LOAD_SECONDS = 600.0
"""Time constant of the load histogram: the table prepares for the loads of the last ten minutes."""
HISTORY_SECONDS = 3600.0
"""Time constant of the histogram of the last hour, on which rollouts are decided."""
COMMON = 0.2
"""Share of a window's time from which a load counts as a present load."""
MOST_CONTEXT = 1e7
MOST_RATIO = 1e4
HEAVIEST = 3.0
"""No pod counts for more than so many pods of median load; of three pods for no more than two."""
_COUNTS = (
    "steps", "decode_request_steps", "step_seconds", "ttft_seconds", "queue_seconds", "first_tokens",
    "generated_tokens", "prompt_tokens", "drafts", "draft_tokens", "accepted_tokens",
)  # fmt: skip
_POSITIONS = ("accepted_per_position", "drafted_per_position")
_HISTOGRAMS = ("tpot_histogram", "ttft_histogram")
_OF_CELLS = ("steps", "seconds", "tokens", "prefill_tokens")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Recent load of the pods: contexts, prompts, loads and where requests spend their time."""

    context: float = CONTEXT_TOKENS
    prompt_ratio: float = PROMPT_RATIO
    """Prompt tokens computed per output token."""
    generated: float = 2000.0
    """Output tokens that `prompt_ratio` rests on, faded; at first the weight of its prior."""
    draft_share: float = 1.0
    """Drafted tokens per request-step over K: below 1 where drafts are looked up and not always found."""
    load: tuple[float, ...] = ()
    """Seconds spent at each grid point, faded."""
    history: tuple[float, ...] = ()
    """Seconds spent at each grid point, faded over an hour."""
    pressed: float = 0.0
    """Share of the last hour's time in which requests waited for KV memory."""
    shares: TimeShares = field(default_factory=TimeShares)
    """Where requests spend their time."""


@dataclass(frozen=True, slots=True)
class Look:
    """One observation pooled over replicas. Figures of speculation are None where nothing was drafted."""

    batch: float
    """Decoding requests per step and replica."""
    scheduled: float
    """Scheduled requests per step and replica: the key of the table."""
    tpot: float | None
    tokens_per_second: float
    mean_k: float | None
    acceptance_rate: float | None
    acceptance_length: float | None
    tokens_per_step: float | None
    """Tokens that a decoding request gains per step."""
    prompt_tokens: float
    generated_tokens: float
    context: float | None
    steps: float
    drafts: float
    loads: tuple[float, ...]
    """Common loads of each replica that served, in scheduled requests per step."""
    mix: tuple[tuple[float, float], ...]
    """(scheduled requests per step, share of the time of all requests), for each batch size that occurred."""
    pressed: float
    """Share of the serving replicas where requests waited for KV memory."""
    replicas: int
    """Number of pods in the look, idle pods included."""


def pool(windows: Sequence[PodWindow]) -> Look:
    """One look from all windows; at least one window must have request-steps."""
    busy = [window for window in bound_claims(windows) if window.decode_request_steps > 0 and window.steps > 0]
    weight = math.fsum(window.decode_request_steps for window in busy)
    tokens = math.fsum(window.generated_tokens - window.first_tokens for window in busy)
    period = math.fsum(window.step_seconds for window in busy)
    drafts, drafted, accepted = (
        math.fsum(getattr(window, name) or 0.0 for window in busy)
        for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    known = [(window.mean_context, window.decode_request_steps) for window in busy]
    contexts = [(context, share) for context, share in known if context is not None and context > 0]
    return Look(
        batch=math.fsum(window.batch * window.decode_request_steps for window in busy) / weight,
        scheduled=math.fsum(window.load * window.decode_request_steps for window in busy) / weight,
        tpot=period / tokens if tokens > 0 else None,
        tokens_per_second=math.fsum(window.generated_tokens / window.seconds for window in windows),
        mean_k=drafted / weight if any(window.draft_tokens is not None for window in busy) else None,
        acceptance_rate=accepted / drafted if drafted > 0 else None,
        acceptance_length=1.0 + accepted / drafts if drafts > 0 else None,
        tokens_per_step=tokens / weight,
        prompt_tokens=math.fsum(window.prompt_tokens for window in busy),
        generated_tokens=math.fsum(window.generated_tokens for window in busy),
        context=_weighted_mean(contexts),
        steps=math.fsum(window.steps for window in busy),
        drafts=drafts,
        loads=tuple(sorted(load for window in busy for load in _common(window))),
        mix=_mix(busy),
        pressed=math.fsum(_has_pressure(window) for window in busy) / len(busy),
        replicas=len(windows),
    )


def bound_claims(windows: Sequence[PodWindow]) -> list[PodWindow]:
    """`windows`, with counts lowered in proportion in a window that claims far more requests than the others.

    Pooling weighs windows by their counts: one pod that reports a million drafts would outweigh a hundred that report
    thousands. Ratios within a window stay as they are, and so do its costs of steps and its acceptance.
    """
    most = largest([window.decode_request_steps for window in windows if window.decode_request_steps > 0])
    return [
        _scale_window(window, most / window.decode_request_steps) if window.decode_request_steps > most else window
        for window in windows
    ]


def largest(amounts: Sequence[float]) -> float:
    """The most that one of `amounts` may count, so that no pod outweighs the others; infinite for fewer than three."""
    if len(amounts) < 3:
        return math.inf
    return median(amounts) * min(len(amounts) - 1.0, HEAVIEST)


def _scale_window(window: PodWindow, by: float) -> PodWindow:
    counts: dict[str, Any] = {name: getattr(window, name) for name in _COUNTS}
    counts = {name: count * by for name, count in counts.items() if count is not None}
    counts |= {name: tuple(count * by for count in getattr(window, name)) for name in _POSITIONS}
    cells = (replace(cell, **{name: getattr(cell, name) * by for name in _OF_CELLS}) for cell in window.cells)
    counts |= {name: tuple((bound, count * by) for bound, count in getattr(window, name)) for name in _HISTOGRAMS}
    comparisons = tuple(_scale_comparison(one, by) for one in window.comparisons)
    return replace(window, **counts, cells=tuple(cells), comparisons=comparisons)


def _scale_comparison(one: Comparison, by: float) -> Comparison:
    return replace(
        one,
        blocks=one.blocks * by,
        seconds_square=one.seconds_square * by,
        tokens_square=one.tokens_square * by,
        trial=BlockTotals(*(value * by for value in astuple(one.trial))),
        beside=BlockTotals(*(value * by for value in astuple(one.beside))),
    )


def learn_traffic(
    traffic: Traffic, look: Look, windows: Sequence[PodWindow], fresh: Sequence[float], max_batch: int
) -> Traffic:
    """`traffic` after one look at `windows`, which `bound_claims` has bounded; `fresh[i]` is the share of window i that
    is new."""
    seconds = max((window.seconds * share for window, share in zip(windows, fresh, strict=True)), default=0.0)
    if seconds <= 0:
        return traffic
    new = 1.0 if not traffic.load else 1.0 - math.exp(-seconds / TRAFFIC_SECONDS)
    keep = math.exp(-seconds / LOAD_SECONDS)
    load = [keep * value for value in traffic.load] or [0.0] * len(grid(max_batch))
    still = math.exp(-seconds / HISTORY_SECONDS)
    history = [still * value for value in traffic.history] or [0.0] * len(grid(max_batch))
    for window, share in zip(windows, fresh, strict=True):
        if window.decode_request_steps > 0:
            for batch, part in loads_of(window):
                load[nearest(batch, max_batch)] += window.seconds * share * part
                history[nearest(batch, max_batch)] += window.seconds * share * part
    recent = seconds / max(math.fsum(history) / len(windows), seconds)
    held = traffic.generated * math.exp(-seconds / TRAFFIC_SECONDS)
    tokens = held + look.generated_tokens
    ratio = (traffic.prompt_ratio * held + look.prompt_tokens) / tokens if tokens > 0 else traffic.prompt_ratio
    return replace(
        traffic,
        generated=tokens,
        shares=traffic.shares.after(windows, max_batch, new),
        pressed=traffic.pressed + recent * (look.pressed - traffic.pressed),
        history=tuple(history),
        context=_toward(traffic.context, look.context, new, MOST_CONTEXT),
        prompt_ratio=min(ratio, MOST_RATIO),
        load=tuple(load),
    )


def loads_of(window: PodWindow) -> list[tuple[float, float]]:
    """(scheduled requests per step, share of the time) of every cell of `window`; its mean where it has no cells."""
    seconds = math.fsum(cell.seconds for cell in window.cells)
    if seconds <= 0:
        return [(window.load, 1.0)]
    return [(cell.batch, cell.seconds / seconds) for cell in window.cells]


def _common(window: PodWindow) -> list[float]:
    """Loads at which the pod spent much of the time; the mean load where none took much."""
    return [load for load, share in loads_of(window) if share >= COMMON] or [window.load]


def _mix(windows: Sequence[PodWindow]) -> tuple[tuple[float, float], ...]:
    """Batch sizes of `windows` with their shares of the time of all requests."""
    time = [
        (load, window.step_seconds * part * load / max(window.load, 1e-9))
        for window in windows
        for load, part in loads_of(window)
    ]
    whole = math.fsum(weight for _, weight in time)
    return tuple((load, weight / whole) for load, weight in time) if whole > 0 else ()


def _has_pressure(window: PodWindow) -> bool:
    return window.waiting >= 1.0 and (window.kv_usage or 0.0) >= MEMORY_FULL


def _toward(old: float, seen: float | None, new: float, most: float) -> float:
    return old if seen is None else min(old + new * (seen - old), most)


def _weighted_mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    weight = math.fsum(share for _, share in pairs)
    return math.fsum(value * share for value, share in pairs) / weight if weight > 0 else None
