"""SGLang's metrics, as far as the operator reads them: which process counts what, and when.

Two processes count in SGLang 0.5.23. The scheduler counts passes and tokens as they happen, but refreshes its gauges
only with a prefill, every 40th decoding pass, and every 30 s while idle: otherwise they are stale. The tokenizer counts
whole requests when they end. A series appears when it is first written to; there are no `_created` twins.
Sources: sglang/srt/observability/metrics_collector.py, managers/tokenizer_manager.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from speculative_lab.emulator.book import Book
from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import StepResult
from speculative_lab.emulator.families import recorded
from speculative_lab.emulator.requests import FinishReason, Request

_S = "sglang:"
LOG_INTERVAL = 40
"""Decoding passes between two refreshes of the gauges (--decode-log-interval)."""
IDLE_SECONDS = 30.0
"""How often an idle scheduler refreshes its gauges."""
CHUNK = 50
"""Tokens after which the scheduler tells the tokenizer of a request that nobody reads as a stream."""


class SglangMetrics(Book):
    """The families of one SGLang server."""

    def __init__(self, config: EngineConfig, served_name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is the engine's."""
        ranks = {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
        fixed = {"model_name": served_name, "engine_type": "unified", **ranks}
        super().__init__(recorded("sglang_families.csv"), fixed, seeded=False)
        self._speculates, self._clock = config.speculative is not None, clock
        self._graphs = "none" if config.captures.eager else "cuda_graph"
        self._passes = self._accepted = self._seen = 0
        self._logged = self._idle_from = clock()
        self._idle = 0.0
        self._state: tuple[int, int, float] = (0, 0, 0.0)
        self._width = config.max_k + 1 if self._speculates else 0
        self.set(f"{_S}max_total_num_tokens", config.pool().tokens)

    def record(self, result: StepResult, running: int, waiting: int, kv_usage: float) -> None:
        """See `Book`."""
        self._idle += max(result.end - result.seconds - self._idle_from, 0.0)
        self._idle_from = result.end
        self._state = (running, waiting, kv_usage)
        if result.prefill_tokens:
            self._count("cuda_graph_passes_total", 1, f"prefill_{self._graphs}")
            self._count("realtime_tokens_total", result.prefill_tokens, "prefill_compute")
            self._log(result.end)
        for seconds, request in zip(result.time_to_first, result.first, strict=True):
            if request.streams:
                self.observe(f"{_S}time_to_first_token_seconds", seconds, "true")
        if result.decoded:
            self._decoded(result)
        if result.preempted:
            self._count("num_retracted_requests_total", result.preempted)
        # The steps in force are those of the drafts that are verified next.
        self._width = result.k + 1 if self._speculates else 0

    def _decoded(self, result: StepResult) -> None:
        self._passes += 1
        self._seen += result.decoded
        self._accepted += int(result.accepted.sum())
        self._count("cuda_graph_passes_total", 1, f"decode_{self._graphs}")
        self._count("realtime_tokens_total", int(result.gained[: result.decoded].sum()), "decode")
        read = result.streamed > 0
        histogram = self._histogram(f"{_S}inter_token_latency_seconds")
        histogram.observe_shared(result.inter_token[read], result.gained[read])
        if self._passes % LOG_INTERVAL == 0:
            self._log(result.end, fresh=True)

    def gauges(self, running: int, waiting: int, kv_usage: float) -> None:
        """See `Book`: nothing is told between refreshes."""
        self._state = (running, waiting, kv_usage)

    def finish(self, request: Request, reason: FinishReason, now: float) -> None:
        """See `Book`."""
        if reason is FinishReason.ABORT or request.first_token is None or request.last_token is None:
            return
        streaming = str(request.streams).lower()
        self._count("num_requests_total", 1, streaming)
        self._count("generation_tokens_total", request.generated, streaming)
        if self._speculates and request.steps:
            self._count("spec_verify_calls_total", request.steps)
        per_token = (request.last_token - request.first_token) / max(request.generated - 1, 1)
        if request.generated > 1:
            self.observe(f"{_S}request_time_per_output_token_seconds", per_token, streaming)
        if not request.streams:
            self._told_in_chunks(request, request.first_token - request.arrival, per_token)

    def _told_in_chunks(self, request: Request, first_seconds: float, per_token: float) -> None:
        """First and further tokens of a request without stream: told every CHUNK tokens, booked here at its end."""
        first = min(CHUNK, request.generated)
        self.observe(f"{_S}time_to_first_token_seconds", first_seconds + (first - 1) * per_token, "false")
        further = request.generated - first
        self._histogram(f"{_S}inter_token_latency_seconds").observe_many(per_token, further)

    def collect(self) -> Iterator[Metric]:
        """Every family that has series. Idle time runs on between passes; idle gauges are refreshed now and then."""
        now = self._clock()
        running, waiting, _ = self._state
        idle = not running and not waiting
        if idle and now - self._logged >= IDLE_SECONDS:
            self._log(now, fresh=True)
        self.set(f"{_S}scheduler_idle_seconds_total", self._idle + max(now - self._idle_from, 0.0) * idle)
        yield from super().collect()

    def _log(self, now: float, fresh: bool = False) -> None:
        """Refresh the gauges; `fresh`: the mean acceptance since the last time, too."""
        self._logged = now
        running, waiting, usage = self._state
        length = self.value(f"{_S}spec_accept_length")
        if fresh and self._seen:
            length = 1 + self._accepted / self._seen if self._speculates else 0.0
            self._accepted = self._seen = 0
        self.set(f"{_S}spec_accept_length", length)
        self.set(f"{_S}num_running_reqs", running)
        self.set(f"{_S}num_queue_reqs", waiting)
        self.set(f"{_S}token_usage", usage)
        self.set(f"{_S}spec_num_draft_tokens", self._width)

    def _count(self, name: str, amount: float, label: str = "") -> None:
        self.add(_S + name, amount, label)
