"""TensorRT-LLM's metrics: whole requests when they end, iterations as gauges. Filled by the driver, read by a scrape.

Names and moments are those of tensorrt_llm/metrics/collector.py (commit 050f80de, of 1.3): `return_perf_metrics` brings
what requests were, `enable_iter_perf_stats` what the last iteration was. A series appears when it is first written to;
there are no `_created` twins.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import StepResult
from speculative_lab.emulator.dialect import LedgerBook
from speculative_lab.emulator.families import recorded
from speculative_lab.emulator.requests import FinishReason, Request, SpeculationRecord
from speculative_lab.emulator.tensorrt_llm.config import ITERATIONS, REQUESTS

_T = "trtllm_"
_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORT: "cancelled"}


class TensorRtLedger(LedgerBook):
    """All families of one server."""

    def __init__(self, config: EngineConfig, model: str, options: Mapping[str, int]) -> None:
        """`options` tell which of the two kinds are asked for."""
        fixed = {"model_name": model, "engine_type": "trtllm", "pid": "1", "rank": "0"}
        super().__init__(recorded("tensorrt_llm_families.csv"), fixed, seeded=False)
        self._config, self._pool, self._options = config, config.pool(), options

    def record(self, result: StepResult, running: int, waiting: int, kv_usage: float) -> None:
        """See `Ledger`."""
        if not self._options[ITERATIONS]:
            return
        self._told("num_requests_completed_total", len(result.finished))
        self._told("spec_decode_num_draft_tokens_total", result.draft_tokens)
        self._told("spec_decode_num_accepted_tokens_total", int(result.accepted.sum()))
        for name, value in self._iteration(result).items():
            self.set(_T + name, value)
        self.gauges(running, waiting, kv_usage)
        if result.prefill_tokens:
            self.observe(f"{_T}prefill_batch_tokens", result.prefill_tokens)

    def _iteration(self, result: StepResult) -> Mapping[str, float]:
        prefilling, seats = result.scheduled - result.decoded, self._config.max_num_seqs
        tokens = int(result.gained[: result.decoded].sum())
        values = {
            "iteration_latency_seconds": result.seconds,
            "max_num_active_requests": seats,
            "max_batch_size_static": seats,
            "max_batch_size_runtime": seats,
            "max_num_tokens_runtime": self._config.max_num_batched_tokens,
            "kv_cache_max_blocks": self._pool.blocks,
            "kv_cache_tokens_per_block": self._pool.block_size,
            "kv_cache_hit_rate": 0.0,
            "num_context_requests": prefilling,
            "num_generation_requests": result.decoded,
            "num_paused_requests": result.preempted,
            "num_scheduled_requests": result.scheduled,
            "total_context_tokens": result.prefill_tokens,
            "avg_decoded_tokens_per_iter": tokens / result.decoded if result.decoded else 0.0,
            "prefill_batch_occupancy": prefilling / seats,
        }
        if len(result.accepted):
            values["spec_decode_acceptance_length"] = 1 + float(result.accepted.mean())
        return values

    def gauges(self, running: int, waiting: int, kv_usage: float) -> None:
        """See `Ledger`."""
        if not self._options[ITERATIONS]:
            return
        used = round(kv_usage * self._pool.blocks)
        self.set(f"{_T}num_requests_running", running)
        self.set(f"{_T}num_requests_waiting", waiting)
        self.set(f"{_T}kv_cache_utilization", kv_usage)
        self.set(f"{_T}kv_cache_used_blocks", used)
        self.set(f"{_T}kv_cache_free_blocks", self._pool.blocks - used)

    def finish(self, request: Request, reason: FinishReason, now: float) -> None:
        """See `Ledger`."""
        if not self._options[REQUESTS] or request.first_token is None or request.last_token is None:
            return
        scheduled = request.arrival if request.scheduled is None else request.scheduled
        decode = request.last_token - request.first_token
        self._told("request_success_total", 1, _REASONS.get(reason, "cancelled"))
        self._told("prompt_tokens_total", request.prompt_tokens)
        self._told("generation_tokens_total", request.generated)
        seconds = {
            "e2e_request_latency_seconds": now - request.arrival,
            "time_to_first_token_seconds": request.first_token - request.arrival,
            "time_per_output_token_seconds": decode / (request.generated - 1) if request.generated > 1 else 0.0,
            "request_queue_time_seconds": max(scheduled - request.arrival, 0.0),
            "request_prefill_time_seconds": request.first_token - scheduled,
            "request_decode_time_seconds": decode,
            "request_inference_time_seconds": request.last_token - scheduled,
        }
        for name, value in seconds.items():
            # a time of 0 is not told (but for the queue), as in the collector
            if value or name == "request_queue_time_seconds":
                self.observe(_T + name, value)
        if request.record is not None:
            self._by_position(request.record)

    def _by_position(self, record: SpeculationRecord) -> None:
        """Drafted and accepted tokens at each position in all the steps of one request."""
        for name, lengths in (
            ("spec_decode_drafted_tokens_total", record.per_step_drafted),
            ("spec_decode_accepted_tokens_total", record.per_step_accepted),
        ):
            for position, count in enumerate(reached(lengths)):
                self._told(name, count, str(position))

    def reject(self, reason: str) -> None:
        """See `Ledger`."""
        self._told("request_error_total", 1, "400")

    def _told(self, name: str, amount: float, label: str = "") -> None:
        """Raise a counter; amounts of 0 bring no series."""
        if amount:
            self.add(_T + name, amount, label)


def reached(lengths: list[int]) -> list[int]:
    """How many of `lengths` go beyond 0, 1, 2, ..."""
    return [sum(1 for beyond in places if beyond) for places in zip_longest(*([1] * length for length in lengths))]
