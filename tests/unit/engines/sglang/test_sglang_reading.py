"""SGLang's reader against an engine of which the truth is known, and against what a process may leave out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engines.serving import START, Request, Truth, crowds_of, scrape, serve

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.sglang.reading import read

PASSES, TOKENS = "sglang:cuda_graph_passes_total", "sglang:realtime_tokens_total"
FLAT = {
    f"{PASSES}{{mode=decode_cuda_graph}}": 0.0,
    f"{TOKENS}{{mode=decode}}": 0.0,
    f"{TOKENS}{{mode=prefill_compute}}": 0.0,
    "sglang:time_to_first_token_seconds_count{is_streaming=true}": 0.0,
    "sglang:time_to_first_token_seconds_sum{is_streaming=true}": 0.0,
    "sglang:inter_token_latency_seconds_count": 0.0,
    "sglang:inter_token_latency_seconds_sum": 0.0,
    "sglang:generation_tokens_total{is_streaming=true}": 0.0,
    "sglang:num_requests_total{is_streaming=true}": 0.0,
    "sglang:scheduler_idle_seconds_total": 0.0,
    "sglang:num_running_reqs": 0.0,
    "sglang:num_queue_reqs": 0.0,
    "sglang:token_usage": 0.0,
    "sglang:max_total_num_tokens": 100_000.0,
    "sglang:spec_num_draft_tokens": 0.0,
    "sglang:spec_accept_length": 0.0,
}
VERIFIED = "sglang:spec_verify_calls_total"


def counted(truth: Truth, k: int | None, window: float, streamed: bool = True) -> dict[str, float]:
    """What the two processes would have counted of `truth`, in `window` seconds."""
    first, tokens = len(truth.requests), sum(request.tokens for request in truth.requests)
    seen = {
        f"{PASSES}{{mode=decode_cuda_graph}}": truth.passes,
        f"{TOKENS}{{mode=decode}}": truth.decode_tokens,
        f"{TOKENS}{{mode=prefill_compute}}": sum(request.prompt for request in truth.requests),
        "sglang:time_to_first_token_seconds_count{is_streaming=true}": first,
        "sglang:time_to_first_token_seconds_sum{is_streaming=true}": 0.1 * first,
        "sglang:generation_tokens_total{is_streaming=true}": tokens,
        "sglang:num_requests_total{is_streaming=true}": first,
        "sglang:scheduler_idle_seconds_total": window - truth.seconds,
        "sglang:num_running_reqs": 3,
        "sglang:token_usage": 0.4,
    }
    if streamed:
        seen |= {
            "sglang:inter_token_latency_seconds_count": truth.decode_tokens,
            "sglang:inter_token_latency_seconds_sum": truth.step_seconds,
        }
    if k is not None:
        seen |= {VERIFIED: truth.request_steps, "sglang:spec_num_draft_tokens": k + 1}
    return {**FLAT, **seen}


def points(end: Mapping[str, float], window: float, k: int | None = None) -> list[tuple[float, Mapping[str, float]]]:
    start = {**FLAT, **({VERIFIED: 0.0} if VERIFIED in end else {})}
    if k is not None:
        start["sglang:spec_num_draft_tokens"] = k + 1
    return [(0.0, start), (window, end)]


def seen(series: list[Series], window: float, **others: Any) -> PodWindow | Gap:
    now = others.pop("now", START + window + 1)
    return read(series, ["pod-0"], others.pop("since", {}), now, 60.0)["pod-0"]


def window_of(series: list[Series], window: float, **others: Any) -> PodWindow:
    found = seen(series, window, **others)
    assert isinstance(found, PodWindow), found
    return found


def gap_of(series: list[Series], window: float, **others: Any) -> Gap:
    found = seen(series, window, **others)
    assert isinstance(found, Gap), found
    return found


crowds = crowds_of(shortest=40)


@settings(max_examples=40, deadline=None)
@given(crowds, st.integers(1, 8))
def test_every_figure_is_exact_where_requests_live_within_the_window(crowd: list[Request], at_once: int) -> None:
    truth = serve(crowd, at_once=at_once)
    long = truth.seconds + 5
    found = window_of(scrape(points(counted(truth, 3, long), long, 3)), long)
    assert found.steps == truth.passes
    assert found.decode_request_steps == pytest.approx(truth.request_steps)
    assert found.step_seconds == pytest.approx(truth.step_seconds)
    assert found.batch == pytest.approx(truth.request_steps / truth.passes)
    assert found.step_period == pytest.approx(0.02)
    assert found.tokens_per_step == pytest.approx(truth.decode_tokens / truth.request_steps)
    assert found.generated_tokens == truth.decode_tokens + len(crowd)
    assert found.prompt_tokens == 100 * len(crowd)
    assert found.mean_k == pytest.approx(3)
    assert found.accepted_tokens == pytest.approx(truth.decode_tokens - truth.request_steps)


@settings(max_examples=40, deadline=None)
@given(crowds)
def test_without_a_speculator_a_token_is_a_step(crowd: list[Request]) -> None:
    plain = [Request((1,) * len(request.gains)) for request in crowd]
    truth = serve(plain)
    found = window_of(scrape(points(counted(truth, None, 60), 60)), 60)
    assert found.decode_request_steps == truth.request_steps == truth.decode_tokens
    assert found.tokens_per_step == 1.0
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (None, None, None)


@settings(max_examples=40, deadline=None)
@given(crowds)
def test_where_nothing_is_streamed_time_is_what_was_not_idle(crowd: list[Request]) -> None:
    truth = serve(crowd)
    found = window_of(scrape(points(counted(truth, 3, 60, streamed=False), 60, 3)), 60)
    assert found.step_period == pytest.approx(0.02)


def busy(window: float = 30.0) -> tuple[Truth, dict[str, float]]:
    truth = serve([Request((3,) * 40)] * 8)
    return truth, counted(truth, 4, window)


def test_gauges_are_not_believed_when_nothing_ran() -> None:
    """The scheduler refreshes them every 40 passes: while it idles they tell of the last batch."""
    _, end = busy()
    found = window_of(scrape([(0, end), (30, end)]), 30)
    assert (found.running, found.waiting, found.kv_usage) == (0, 0, None)
    assert (found.steps, found.decode_request_steps, found.drafts) == (0, 0, None)


def test_load_and_memory_come_from_the_gauges() -> None:
    _, end = busy()
    found = window_of(scrape(points({**end, "sglang:num_queue_reqs": 2}, 30, 4)), 30)
    assert (found.running, found.waiting, found.kv_usage, found.kv_capacity_tokens) == (3, 2, 0.4, 100_000)


def test_the_mean_k_of_a_window_follows_the_gauge_of_its_scrapes() -> None:
    """Half of the scrapes found no drafts in force: half of the request-steps drafted."""
    _, end = busy()
    half = {name: value / 2 if "{" in name or name == VERIFIED else value for name, value in end.items()}
    half["sglang:spec_num_draft_tokens"] = 1
    found = window_of(scrape([*points(end, 30, 4)[:1], (15, half), (30, end)]), 30)
    assert found.drafts == pytest.approx(found.decode_request_steps / 2)
    assert found.mean_k == pytest.approx(2.0)


def test_until_a_request_ends_the_engine_tells_its_own_mean() -> None:
    truth, end = busy()
    for name in (
        VERIFIED,
        "sglang:generation_tokens_total{is_streaming=true}",
        "sglang:num_requests_total{is_streaming=true}",
    ):
        end[name] = 0
    end["sglang:spec_accept_length"] = 3.0
    found = window_of(scrape(points(end, 30, 4)), 30)
    assert found.decode_request_steps == pytest.approx(truth.request_steps)


def test_too_few_passes_to_know_k_or_gain_wait_for_more() -> None:
    truth = serve([Request((3,) * 5)])
    found = gap_of(scrape(points(counted(truth, 4, 30), 30, 4)), 30)
    assert found.reason is Reason.COLLECTING


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({f"{TOKENS}{{mode=decode}}": 0.0}, Reason.METRICS_ABSURD),
        ({"sglang:inter_token_latency_seconds_sum": 0.0}, Reason.METRICS_ABSURD),
        ({VERIFIED: 1.0}, Reason.METRICS_ABSURD),
        ({f"{PASSES}{{mode=decode_cuda_graph}}": 10_000.0}, Reason.METRICS_ABSURD),
        ({"sglang:num_running_reqs": float("nan")}, Reason.METRICS_ABSURD),
    ],
)
def test_figures_that_contradict_each_other_are_a_gap(changes: dict[str, float], reason: Reason) -> None:
    _, end = busy()
    assert gap_of(scrape(points({**end, **changes}, 30, 4)), 30).reason is reason


def test_a_restart_a_stale_pod_and_an_absent_one_are_gaps() -> None:
    _, end = busy()
    assert gap_of(scrape([(0, end), (30, FLAT | {VERIFIED: 0.0})]), 30).reason is Reason.COUNTER_RESET
    assert gap_of(scrape(points(end, 30, 4)), 30, now=START + 300).reason is Reason.METRICS_STALE
    assert gap_of([], 30).reason is Reason.METRICS_MISSING


def test_latencies_of_streamed_answers_are_counted_by_bucket() -> None:
    """TPOT of all requests that ended; the first token of an answer that is not streamed is told at its end."""
    _, end = busy()
    buckets = [
        Series(f"sglang:{name}_seconds_bucket", {"pod": "pod-0", "le": le, "is_streaming": streamed},
               ((START, 0.0), (START + 30, count)))
        for name in ("time_to_first_token", "request_time_per_output_token")
        for streamed, counts in (("true", (2.0, 5.0)), ("false", (0.0, 7.0)))
        for le, count in zip(("0.1", "+Inf"), counts, strict=True)
    ]  # fmt: skip
    found = window_of([*scrape(points(end, 30, 4)), *buckets], 30)
    assert found.ttft_histogram == ((0.1, 2.0), (math.inf, 3.0))
    assert found.tpot_histogram == ((0.1, 2.0), (math.inf, 10.0))


def test_only_the_first_stage_of_a_pipeline_counts() -> None:
    truth, end = busy()
    stages = [series for rank in "01" for series in scrape(points(end, 30, 4), pp_rank=rank)]
    assert window_of(stages, 30).steps == truth.passes


def test_schedulers_of_data_parallel_ranks_add_up() -> None:
    truth, end = busy()
    ranks = [series for rank in "01" for series in scrape(points(end, 30, 4), dp_rank=rank)]
    found = window_of(ranks, 30)
    assert found.steps == 2 * truth.passes
    assert found.batch == pytest.approx(truth.request_steps / truth.passes)
    assert found.kv_capacity_tokens == 200_000


def test_names_are_plain_and_unique() -> None:
    assert len(set(read.names)) == len(read.names)
    assert all(name.startswith("sglang:") for name in read.names)
