"""Counters, histograms and the identities between them that a reader of vLLM's metrics relies on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Reference
from tests.unit.emulator.building import Run, configured, quiet, speculation

from speculative_lab.emulator.book import Histogram
from speculative_lab.emulator.families import families, one_two_five
from speculative_lab.emulator.requests import FinishReason

BOUNDS = (0.01, 0.025, 0.5, 2.5)


@given(st.lists(st.floats(0.0, 5.0) | st.sampled_from(BOUNDS)))
def test_histogram_counts_as_prometheus_client_does(values: list[float]) -> None:
    ours, one_by_one = Histogram(BOUNDS), Histogram(BOUNDS)
    registry = CollectorRegistry()
    theirs = Reference("h", "help", buckets=BOUNDS, registry=registry)
    ours.observe_all(np.array(values))
    for value in values:
        theirs.observe(value)
        one_by_one.observe(value)
    samples = {sample.labels.get("le"): sample.value for metric in registry.collect() for sample in metric.samples}
    for found in (ours, one_by_one):
        assert dict(found.buckets()) == {bound: samples[bound] for bound, _ in found.buckets()}
        assert found.count == len(values)
        assert found.sum == pytest.approx(sum(values))


@pytest.mark.parametrize("k", [0, 1, 4])
def test_identities(k: int) -> None:
    """R, F, G, N, D, T, A, P of a finished load hang together as they do in vLLM."""
    flags = speculation(4, [[1, 256, k]], method="draft_model") if k else ()
    run = Run(configured(*flags))
    for index in range(12):
        run.add(prompt=30 + index, output=5 * index + 1)
        run.step()
    run.until_idle()
    requests, tokens = run.ended, run.count("generation_tokens")
    decode_steps = run.metrics.histogram("vllm:inter_token_latency_seconds").count
    first = run.metrics.histogram("vllm:time_to_first_token_seconds").count
    iterations = run.metrics.histogram("vllm:iteration_tokens_total")
    assert tokens == sum(request.target for request in requests)
    assert first == len(requests) == run.count("request_success", "length")
    assert run.count("prompt_tokens") == sum(request.prompt_tokens for request in requests)
    assert run.count("prompt_tokens_by_source", "local_compute") == run.count("prompt_tokens")
    assert iterations.sum == run.count("prompt_tokens") + tokens, "drafts are not in it"
    assert iterations.count == sum(result.has_output for result in run.results)
    if not k:
        assert (tokens - first) / decode_steps == 1
        return
    drafts, draft_tokens = run.count("spec_decode_num_drafts"), run.count("spec_decode_num_draft_tokens")
    accepted = run.count("spec_decode_num_accepted_tokens")
    assert drafts == decode_steps, "every decoding request verifies drafts in every step"
    assert draft_tokens == k * drafts
    assert tokens - first <= decode_steps + accepted, "acceptance is counted before the cut at max_tokens"
    positions = _positions(run)
    assert len(positions) == 4
    assert sum(positions) == accepted
    assert sorted(positions, reverse=True) == positions
    assert positions[k:] == [0.0] * (4 - k)


def _positions(run: Run) -> list[float]:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos"
    found = next(metric for metric in run.metrics.collect() if metric.name == name)
    return [sample.value for sample in found.samples if sample.name == f"{name}_total"]


def test_step_periods_add_up() -> None:
    run = Run(configured(*speculation(3)), quiet())
    run.add(prompt=30, output=80)
    run.until_idle()
    latency = run.metrics.histogram("vllm:inter_token_latency_seconds")
    request = run.ended[0]
    assert request.first_token is not None
    assert latency.sum == pytest.approx(run.now - request.first_token)
    assert run.metrics.histogram("vllm:request_decode_time_seconds").sum == pytest.approx(latency.sum)
    assert run.metrics.histogram("vllm:request_time_per_output_token_seconds").sum == pytest.approx(latency.sum / 79)
    assert run.metrics.histogram("vllm:e2e_request_latency_seconds").sum == pytest.approx(run.now)


def test_iterations_without_output_are_not_counted() -> None:
    run = Run(configured("--max-num-batched-tokens", "256"), quiet())
    run.add(prompt=700, output=1)
    run.until_idle()
    assert len(run.results) == 3
    iterations = run.metrics.histogram("vllm:iteration_tokens_total")
    assert (iterations.count, iterations.sum) == (1, 701)


def test_gauges_follow_the_state() -> None:
    run = Run(configured("--max-num-seqs", "2"), quiet())
    for _ in range(3):
        run.add(prompt=160, output=20)
    run.step()
    assert run.metrics.value("vllm:num_requests_running") == 2
    assert run.metrics.value("vllm:num_requests_waiting_by_reason", "capacity") == 1
    assert run.metrics.value("vllm:kv_cache_usage_perc") == pytest.approx(2 * 10 / configured().pool().blocks)
    run.until_idle()
    assert run.metrics.value("vllm:num_requests_running") == 0
    assert run.metrics.value("vllm:kv_cache_usage_perc") == 0


def test_aborted_requests_are_counted_as_such() -> None:
    run = Run(configured(), quiet())
    request = run.add(prompt=10, output=50)
    run.step()
    run.core.abort(request)
    run.metrics.finish(request, FinishReason.ABORT, run.now)
    assert run.count("request_success", "abort") == 1
    assert run.metrics.histogram("vllm:request_generation_tokens").sum == 1


def test_prefix_cache_is_asked_and_never_hits() -> None:
    run = Run(configured(), quiet())
    run.add(prompt=30, output=4)
    run.until_idle()
    assert (run.count("prefix_cache_queries"), run.count("prefix_cache_hits")) == (30, 0)


def test_length_buckets_follow_the_context() -> None:
    assert one_two_five(1024) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    assert one_two_five(4) == (1, 2)
    found = {family.name: family for family in families(8, False)}
    assert found["vllm:request_prompt_tokens"].buckets == (1, 2, 5)
    assert found["vllm:request_params_n"].buckets == (1, 2, 5, 10, 20)
