"""vLLM's metrics -> a PodWindow or a Gap for each pod. Called by `adapter`; names and symbols in docs/metrics.md.

What the payload tells beside them is laid over a window by `telemetry`.

Names are those of vLLM 0.11 to 0.32. A counter has a `_created` twin, which is not asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.samples import Buckets, Cut, Need, UnreadableError
from speculative_operator.engines.shared.reading import (
    SLACK,
    Reader,
    by_position,
    mean,
    more,
    refuse,
    without_missed_scrapes,
)
from speculative_operator.engines.vllm import telemetry

STEPS = "vllm:iteration_tokens_total_count"
REQUEST_STEPS = "vllm:inter_token_latency_seconds_count"
STEP_SECONDS = "vllm:inter_token_latency_seconds_sum"
FIRST_TOKENS = "vllm:time_to_first_token_seconds_count"
TTFT_SECONDS = "vllm:time_to_first_token_seconds_sum"
GENERATED = "vllm:generation_tokens_total"
PROMPT = "vllm:prompt_tokens_total"
PROMPT_BY_SOURCE = "vllm:prompt_tokens_by_source_total"
PROMPT_CACHED = "vllm:prompt_tokens_cached_total"
QUEUE_SECONDS = "vllm:request_queue_time_seconds_sum"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
PREEMPTIONS = "vllm:num_preemptions_total"
KV_USAGE = "vllm:kv_cache_usage_perc"
CACHE_INFO = "vllm:cache_config_info"
DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

_REQUIRED = (STEPS, REQUEST_STEPS, STEP_SECONDS, FIRST_TOKENS, GENERATED, PROMPT, RUNNING, WAITING)
_SPECULATION = (DRAFTS, DRAFT_TOKENS, ACCEPTED)
_OTHERS = (
    TTFT_SECONDS, QUEUE_SECONDS, PROMPT_BY_SOURCE, PROMPT_CACHED, PREEMPTIONS, KV_USAGE, CACHE_INFO,
    *_SPECULATION, PER_POSITION,
)  # fmt: skip
_PAYLOAD = frozenset(telemetry.NAMES)


def read(
    series: Sequence[Series], pods: Collection[str], since: Mapping[str, float], now: float, stale_after: float
) -> dict[str, PodWindow | Gap]:
    """A window or a gap for each of `pods`; see `base.Read`. What the payload tells is laid over the windows."""
    beside: dict[str, list[Series]] = {pod: [] for pod in pods}
    for track in without_missed_scrapes([track for track in series if track.name in _PAYLOAD]):
        if (pod := track.labels.get("pod", "")) in beside:
            beside[pod].append(track)
    seen = READER(series, pods, since, now, stale_after)
    return {
        pod: telemetry.extend(view, beside[pod], stale_after) if isinstance(view, PodWindow) else view
        for pod, view in seen.items()
    }


def _window(piece: Cut) -> PodWindow:
    window = PodWindow(
        start=piece.start,
        end=piece.end,
        steps=piece.delta(STEPS),
        decode_request_steps=piece.delta(REQUEST_STEPS),
        step_seconds=piece.delta(STEP_SECONDS),
        first_tokens=piece.delta(FIRST_TOKENS),
        generated_tokens=piece.delta(GENERATED),
        prompt_tokens=_prompt_tokens(piece),
        running=piece.gauge_mean(RUNNING) or 0.0,
        waiting=piece.gauge_mean(WAITING) or 0.0,
        preemptions=piece.delta(PREEMPTIONS),
        kv_usage=piece.gauge_mean(KV_USAGE, mean),
        kv_capacity_tokens=_capacity(piece),
        ttft_seconds=piece.delta(TTFT_SECONDS),
        queue_seconds=piece.delta(QUEUE_SECONDS) if piece.has(QUEUE_SECONDS) else None,
        **_speculation(piece),
    )
    refuse(_contradictions(window))
    return window


READER = Reader(
    Need(_REQUIRED, gauges=frozenset({RUNNING, WAITING, KV_USAGE}), infos=frozenset({CACHE_INFO})),
    _OTHERS,
    Buckets("vllm:request_time_per_output_token_seconds_bucket", "vllm:time_to_first_token_seconds_bucket"),
    _window,
)
METRIC_NAMES: tuple[str, ...] = (*READER.names, *telemetry.NAMES)


def _prompt_tokens(piece: Cut) -> float:
    """Prompt tokens that the pod computed: by source where vLLM tells it, else all but the cached ones."""
    if piece.has(PROMPT_BY_SOURCE):
        return piece.delta(PROMPT_BY_SOURCE, source="local_compute")
    return max(0.0, piece.delta(PROMPT) - piece.delta(PROMPT_CACHED))


def _speculation(piece: Cut) -> dict[str, Any]:
    """Fields of the window that tell of drafts: none where vLLM has no speculator and so no such counters. Raises
    UnreadableError where some of them are missing."""
    present = [name for name in (*_SPECULATION, PER_POSITION) if piece.has(name)]
    if not present:
        return {}
    missing = next((name for name in _SPECULATION if name not in present), None)
    if missing is not None:
        raise UnreadableError(Reason.METRICS_PARTIAL, f"{missing} is missing beside {present[0]}")
    return {
        "drafts": piece.delta(DRAFTS),
        "draft_tokens": piece.delta(DRAFT_TOKENS),
        "accepted_tokens": piece.delta(ACCEPTED),
        "accepted_per_position": by_position(piece, PER_POSITION, "position"),
    }


def _capacity(piece: Cut) -> float | None:
    """Tokens that the pod's KV cache holds, over its engines: `kv_cache_size_tokens`, else blocks x block size."""
    sizes = [_info_tokens(track.labels) for track in piece.tracks if track.name == CACHE_INFO]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _info_tokens(labels: Mapping[str, str]) -> float | None:
    whole = _count(labels.get("kv_cache_size_tokens"))
    blocks, size = _count(labels.get("num_gpu_blocks")), _count(labels.get("block_size"))
    return whole or (blocks * size if blocks and size else None)


def _count(text: str | None) -> float | None:
    """A positive whole number; None for "None", "" and everything else that a label may say."""
    return float(text) if text is not None and text.isdecimal() and len(text) < 16 and int(text) > 0 else None


def _contradictions(window: PodWindow) -> Iterable[tuple[bool, str]]:
    steps, request_steps, seconds = window.steps, window.decode_request_steps, window.step_seconds
    yield request_steps > 0 and steps == 0, f"{request_steps:g} requests advanced in 0 steps"
    yield request_steps > 0 and seconds <= 0, f"{request_steps:g} request-steps took 0 s"
    yield request_steps == 0 and seconds > 0, f"no request-step took {seconds:g} s"
    yield (
        more(window.first_tokens, window.generated_tokens),
        f"{window.first_tokens:g} first tokens, but {window.generated_tokens:g} tokens in all",
    )
    yield (window.kv_usage or 0.0) > 1.0 + SLACK, f"KV usage is {window.kv_usage}; it is a share of 1"
    if window.drafts is not None and window.draft_tokens is not None and window.accepted_tokens is not None:
        yield from _draft_contradictions(
            window.drafts, window.draft_tokens, window.accepted_tokens, window.accepted_per_position
        )


def _draft_contradictions(
    drafts: float, tokens: float, accepted: float, per_position: tuple[float, ...]
) -> Iterable[tuple[bool, str]]:
    yield more(accepted, tokens), f"{accepted:g} draft tokens accepted of {tokens:g}"
    yield more(drafts, tokens), f"{drafts:g} drafts hold {tokens:g} tokens"
    if not per_position:
        return
    yield more(tokens, drafts * len(per_position)), f"{drafts:g} drafts of {len(per_position)} hold {tokens:g} tokens"
    yield more(per_position[0], drafts), f"{per_position[0]:g} first drafts accepted of {drafts:g}"
    for place, (before, after) in enumerate(pairwise(per_position), 1):
        yield more(after, before), f"position {place} accepted {after:g} times, the one before it {before:g}"
    total = sum(per_position)
    yield more(total, accepted) or more(accepted, total), f"{accepted:g} accepted, {total:g} by position"
