"""TensorRT-LLM's metrics, as far as the operator reads them: whole requests when they end, iterations as gauges.

Names and moments are those of tensorrt_llm/metrics/collector.py (commit 050f80de, of 1.3): `return_perf_metrics` brings
what requests were, `enable_iter_perf_stats` what the last iteration was. A series appears when it is first written to;
there are no `_created` twins. Filled by the driver, read by a scrape.
"""

from __future__ import annotations

from collections.abc import Mapping

from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import StepResult
from speculative_lab.emulator.dialect import LedgerBook
from speculative_lab.emulator.families import recorded
from speculative_lab.emulator.requests import FinishReason, Request
from speculative_lab.emulator.tensorrt_llm.config import ITERATIONS, REQUESTS

_T = "trtllm_"
_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORT: "cancelled"}


class TensorRtLedger(LedgerBook):
    """The families of one server."""

    def __init__(self, config: EngineConfig, model: str, options: Mapping[str, int]) -> None:
        """`options` tell which of the two kinds are asked for."""
        fixed = {"model_name": model, "engine_type": "trtllm"}
        super().__init__(recorded("tensorrt_llm_families.csv"), fixed, seeded=False)
        self._pool, self._options = config.pool(), options

    def record(self, result: StepResult, running: int, waiting: int, kv_usage: float) -> None:
        """See `Ledger`."""
        if self._options[ITERATIONS]:
            self.set(f"{_T}num_generation_requests", result.decoded)
        self.gauges(running, waiting, kv_usage)

    def gauges(self, running: int, waiting: int, kv_usage: float) -> None:
        """See `Ledger`."""
        if self._options[ITERATIONS]:
            self.set(f"{_T}num_requests_running", running)
            self.set(f"{_T}num_requests_waiting", waiting)
            self.set(f"{_T}kv_cache_utilization", kv_usage)
            self.set(f"{_T}kv_cache_max_blocks", self._pool.blocks)
            self.set(f"{_T}kv_cache_tokens_per_block", self._pool.block_size)

    def finish(self, request: Request, reason: FinishReason, now: float) -> None:
        """See `Ledger`."""
        if not self._options[REQUESTS] or request.first_token is None or request.last_token is None:
            return
        decode = request.last_token - request.first_token
        self._told("request_success_total", 1, _REASONS.get(reason, "cancelled"))
        self._told("prompt_tokens_total", request.prompt_tokens)
        self._told("generation_tokens_total", request.generated)
        self.observe(f"{_T}time_to_first_token_seconds", request.first_token - request.arrival)
        if decode:  # a time of 0 is not told, as in the collector
            self.observe(f"{_T}request_decode_time_seconds", decode)
            self.observe(f"{_T}time_per_output_token_seconds", decode / (request.generated - 1))
        for drafted, accepted in request.drafts:
            for position in range(drafted):
                self._told("spec_decode_drafted_tokens_total", 1, str(position))
                self._told("spec_decode_accepted_tokens_total", position < accepted, str(position))

    def _told(self, name: str, amount: float, label: str = "") -> None:
        """Raise a counter; amounts of 0 bring no series."""
        if amount:
            self.add(_T + name, amount, label)
