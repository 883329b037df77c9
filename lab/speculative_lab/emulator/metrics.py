"""Counters, gauges and histograms of one engine with vLLM's semantics, exposed through prometheus_client.

Nothing is looped per request but ends and first tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from prometheus_client.core import GaugeMetricFamily, Metric

from speculative_lab.emulator.book import Book
from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import StepResult
from speculative_lab.emulator.families import Family, families
from speculative_lab.emulator.requests import FinishReason, Request

_V = "vllm:"


class EngineMetrics(Book):
    """All families of one engine."""

    def __init__(self, config: EngineConfig, model_name: str, created: float) -> None:
        """`created` is the unix time that the `_created` twins tell."""
        self._speculates = config.speculative is not None
        labels = {"model_name": model_name, "engine": "0"}
        super().__init__(families(config.max_model_len, self._speculates), labels, created)
        self._cache_info = _cache_info(config)
        self.set(f"{_V}engine_sleep_state", 1.0, "awake")
        self._accepted = np.zeros(config.max_k, dtype=np.int64)

    def record(self, result: StepResult, running: int, waiting: int, kv_usage: float) -> None:
        """Book one step and the state after it."""
        self._add("num_preemptions_total", result.preempted)
        self._add("prefix_cache_queries_total", result.queried_tokens)
        self._add("prompt_tokens_total", result.prompt_tokens)
        self._add("prompt_tokens_by_source_total", result.prompt_tokens, "local_compute")
        self._add("generation_tokens_total", result.generated_tokens)
        self.histogram(f"{_V}inter_token_latency_seconds").observe_all(result.inter_token)
        for seconds in result.time_to_first:
            self.observe(f"{_V}time_to_first_token_seconds", seconds)
        if result.has_output:
            self.observe(f"{_V}iteration_tokens_total", result.prompt_tokens + result.generated_tokens)
        if self._speculates and len(result.accepted):
            self._record_drafts(result)
        self.gauges(running, waiting, kv_usage)

    def gauges(self, running: int, waiting: int, kv_usage: float) -> None:
        """Set what is true now."""
        self.set(f"{_V}num_requests_running", running)
        self.set(f"{_V}num_requests_waiting", waiting)
        self.set(f"{_V}num_requests_waiting_by_reason", waiting, "capacity")
        self.set(f"{_V}kv_cache_usage_perc", kv_usage)

    def finish(self, request: Request, reason: FinishReason, now: float) -> None:
        """Book the end of a request at engine time `now`."""
        self._add("request_success_total", 1, reason.value)
        scheduled = now if request.scheduled is None else request.scheduled
        first = scheduled if request.first_token is None else request.first_token
        last = first if request.last_token is None else request.last_token
        decode = last - first
        observed = {
            "request_prompt_tokens": request.prompt_tokens,
            "request_generation_tokens": request.generated,
            "request_max_num_generation_tokens": request.generated,
            "request_params_n": 1,
            "request_params_max_tokens": request.max_tokens,
            "request_time_per_output_token_seconds": decode / (request.generated - 1) if request.generated > 1 else 0.0,
            "e2e_request_latency_seconds": now - request.arrival,
            "request_queue_time_seconds": max(scheduled - request.arrival, 0.0),
            "request_inference_time_seconds": last - scheduled,
            "request_prefill_time_seconds": first - scheduled,
            "request_decode_time_seconds": decode,
            "request_num_preemptions": request.preemptions,
            "request_prefill_kv_computed_tokens": request.prompt_tokens,
        }
        for name, value in observed.items():
            self.observe(_V + name, value)

    def _add(self, name: str, amount: float, label: str = "") -> None:
        self.add(_V + name, amount, label)

    def _record_drafts(self, result: StepResult) -> None:
        counts = np.bincount(result.accepted, minlength=len(self._accepted) + 1)
        reached = np.cumsum(counts[::-1])[::-1][1:]
        self._accepted += reached
        self._add("spec_decode_num_drafts_total", len(result.accepted))
        self._add("spec_decode_num_draft_tokens_total", result.draft_tokens)
        self._add("spec_decode_num_accepted_tokens_total", int(result.accepted.sum()))

    def series(self, family: Family) -> Iterator[tuple[str, float]]:
        """As everywhere; accepted drafts are told by position."""
        if family.label == "position":
            yield from ((str(position), float(count)) for position, count in enumerate(self._accepted.tolist()))
            return
        yield from super().series(family)

    def _collect(self, family: Family) -> Metric:
        if family.name == f"{_V}cache_config_info":
            info = GaugeMetricFamily(family.name, family.help)
            labels = {**dict.fromkeys(family.labels, "None"), **self._cache_info, "engine": "0"}
            info.add_sample(family.name, labels, 1.0)
            return info
        return super()._collect(family)


def _cache_info(config: EngineConfig) -> Mapping[str, str]:
    """Labels of `vllm:cache_config_info` that this engine knows; others read "None", as a setting not given does."""
    pool = config.pool()
    values = {
        "block_size": config.block_size,
        "cache_dtype": config.cache_dtype,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "kv_cache_max_concurrency": f"{pool.tokens / config.max_model_len:.2f}",
        "kv_cache_memory_bytes": config.kv_cache_memory_bytes,
        "kv_cache_size_tokens": pool.tokens,
        "num_gpu_blocks": pool.blocks,
        "num_gpu_blocks_override": config.num_gpu_blocks_override,
    }
    return {name: str(value) for name, value in values.items()}
