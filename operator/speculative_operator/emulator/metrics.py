"""Counters, gauges and histograms of one engine with vLLM's semantics, exposed through prometheus_client.

`record` is called by `driver` at the end of every step, `finish` for every request that ends; `collect` by a scrape.
Counting is numpy on whole steps: nothing is looped per request but ends and first tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from speculative_operator.emulator.batch import Floats
from speculative_operator.emulator.core import StepResult
from speculative_operator.emulator.families import Family
from speculative_operator.emulator.requests import FinishReason, Request

_V = "vllm:"


class Histogram:
    """Counts per bucket and the sum of what was observed."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._edges = np.array(bounds)
        self._counts = np.zeros(len(bounds) + 1, dtype=np.int64)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One observation; a bucket takes values up to and with its bound."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Floats) -> None:
        """One observation of each value."""
        if len(values):
            self._counts += np.bincount(np.searchsorted(self._edges, values), minlength=len(self._counts))
            self.sum += float(values.sum())

    @property
    def count(self) -> int:
        return int(self._counts.sum())

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound as text, cumulative count), +Inf last."""
        bounds = [_text(bound) for bound in self._bounds] + ["+Inf"]
        return list(zip(bounds, np.cumsum(self._counts).astype(float).tolist(), strict=True))


class EngineMetrics(Collector):
    """All families of one engine."""

    def __init__(
        self,
        families: tuple[Family, ...],
        model_name: str,
        cache_info: Mapping[str, str],
        max_k: int,
        created: float,
        flops_per_token: float = 0.0,
        weight_bytes: float = 0.0,
        kv_bytes_per_token: float = 0.0,
    ) -> None:
        """`created` is the unix time that the `_created` twins tell; the last three feed the MFU counters (0: off)."""
        self._families = families
        self._cache_info = dict(cache_info)
        self._created = created
        self._fixed = {"model_name": model_name, "engine": "0"}
        self._flops, self._weights, self._kv_bytes = flops_per_token, weight_bytes, kv_bytes_per_token
        self._values: dict[tuple[str, str], float] = {}
        self._histograms: dict[str, Histogram] = {}
        for family in families:
            if family.kind == "histogram":
                self._histograms[family.name] = Histogram(family.buckets)
            for value in family.values or ("",):
                self._values[family.name, value] = 0.0
        self._values[f"{_V}engine_sleep_state", "awake"] = 1.0
        self._speculates = (f"{_V}spec_decode_num_drafts_total", "") in self._values
        self._accepted = np.zeros(max_k, dtype=np.int64)

    def value(self, name: str, label: str = "") -> float:
        """Current value of a counter or gauge, by family name and value of its varying label."""
        return self._values[name, label]

    def histogram(self, name: str) -> Histogram:
        return self._histograms[name]

    def record(self, result: StepResult, running: int, waiting: int, kv_usage: float) -> None:
        """Book one step and the state after it."""
        self._add("num_preemptions_total", result.preempted)
        self._add("prefix_cache_queries_total", result.queried_tokens)
        self._add("prompt_tokens_total", result.prompt_tokens)
        self._add("prompt_tokens_by_source_total", result.prompt_tokens, "local_compute")
        self._add("generation_tokens_total", result.generated_tokens)
        self._histograms[f"{_V}inter_token_latency_seconds"].observe_all(result.inter_token)
        for seconds in result.time_to_first:
            self._histograms[f"{_V}time_to_first_token_seconds"].observe(seconds)
        if result.has_output:
            self._histograms[f"{_V}iteration_tokens_total"].observe(result.prompt_tokens + result.generated_tokens)
        if self._speculates and len(result.accepted):
            self._record_drafts(result)
        if self._flops:
            self._record_work(result)
        self.gauges(running, waiting, kv_usage)

    def gauges(self, running: int, waiting: int, kv_usage: float) -> None:
        """Set what is true now."""
        self._values[f"{_V}num_requests_running", ""] = running
        self._values[f"{_V}num_requests_waiting", ""] = waiting
        self._values[f"{_V}num_requests_waiting_by_reason", "capacity"] = waiting
        self._values[f"{_V}kv_cache_usage_perc", ""] = kv_usage

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
            self._histograms[_V + name].observe(value)

    def reject(self, reason: str) -> None:
        """Book a request that a queue limit turned away."""
        self._add("admission_rejections_total", 1, reason)

    def collect(self) -> Iterator[Metric]:
        """Every family, in vLLM's order."""
        for family in self._families:
            yield self._collect(family)

    def _add(self, name: str, amount: float, label: str = "") -> None:
        self._values[_V + name, label] += amount

    def _record_drafts(self, result: StepResult) -> None:
        counts = np.bincount(result.accepted, minlength=len(self._accepted) + 1)
        reached = np.cumsum(counts[::-1])[::-1][1:]
        self._accepted += reached
        self._add("spec_decode_num_drafts_total", len(result.accepted))
        self._add("spec_decode_num_draft_tokens_total", result.draft_tokens)
        self._add("spec_decode_num_accepted_tokens_total", int(result.accepted.sum()))

    def _record_work(self, result: StepResult) -> None:
        tokens = result.prefill_tokens + result.draft_tokens + len(result.inter_token)
        self._add("estimated_flops_per_gpu_total", self._flops * tokens)
        self._add("estimated_read_bytes_per_gpu_total", self._weights + self._kv_bytes * result.context_tokens)
        self._add("estimated_write_bytes_per_gpu_total", self._kv_bytes * tokens)

    def _collect(self, family: Family) -> Metric:
        if family.kind == "histogram":
            return self._collect_histogram(family)
        if family.name == f"{_V}cache_config_info":
            info = GaugeMetricFamily(family.name, family.help)
            info.add_sample(family.name, {**self._cache_info, "engine": "0"}, 1.0)
            return info
        if family.kind == "gauge":
            gauge = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for labels, value in self._series(family):
                gauge.add_metric(labels, value)
            return gauge
        counter = CounterMetricFamily(family.name.removesuffix("_total"), family.help, labels=family.labels)
        for labels, value in self._series(family):
            counter.add_metric(labels, value, created=self._created)
        return counter

    def _collect_histogram(self, family: Family) -> Metric:
        histogram = self._histograms[family.name]
        labels = [self._fixed[label] for label in family.labels]
        metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        metric.add_metric(labels, histogram.buckets(), histogram.sum)
        metric.add_sample(f"{family.name}_created", dict(zip(family.labels, labels, strict=True)), self._created)
        return metric

    def _series(self, family: Family) -> Iterator[tuple[list[str], float]]:
        if family.label == "position":
            for position, count in enumerate(self._accepted.tolist()):
                yield self._labels(family, str(position)), float(count)
            return
        for value in family.values or ("",):
            yield self._labels(family, value), self._values[family.name, value]

    def _labels(self, family: Family, value: str) -> list[str]:
        return [self._fixed.get(label, value) for label in family.labels]


def _text(bound: float) -> str:
    """A bucket's bound as prometheus_client writes it."""
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]  # the library leaves it untyped
