"""SGLang's metrics: which process counts what, and when. Filled by the driver, read by /metrics.

Two processes count in SGLang 0.5.23. The scheduler counts passes and tokens as they happen, but refreshes its gauges
only with a prefill, every 40th decoding pass, and every 30 s while idle: otherwise they are stale. The tokenizer counts
whole requests when they end. A series appears when it is first written to; there are no `_created` twins.
Sources: sglang/srt/observability/metrics_collector.py, managers/tokenizer_manager.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import StepResult
from speculative_lab.emulator.dialect import LedgerBook
from speculative_lab.emulator.families import recorded
from speculative_lab.emulator.requests import FinishReason, Request

_S = "sglang:"
_GIB = 2.0**30
IDLE_SECONDS = 30.0
"""How often an idle scheduler refreshes its gauges."""
CHUNK = 50
"""Tokens after which the scheduler tells the tokenizer of a request that nobody reads as a stream."""


class SglangLedger(LedgerBook):
    """All families of one SGLang server."""

    def __init__(
        self, config: EngineConfig, served_name: str, log_interval: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`log_interval` decoding passes lie between two refreshes of the gauges; `clock` is the engine's."""
        fixed = {
            "model_name": served_name,
            "engine_type": "unified",
            "tp_rank": "0",
            "pp_rank": "0",
            "moe_ep_rank": "0",
        }
        super().__init__(recorded("sglang_families.csv"), fixed, seeded=False)
        self._config, self._pool = config, config.pool()
        self._log_interval, self._clock = log_interval, clock
        self._passes = self._tokens = self._drafts = self._accepted = self._seen = 0
        self._logged = self._idle_from = clock()
        self._idle = 0.0
        self._state: tuple[int, int, float] = (0, 0, 0.0)
        self._context = 0
        self._width = config.max_k + 1 if config.speculative else 0
        self._constants()

    def record(self, result: StepResult, running: int, waiting: int, kv_usage: float) -> None:
        """See `Ledger`."""
        self._idle += max(result.end - result.seconds - self._idle_from, 0.0)
        self._idle_from = result.end
        self._state, self._context = (running, waiting, kv_usage), result.context_tokens
        graphs = "none" if self._config.captures.eager else "cuda_graph"
        if result.prefill_tokens:
            self._count("cuda_graph_passes_total", 1, f"prefill_{graphs}")
            self._count("realtime_tokens_total", result.prefill_tokens, "prefill_compute")
            self._count("prefill_effective_tokens_total", result.prefill_tokens, "input")
            self._log(result.end)
        for seconds, request in zip(result.time_to_first, result.first, strict=True):
            self._queued(request)
            if request.streams:
                self.observe(f"{_S}time_to_first_token_seconds", seconds, "true")
        if result.decoded:
            self._decoded(result, graphs)
        if result.preempted:
            self._count("num_retracted_requests_total", result.preempted)
        # The steps in force are those of the drafts that are verified next.
        self._width = result.k + 1 if self._config.speculative else 0

    def _decoded(self, result: StepResult, graphs: str) -> None:
        tokens = int(result.gained[: result.decoded].sum())
        self._passes += 1
        self._tokens += tokens
        self._seen += result.decoded
        self._accepted += int(result.accepted.sum())
        self._drafts += result.decoded * self._width
        self._count("cuda_graph_passes_total", 1, f"decode_{graphs}")
        self._count("realtime_tokens_total", tokens, "decode")
        read = result.streamed > 0
        histogram = self._histogram(f"{_S}inter_token_latency_seconds")
        histogram.observe_shared(result.inter_token[read], result.gained[read])
        if self._passes % self._log_interval == 0:
            self._refresh_speed(result.end)
            self._log(result.end)

    def gauges(self, running: int, waiting: int, kv_usage: float) -> None:
        """See `Ledger`: nothing is told between refreshes."""
        self._state = (running, waiting, kv_usage)

    def finish(self, request: Request, reason: FinishReason, now: float) -> None:
        """See `Ledger`."""
        if reason in (FinishReason.ABORT, FinishReason.ERROR):
            self._count("num_aborted_requests_total", 1)
            return
        streaming = str(request.streams).lower()
        self._count("num_requests_total", 1, streaming)
        self._count("prompt_tokens_total", request.prompt_tokens, streaming)
        self._count("generation_tokens_total", request.generated, streaming)
        if self._config.speculative and request.steps:
            self._count("spec_verify_calls_total", request.steps)
        self.observe(f"{_S}prompt_tokens_histogram", request.prompt_tokens)
        self.observe(f"{_S}uncached_prompt_tokens_histogram", request.prompt_tokens)
        self.observe(f"{_S}generation_tokens_histogram", request.generated)
        self.observe(f"{_S}e2e_request_latency_seconds", now - request.arrival, streaming)
        if request.first_token is None or request.last_token is None:
            return
        per_token = (request.last_token - request.first_token) / max(request.generated - 1, 1)
        if request.generated > 1:
            self.observe(f"{_S}request_time_per_output_token_seconds", per_token, streaming)
        if not request.streams:
            self._told_in_chunks(request, per_token)

    def _told_in_chunks(self, request: Request, per_token: float) -> None:
        """First and further tokens of a request without stream: told every CHUNK tokens, booked here at its end."""
        first = min(CHUNK, request.generated)
        told = (request.first_token or 0.0) - request.arrival + (first - 1) * per_token
        self.observe(f"{_S}time_to_first_token_seconds", told, "false")
        for start in range(first, request.generated, CHUNK):
            tokens = min(CHUNK, request.generated - start)
            self._histogram(f"{_S}inter_token_latency_seconds").observe_many(per_token, tokens)

    def collect(self) -> Iterator[Metric]:
        """Every family that has series. Idle time runs on between passes; idle gauges are refreshed now and then."""
        now = self._clock()
        running, waiting, _ = self._state
        idle = not running and not waiting
        if idle and now - self._logged >= IDLE_SECONDS:
            self._refresh_speed(now)
            self._log(now)
        self.set(f"{_S}scheduler_idle_seconds_total", self._idle + max(now - self._idle_from, 0.0) * idle)
        yield from super().collect()

    def _refresh_speed(self, now: float) -> None:
        """Gauges that are means since the last refresh."""
        self.set(f"{_S}gen_throughput", self._tokens / max(now - self._logged, 1e-9))
        if self._config.speculative and self._seen:
            length = 1 + self._accepted / self._seen
            self.set(f"{_S}spec_accept_length", length)
            self.set(f"{_S}spec_accept_rate", length * self._seen / max(self._drafts, 1))
        self._tokens = self._drafts = self._accepted = self._seen = 0

    def _log(self, now: float) -> None:
        self._logged = now
        running, waiting, usage = self._state
        total = self._pool.tokens
        values = {
            "num_running_reqs": running,
            "num_queue_reqs": waiting,
            "token_usage": usage,
            "full_token_usage": usage,
            "num_used_tokens": round(usage * total),
            "kv_used_tokens": round(usage * total),
            "kv_available_tokens": round((1 - usage) * total),
            "kv_evictable_tokens": 0,
            "decode_sum_seq_lens": self._context,
            "cache_hit_rate": 0.0,
            "num_retracted_reqs": 0,
            "num_paused_reqs": 0,
            "utilization": 0.0,
            "fwd_occupancy": float("nan"),
            "new_token_ratio": 0.0,
            "is_cuda_graph": int(not self._config.captures.eager),
            "spec_num_steps": max(self._width - 1, 0),
            "spec_num_draft_tokens": self._width,
            "spec_cap_length": 0.0,
            "spec_block_accept_length": 0.0,
        }
        for name, value in values.items():
            self.set(_S + name, value)
        for name in ("gen_throughput", "spec_accept_length", "spec_accept_rate"):
            self.set(_S + name, self.value(_S + name))

    def _constants(self) -> None:
        shapes, ranks = self._config.shapes, self._config.shapes.tensor_parallel_size
        values = {
            "max_total_num_tokens": self._pool.tokens,
            "page_size": self._pool.block_size,
            "num_pages": self._pool.blocks,
            "context_len": self._config.max_model_len,
            "weight_memory_usage_gb": shapes.verifier.weight_bytes / ranks / _GIB,
            "kv_cache_memory_usage_gb": self._pool.bytes / _GIB,
        }
        for name, value in values.items():
            self.set(_S + name, value)

    def _queued(self, request: Request) -> None:
        if request.scheduled is not None:
            self.observe(f"{_S}queue_time_seconds", max(request.scheduled - request.arrival, 0.0))

    def _count(self, name: str, amount: float, label: str = "") -> None:
        self.add(_S + name, amount, label)
