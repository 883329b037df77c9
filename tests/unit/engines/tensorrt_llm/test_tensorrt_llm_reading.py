"""TensorRT-LLM's reader against an engine of which the truth is known, and against what a release may leave out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from tests.unit.engines.serving import START, Request, Truth, crowds_of, scrape, serve

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.tensorrt_llm.reading import ACCEPTED, DRAFTED, read

ENDED = "trtllm_request_success_total{finished_reason=stop}"
GAUGES = {
    "trtllm_num_requests_running": 0.0,
    "trtllm_num_requests_waiting": 0.0,
    "trtllm_num_generation_requests": 0.0,
    "trtllm_kv_cache_utilization": 0.0,
    "trtllm_kv_cache_max_blocks": 1000.0,
    "trtllm_kv_cache_tokens_per_block": 32.0,
}
FLAT = {
    ENDED: 0.0,
    "trtllm_generation_tokens_total": 0.0,
    "trtllm_prompt_tokens_total": 0.0,
    "trtllm_prompt_cached_tokens_total": 0.0,
    "trtllm_request_decode_time_seconds_sum": 0.0,
    "trtllm_time_to_first_token_seconds_count": 0.0,
    "trtllm_time_to_first_token_seconds_sum": 0.0,
    **GAUGES,
}


def by_position(truth: Truth, k: int) -> tuple[list[int], list[int]]:
    """Drafted and accepted at each of `k` positions, every pass verifying all of them."""
    gains = [gain for request in truth.requests for gain in request.gains]
    return [len(gains)] * k, [sum(gain > place for gain in gains) for place in range(1, k + 1)]


def counted(truth: Truth, k: int) -> dict[str, float]:
    """What would have been counted once all requests of `truth` have ended."""
    first = len(truth.requests)
    seen: dict[str, float] = {
        **FLAT,
        ENDED: first,
        "trtllm_generation_tokens_total": truth.decode_tokens + first,
        "trtllm_prompt_tokens_total": 100 * first,
        "trtllm_prompt_cached_tokens_total": 30 * first,
        "trtllm_request_decode_time_seconds_sum": truth.step_seconds,
        "trtllm_time_to_first_token_seconds_count": first,
        "trtllm_time_to_first_token_seconds_sum": 0.2 * first,
        "trtllm_num_requests_running": 4,
        "trtllm_num_requests_waiting": 1,
        "trtllm_num_generation_requests": truth.request_steps / truth.passes,
        "trtllm_kv_cache_utilization": 0.5,
    }
    drafted, accepted = by_position(truth, k)
    for place in range(k):
        seen[f"{DRAFTED}{{token_position={place}}}"] = drafted[place]
        seen[f"{ACCEPTED}{{token_position={place}}}"] = accepted[place]
    return seen


def points(end: Mapping[str, float]) -> list[tuple[float, Mapping[str, float]]]:
    return [(0.0, {**dict.fromkeys(end, 0.0), **GAUGES}), (30.0, end)]


def seen(series: Sequence[Series], now: float = START + 31) -> PodWindow | Gap:
    return read(series, ["pod-0"], {}, now, 60.0)["pod-0"]


def window_of(end: Mapping[str, float], **others: Any) -> PodWindow:
    found = seen(scrape(points(end)), **others)
    assert isinstance(found, PodWindow), found
    return found


def gap_of(series: Sequence[Series], **others: Any) -> Gap:
    found = seen(series, **others)
    assert isinstance(found, Gap), found
    return found


@settings(max_examples=40, deadline=None)
@given(crowds_of(shortest=10))
def test_every_figure_is_exact_for_requests_that_ended(crowd: list[Request]) -> None:
    truth = serve(crowd)
    found = window_of(counted(truth, 3))
    assert found.decode_request_steps == truth.request_steps
    assert found.steps == pytest.approx(truth.passes)
    assert found.step_seconds == pytest.approx(truth.step_seconds)
    assert found.tokens_per_step == pytest.approx(truth.decode_tokens / truth.request_steps)
    assert found.drafts == truth.request_steps
    assert found.mean_k == 3
    drafted, accepted = by_position(truth, 3)
    assert (found.drafted_per_position, found.accepted_per_position) == (tuple(drafted), tuple(accepted))
    assert found.accepted_tokens == truth.decode_tokens - truth.request_steps
    assert found.prompt_tokens == 70 * len(crowd)
    assert (found.running, found.waiting, found.kv_usage, found.kv_capacity_tokens) == (4, 1, 0.5, 32_000)


@settings(max_examples=20, deadline=None)
@given(crowds_of(shortest=10, k=0))
def test_without_a_speculator_a_token_is_a_step(crowd: list[Request]) -> None:
    truth = serve(crowd)
    found = window_of(counted(truth, 0))
    assert found.decode_request_steps == truth.request_steps == truth.decode_tokens
    assert (found.drafts, found.draft_tokens, found.accepted_per_position) == (None, None, ())


def test_steps_that_drafted_nothing_are_counted_by_their_token() -> None:
    """An n-gram lookup finds nothing in most steps: each of these yields one token and no draft."""
    truth = serve([Request((3,) * 20 + (1,) * 30)] * 4)
    end = counted(truth, 2)
    for place in range(2):
        end[f"{DRAFTED}{{token_position={place}}}"] = 80
    found = window_of(end)
    assert (found.decode_request_steps, found.drafts) == (200, 80)
    assert found.mean_k == pytest.approx(160 / 200)


def test_answers_cut_off_do_not_lower_the_steps() -> None:
    truth = serve([Request((3,) * 20)] * 4)
    end = counted(truth, 2)
    end["trtllm_generation_tokens_total"] -= 4
    assert window_of(end).decode_request_steps == truth.request_steps


def test_a_schedule_drafts_less_at_later_positions() -> None:
    truth = serve([Request((2,) * 40)] * 4)
    end = counted(truth, 3)
    end[f"{DRAFTED}{{token_position=2}}"] = 40
    found = window_of(end)
    assert found.drafted_per_position == (160, 160, 40)
    assert found.mean_k == pytest.approx(360 / 160)


def test_gauges_are_not_believed_while_nothing_ends() -> None:
    end = counted(serve([Request((3,) * 20)] * 4), 2)
    found = seen(scrape([(0, end), (30, end)]))
    assert isinstance(found, PodWindow)
    assert (found.running, found.waiting, found.kv_usage, found.decode_request_steps) == (0, 0, None, 0)


def test_a_release_without_these_counters_says_that_it_cannot_be_tuned() -> None:
    """1.2: request_success_total and histograms of whole requests only."""
    old = {ENDED: 0.0, "trtllm_time_to_first_token_seconds_count": 0.0, "trtllm_time_to_first_token_seconds_sum": 0.0}
    found = gap_of(scrape([(0, old), (30, {**old, ENDED: 5})]))
    assert found.reason is Reason.UNSUPPORTED_BY_ENGINE
    assert "before 1.3" in found.message


@pytest.mark.parametrize(
    "changes",
    [
        {"trtllm_request_decode_time_seconds_sum": 0.0},
        {"trtllm_time_to_first_token_seconds_count": 1000.0},
        {f"{ACCEPTED}{{token_position=0}}": 1000.0},
        {f"{DRAFTED}{{token_position=0}}": 1000.0},
    ],
)
def test_figures_that_contradict_each_other_are_a_gap(changes: dict[str, float]) -> None:
    end = counted(serve([Request((3,) * 20)] * 4), 2)
    assert gap_of(scrape(points({**end, **changes}))).reason is Reason.METRICS_ABSURD


def test_a_missing_position_a_restart_and_an_absent_pod_are_gaps() -> None:
    end = counted(serve([Request((3,) * 20)] * 4), 2)
    holed = {name: value for name, value in end.items() if name != f"{DRAFTED}{{token_position=0}}"}
    assert gap_of(scrape(points(holed))).reason is Reason.METRICS_PARTIAL
    assert gap_of(scrape([(0, end), (30, dict.fromkeys(end, 0.0))])).reason is Reason.COUNTER_RESET
    assert gap_of([]).reason is Reason.METRICS_MISSING


def test_latencies_are_counted_by_bucket() -> None:
    end = counted(serve([Request((3,) * 20)] * 4), 2)
    buckets = {
        f"trtllm_time_{name}_seconds_bucket{{le={le}}}": count
        for name, counts in (("to_first_token", (1.0, 4.0)), ("per_output_token", (3.0, 4.0)))
        for le, count in zip(("0.01", "+Inf"), counts, strict=True)
    }
    found = window_of(end | buckets)
    assert found.ttft_histogram == ((0.01, 1.0), (math.inf, 3.0))
    assert found.tpot_histogram == ((0.01, 3.0), (math.inf, 1.0))


def test_names_are_plain_and_unique() -> None:
    assert len(set(read.names)) == len(read.names)
    assert all(name.startswith("trtllm_") for name in read.names)
