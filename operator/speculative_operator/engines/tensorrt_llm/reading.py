"""TensorRT-LLM's metrics -> a PodWindow or a Gap for each pod. Called by `adapter`; symbols in docs/metrics.md.

Names and meanings are those of NVIDIA/TensorRT-LLM tensorrt_llm/metrics/collector.py (commit 050f80de; #12545, #12636
brought most of them into 1.3). Releases before export times of whole requests only: their pods yield a gap.

All counters used here grow **when a request ends**, by what it was in all: tokens, seconds of its generation phase,
drafts verified and accepted by position. So they belong together, and their ratios are exact means over the requests
that ended in the window; they lag by the length of a request. A step yields its accepted drafts and one token more, so
there were G - F - A request-steps, with drafts or without; D, those with drafts, where the last ones of a request were
cut off. Steps are nowhere counted: N = R / b, where b is the mean of `trtllm_num_generation_requests` over the scrapes
that found any. The gauges are those of the last iteration, so while nothing ends they are not believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.samples import Buckets, Cut, Need, UnreadableError
from speculative_operator.engines.shared.reading import Reader, by_position, idle, mean, more, refuse

ENDED = "trtllm_request_success_total"
GENERATED = "trtllm_generation_tokens_total"
PROMPT = "trtllm_prompt_tokens_total"
PROMPT_CACHED = "trtllm_prompt_cached_tokens_total"
DECODE_SECONDS = "trtllm_request_decode_time_seconds_sum"
FIRST_TOKENS = "trtllm_time_to_first_token_seconds_count"
TTFT_SECONDS = "trtllm_time_to_first_token_seconds_sum"
DRAFTED = "trtllm_spec_decode_drafted_tokens_total"
ACCEPTED = "trtllm_spec_decode_accepted_tokens_total"
RUNNING = "trtllm_num_requests_running"
WAITING = "trtllm_num_requests_waiting"
GENERATING = "trtllm_num_generation_requests"
KV_USAGE = "trtllm_kv_cache_utilization"
KV_BLOCKS = "trtllm_kv_cache_max_blocks"
KV_BLOCK_TOKENS = "trtllm_kv_cache_tokens_per_block"
BUCKETS = Buckets("trtllm_time_per_output_token_seconds_bucket", "trtllm_time_to_first_token_seconds_bucket")

_COUNTERS = (GENERATED, PROMPT, DECODE_SECONDS, FIRST_TOKENS, TTFT_SECONDS)
_LOAD = (RUNNING, WAITING, GENERATING)
_OTHERS = (
    *_COUNTERS, PROMPT_CACHED, DRAFTED, ACCEPTED, *_LOAD, KV_USAGE, KV_BLOCKS, KV_BLOCK_TOKENS,
)  # fmt: skip
_GAUGES = frozenset({*_LOAD, KV_USAGE, KV_BLOCKS, KV_BLOCK_TOKENS})
_POSITION = "token_position"


def _window(piece: Cut) -> PodWindow:
    _check_release(piece)
    # Where no request ended, gauges may be those of an iteration long past.
    quiet = idle(piece, kv_capacity_tokens=_capacity(piece))
    if piece.delta(ENDED) == 0:
        return quiet
    first, generated, seconds = piece.delta(FIRST_TOKENS), piece.delta(GENERATED), piece.delta(DECODE_SECONDS)
    drafted, accepted = _drafts(piece)
    drafting, taken = (drafted[0] if drafted else 0.0), sum(accepted)
    steps = max(drafting, generated - first - taken)
    refuse(_contradictions(steps, seconds, first, generated))
    refuse(_draft_contradictions(drafted, accepted))
    batch = _batch(piece, steps)
    return replace(
        quiet,
        steps=steps / batch,
        decode_request_steps=steps,
        step_seconds=seconds,
        first_tokens=first,
        generated_tokens=generated,
        prompt_tokens=max(0.0, piece.delta(PROMPT) - piece.delta(PROMPT_CACHED)),
        running=piece.gauge_mean(RUNNING) or 0.0,
        waiting=piece.gauge_mean(WAITING) or 0.0,
        kv_usage=piece.gauge_mean(KV_USAGE, mean),
        drafts=drafting if drafted else None,
        draft_tokens=sum(drafted) if drafted else None,
        accepted_tokens=taken if drafted else None,
        accepted_per_position=accepted,
        drafted_per_position=drafted,
        ttft_seconds=piece.delta(TTFT_SECONDS),
    )


def _check_release(piece: Cut) -> None:
    missing = next((name for name in (*_COUNTERS, *_LOAD) if not piece.has(name)), None)
    if missing is not None:
        message = f"{missing} is not exported, as in releases before 1.3; without it the tuner cannot measure K"
        raise UnreadableError(Reason.UNSUPPORTED_BY_ENGINE, message)


def _drafts(piece: Cut) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Draft tokens verified and accepted by position; both empty where the window has none: the pods run without a
    speculator."""
    drafted, accepted = (by_position(piece, name, _POSITION) for name in (DRAFTED, ACCEPTED))
    if not any(drafted):
        return (), ()
    if len(accepted) > len(drafted):
        raise UnreadableError(Reason.METRICS_PARTIAL, f"{DRAFTED} has {len(drafted)} positions only")
    return drafted, (*accepted, *[0.0] * (len(drafted) - len(accepted)))


def _batch(piece: Cut, steps: float) -> float:
    """Mean requests of a generation step, from the scrapes that found any; 1 at least, and at most one step each."""
    found = [value for track in piece.tracks if track.name == GENERATING for _, value in track.samples if value >= 1]
    return min(mean(found), max(steps, 1.0)) if found else 1.0


def _capacity(piece: Cut) -> float | None:
    blocks, size = piece.gauge_mean(KV_BLOCKS), piece.gauge_mean(KV_BLOCK_TOKENS, mean)
    return blocks * size if blocks and size else None


def _contradictions(steps: float, seconds: float, first: float, generated: float) -> Iterator[tuple[bool, str]]:
    yield steps > 0 and seconds <= 0, f"{steps:g} request-steps took 0 s"
    yield more(first, generated), f"{first:g} first tokens, but {generated:g} tokens in all"
    yield more(steps, generated), f"{steps:g} request-steps, but {generated:g} tokens"


def _draft_contradictions(drafted: Sequence[float], accepted: Sequence[float]) -> Iterator[tuple[bool, str]]:
    for place, (offered, taken) in enumerate(zip(drafted, accepted, strict=True)):
        yield more(taken, offered), f"{taken:g} drafts accepted of {offered:g} at position {place}"


read = Reader(Need((ENDED,), gauges=_GAUGES, infos=frozenset()), _OTHERS, BUCKETS, _window)
