"""SGLang's metrics -> a PodWindow or a Gap for each pod. Called by `adapter`; names and symbols in docs/metrics.md.

Names and meanings are those of SGLang 0.5.23 (observability/metrics_collector.py, managers/tokenizer_manager.py,
managers/scheduler_components/metrics_reporter.py and batch_result_processor.py). Two processes count:

- the scheduler, at every forward pass: passes by kind, and tokens; exact. Only one rank of a scheduler reports, but
  every stage of a pipeline does, so stage 0 is taken.
- the tokenizer, as answers are sent: the inter-token histogram has **one observation per token** (vLLM's: one per step)
  and sums up seconds; tokens and verifications of a request are added when it ends.

Request-steps are nowhere counted. What a request-step yields is: g = (tokens - requests) / verifications, exact for the
requests that ended in the window. Then with the tokens of the window's decode passes R = tokens / g, and the sum of
step periods is tokens x seconds per token. Until a request has ended the engine's own mean of g over its last 40 decode
passes takes the place (`sglang:spec_accept_length`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from speculative_operator.domain.observation import PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.samples import Buckets, Cut, Need, UnreadableError
from speculative_operator.engines.shared.reading import Reader, idle, mean, more, refuse

PASSES = "sglang:cuda_graph_passes_total"
TOKENS = "sglang:realtime_tokens_total"
RUNNING = "sglang:num_running_reqs"
WAITING = "sglang:num_queue_reqs"
KV_USAGE = "sglang:token_usage"
KV_CAPACITY = "sglang:max_total_num_tokens"
IDLE_SECONDS = "sglang:scheduler_idle_seconds_total"
RETRACTED = "sglang:num_retracted_requests_total"
DRAFT_WIDTH = "sglang:spec_num_draft_tokens"
ACCEPT_LENGTH = "sglang:spec_accept_length"
STREAMED = "sglang:inter_token_latency_seconds_count"
STREAMED_SECONDS = "sglang:inter_token_latency_seconds_sum"
FIRST_TOKENS = "sglang:time_to_first_token_seconds_count"
TTFT_SECONDS = "sglang:time_to_first_token_seconds_sum"
ENDED_TOKENS = "sglang:generation_tokens_total"
ENDED = "sglang:num_requests_total"
VERIFICATIONS = "sglang:spec_verify_calls_total"
BUCKETS = Buckets("sglang:request_time_per_output_token_seconds_bucket", "sglang:time_to_first_token_seconds_bucket")

_REQUIRED = (PASSES, TOKENS, RUNNING, WAITING)
_GAUGES = frozenset({RUNNING, WAITING, KV_USAGE, KV_CAPACITY, DRAFT_WIDTH, ACCEPT_LENGTH})
_OTHERS = (
    KV_USAGE, KV_CAPACITY, IDLE_SECONDS, RETRACTED, DRAFT_WIDTH, ACCEPT_LENGTH, STREAMED, STREAMED_SECONDS,
    FIRST_TOKENS, TTFT_SECONDS, ENDED_TOKENS, ENDED, VERIFICATIONS,
)  # fmt: skip
_DECODING = ("decode_cuda_graph", "decode_none")
_LOG_INTERVAL = 40
"""Decode passes after which the engine refreshes its gauges (--decode-log-interval); others are of another time."""


@dataclass(frozen=True, slots=True)
class _Decoding:
    passes: float
    tokens: float
    gain: float
    """Tokens of a request-step, g."""
    seconds_per_token: float
    widths: tuple[float, ...] = ()
    """Tokens verified at once for a request, at each scrape; empty for an engine without a speculator."""

    @property
    def k(self) -> float:
        """Mean K over the scrapes."""
        return mean(max(0.0, width - 1.0) for width in self.widths)

    @property
    def drafting(self) -> float:
        """Share of the scrapes at which drafts were verified."""
        return mean(float(width > 1) for width in self.widths)

    @property
    def request_steps(self) -> float:
        return self.tokens / self.gain


def _counts(track: Series) -> bool:
    """False for stages but the first, and for the first token of an answer that is not streamed: it is told late, at
    the fiftieth or at the end."""
    late = track.name == BUCKETS.ttft and track.labels.get("is_streaming") == "false"
    return track.labels.get("pp_rank", "0") in ("", "0") and not late


def _window(piece: Cut) -> PodWindow:
    passes, first = sum(piece.delta(PASSES, mode=mode) for mode in _DECODING), piece.delta(FIRST_TOKENS)
    # A pod that ran no decode pass has no load: its gauges still tell of the last pass.
    quiet = idle(
        piece,
        first_tokens=first,
        generated_tokens=first,
        prompt_tokens=piece.delta(TOKENS, mode="prefill_compute"),
        kv_capacity_tokens=piece.gauge_mean(KV_CAPACITY),
        ttft_seconds=piece.delta(TTFT_SECONDS),
    )
    if passes == 0:
        return quiet
    decoding = _decoding(piece, passes)
    steps = decoding.request_steps
    drafts, drafted, accepted = _drafts(decoding)
    refuse(_contradictions(decoding))
    return replace(
        quiet,
        steps=passes,
        decode_request_steps=steps,
        step_seconds=decoding.tokens * decoding.seconds_per_token,
        generated_tokens=decoding.tokens + first,
        running=piece.gauge_mean(RUNNING) or 0.0,
        waiting=piece.gauge_mean(WAITING) or 0.0,
        preemptions=piece.delta(RETRACTED),
        kv_usage=piece.gauge_mean(KV_USAGE, mean),
        drafts=drafts,
        draft_tokens=drafted,
        accepted_tokens=accepted,
    )


def _decoding(piece: Cut, passes: float) -> _Decoding:
    tokens = piece.delta(TOKENS, mode="decode")
    if tokens <= 0:
        raise UnreadableError(Reason.METRICS_ABSURD, f"{passes:g} decode passes yielded no token")
    widths = _widths(piece, passes)
    gain = _gain(piece, passes) if widths else 1.0
    return _Decoding(passes, tokens, gain, _seconds_per_token(piece, passes, gain), widths)


def _gain(piece: Cut, passes: float) -> float:
    """Tokens of a request-step; never below 1, because the last ones of a request may be cut off."""
    verified = piece.delta(VERIFICATIONS)
    if verified > 0:
        return max(1.0, (piece.delta(ENDED_TOKENS) - piece.delta(ENDED)) / verified)
    length = piece.gauge_mean(ACCEPT_LENGTH, mean)
    if passes < _LOG_INTERVAL or not length:
        raise UnreadableError(Reason.COLLECTING, "no request has ended and no gauge was refreshed in the window")
    return max(1.0, length)


def _widths(piece: Cut, passes: float) -> tuple[float, ...]:
    """Tokens verified at once, the first of them no draft, at each scrape; empty without a speculator.

    The gauge follows the active steps (`sglang:spec_num_steps` + 1) and, unlike it, is also right where a pass drafts
    a whole block. Without a speculator it is 0.
    """
    found = tuple(value for track in piece.tracks if track.name == DRAFT_WIDTH for _, value in track.samples)
    if not any(found):
        return ()
    if passes < _LOG_INTERVAL:
        raise UnreadableError(Reason.COLLECTING, f"{passes:g} decode passes: the active K is told every 40")
    return found


def _seconds_per_token(piece: Cut, passes: float, gain: float) -> float:
    """Seconds per token as clients of streams saw them; else, from the time that the scheduler was not idle.

    In that case a pass took busy / passes on average, and each request in it gained `gain` tokens.
    """
    seen = piece.delta(STREAMED)
    if seen > 0:
        return piece.delta(STREAMED_SECONDS) / seen
    if not piece.has(IDLE_SECONDS):
        raise UnreadableError(Reason.METRICS_PARTIAL, f"{STREAMED} did not grow and {IDLE_SECONDS} is missing")
    busy = piece.end - piece.start - piece.delta(IDLE_SECONDS)
    if busy <= 0:
        raise UnreadableError(Reason.METRICS_ABSURD, f"{passes:g} decode passes in {busy:g} s")
    return busy / passes / gain


def _drafts(decoding: _Decoding) -> tuple[float | None, float | None, float | None]:
    """(drafts, draft tokens, accepted tokens), means over the scrapes where K changed; None without a speculator."""
    if not decoding.widths:
        return None, None, None
    steps = decoding.request_steps
    drafted = steps * decoding.k
    return steps * decoding.drafting, drafted, min(drafted, steps * (decoding.gain - 1.0))


def _contradictions(decoding: _Decoding) -> list[tuple[bool, str]]:
    passes, steps = decoding.passes, decoding.request_steps
    found = [
        (more(passes, steps), f"{steps:g} request-steps in {passes:g} decode passes"),
        (decoding.seconds_per_token <= 0, f"{decoding.tokens:g} tokens took no time"),
    ]
    if decoding.widths:
        most = max(decoding.widths)
        found.append((decoding.gain > most * 1.01, f"{decoding.gain:.2f} tokens per step of {most:g}"))
    return found


read = Reader(Need(_REQUIRED, gauges=_GAUGES, infos=frozenset()), _OTHERS, BUCKETS, _window, _counts)
