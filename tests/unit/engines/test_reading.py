"""The metric reader against recorded figures of a real vLLM 0.32.0 and against everything that can be wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from tests.unit.engines.exposition import IDLE, PER_POSITION, info, scrapes, speculating
from tests.unit.failing import failing

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.vllm.reading import METRIC_NAMES, read

NOW = 1_700_000_100.0
T0, T1, T2 = NOW - 35, NOW - 20, NOW - 5
BUSY: dict[str, float] = {
    **IDLE,
    "vllm:iteration_tokens_total_count": 100,
    "vllm:inter_token_latency_seconds_count": 400,
    "vllm:inter_token_latency_seconds_sum": 4.0,
    "vllm:time_to_first_token_seconds_count": 8,
    "vllm:time_to_first_token_seconds_sum": 1.5,
    "vllm:generation_tokens_total": 808,
    "vllm:prompt_tokens_total": 5000,
    "vllm:num_requests_running": 4,
    "vllm:num_requests_waiting": 2,
    "vllm:num_preemptions_total": 1,
    "vllm:kv_cache_usage_perc": 0.25,
    **speculating(400, 1200, (250, 120, 30)),
}
ZERO = dict.fromkeys(BUSY, 0.0)


def read_one(series: list[Series], since: Mapping[str, float] | None = None, now: float = NOW) -> PodWindow | Gap:
    return read(series, ["qwen-0"], since or {}, now, 60.0)["qwen-0"]


def window(series: list[Series], since: Mapping[str, float] | None = None) -> PodWindow:
    seen = read_one(series, since)
    assert isinstance(seen, PodWindow), seen
    return seen


def gap(series: list[Series], since: Mapping[str, float] | None = None, now: float = NOW) -> Gap:
    seen = read_one(series, since, now)
    assert isinstance(seen, Gap), seen
    return seen


@dataclass(frozen=True)
class Run:
    """A recorded run of 44 greedy requests of 64 tokens, and the figures computed from it (docs/metrics.md)."""

    steps: int
    request_steps: int
    drafts: tuple[float, float, tuple[float, ...]] | None
    batch: float
    gain: float
    length: float | None
    tau_ms: float


RUNS = {
    "no speculation": Run(1673, 2772, None, 1.657, 1.000, None, 5.36),
    "draft_model K=4": Run(1006, 1709, (1709, 6836, (679, 277, 94, 41)), 1.699, 1.622, 1.638, 11.75),
    "ngram K=4": Run(1117, 1787, (749, 2822, (1042, 0, 0, 0)), 1.600, 1.551, 2.391, 8.85),
    "suffix K=8": Run(957, 1478, (1127, 3006, (1376,) + (0,) * 7), 1.544, 1.876, 2.221, 4.79),
}


@pytest.mark.parametrize("name", RUNS)
def test_recorded_runs_give_the_recorded_figures(name: str) -> None:
    run = RUNS[name]
    totals: dict[str, float] = {
        **IDLE,
        "vllm:iteration_tokens_total_count": run.steps,
        "vllm:inter_token_latency_seconds_count": run.request_steps,
        "vllm:inter_token_latency_seconds_sum": run.request_steps * run.tau_ms / 1e3,
        "vllm:time_to_first_token_seconds_count": 44,
        "vllm:generation_tokens_total": 2816,
        "vllm:prompt_tokens_total": 391,
    }
    if run.drafts is not None:
        drafts, tokens, accepted = run.drafts
        totals |= speculating(drafts, tokens, accepted)
        if sum(accepted[1:]) == 0:  # only the sum was recorded
            totals = {key: value for key, value in totals.items() if "/" not in key}
    seen = window(scrapes([(T0, dict.fromkeys(totals, 0.0)), (T2, totals)]))
    assert seen.batch == pytest.approx(run.batch, abs=5e-4)
    assert seen.tokens_per_step == pytest.approx(run.gain, abs=5e-4)
    assert seen.step_period == pytest.approx(run.tau_ms / 1e3)
    assert (seen.acceptance_length is None) == (run.length is None)
    if run.length is not None:
        assert seen.acceptance_length == pytest.approx(run.length, abs=5e-4)
    else:
        assert (seen.drafts, seen.draft_tokens, seen.accepted_tokens, seen.accepted_per_position) == (
            None, None, None, (),
        )  # fmt: skip


def test_differences_are_exact_and_complete() -> None:
    start = {key: value * 7 for key, value in BUSY.items()}
    end = {key: value * 8 for key, value in BUSY.items()} | {
        "vllm:num_requests_running": 4.0, "vllm:num_requests_waiting": 2.0, "vllm:kv_cache_usage_perc": 0.25,
    }  # fmt: skip
    seen = window([*scrapes([(T0, start), (T2, end)]), info(T2, kv_cache_size_tokens="149760")])
    assert seen == PodWindow(
        start=T0, end=T2, steps=100, decode_request_steps=400, step_seconds=4.0, first_tokens=8,
        generated_tokens=808, prompt_tokens=5000, running=4, waiting=2, preemptions=1, kv_usage=0.25,
        kv_capacity_tokens=149760, drafts=400, draft_tokens=1200, accepted_tokens=400,
        accepted_per_position=(250, 120, 30), ttft_seconds=1.5,
    )  # fmt: skip
    assert seen.tpot == pytest.approx(0.01 / 2)


def test_window_begins_at_the_last_sample_consumed() -> None:
    middle = {key: value / 4 for key, value in BUSY.items()}
    series = scrapes([(T0, ZERO), (T1, middle), (T2, BUSY)])
    assert (window(series).start, window(series).steps) == (T0, 100)
    assert (window(series, {"qwen-0": T1}).start, window(series, {"qwen-0": T1}).steps) == (T1, 75)
    assert window(series, {"qwen-0": T1 - 3}).start == T1, "since lies between two scrapes: nothing counts twice"
    assert window(series, {"qwen-0": T0 - 300}).start == T0, "since has left the range"
    assert window(series, {"other": T1}).start == T0


def test_consecutive_windows_add_up_to_the_whole() -> None:
    points = [(T0 + 5 * i, {key: value * i**2 for key, value in BUSY.items()}) for i in range(7)]
    points = [(time, totals | {"vllm:kv_cache_usage_perc": 0.5}) for time, totals in points]
    whole = window(scrapes(points))
    since: dict[str, float] = {}
    total = 0.0
    for stop in (3, 5, 7):
        seen = read(scrapes(points[:stop]), ["qwen-0"], since, points[stop - 1][0], 60.0)["qwen-0"]
        assert isinstance(seen, PodWindow)
        since = {"qwen-0": seen.end}
        total += seen.generated_tokens
    assert total == whole.generated_tokens


def test_gauges_are_means_of_the_scrapes_after_the_start() -> None:
    def at(running: float, usage: float) -> dict[str, float]:
        return BUSY | {"vllm:num_requests_running": running, "vllm:kv_cache_usage_perc": usage}

    seen = window(scrapes([(T0, at(100, 0.9)), (T1, at(2, 0.2)), (T2, at(4, 0.4))]))
    assert seen.running == 3.0
    assert seen.kv_usage == pytest.approx(0.3)


def test_engines_of_a_pod_are_added() -> None:
    series = [
        *scrapes([(T0, ZERO), (T2, BUSY)], engine="0"),
        *scrapes([(T0, BUSY), (T2, {key: value * 3 for key, value in BUSY.items()})], engine="1"),
    ]
    series = [s for s in series if s.name != "vllm:kv_cache_usage_perc"]
    series += [
        Series("vllm:kv_cache_usage_perc", {"pod": "qwen-0", "engine": str(engine)}, ((T0, 0.0), (T2, usage)))
        for engine, usage in enumerate((0.2, 0.6))
    ]
    series += [info(T2, engine="0", kv_cache_size_tokens="1000"), info(T2, engine="1", kv_cache_size_tokens="500")]
    seen = window(series)
    assert (seen.steps, seen.drafts, seen.running, seen.accepted_per_position) == (300, 1200, 16, (750, 360, 90))
    assert seen.kv_usage == pytest.approx(0.4)
    assert seen.kv_capacity_tokens == 1500


def test_an_engine_that_lacks_a_series_makes_the_pod_partial() -> None:
    second = [s for s in scrapes([(T0, ZERO), (T2, BUSY)], engine="1") if "generation" not in s.name]
    problem = gap([*scrapes([(T0, ZERO), (T2, BUSY)]), *second])
    assert (problem.reason, "generation_tokens_total" in problem.message) == (Reason.METRICS_PARTIAL, True)


def test_two_scrape_jobs_of_one_pod_count_once() -> None:
    one, two = (scrapes([(T0 + late, ZERO), (T2 + late, BUSY)], job=job) for job, late in (("a", 0.0), ("b", 3.0)))
    assert window([*one, *two]).steps == window([*two, *one]).steps == 100
    gone = scrapes([(NOW - 300, ZERO), (NOW - 200, BUSY)], job="0")
    assert window([*gone, *two]).end == T2 + 3, "a job that ended is no longer listened to"


@pytest.mark.parametrize(
    ("labels", "capacity"),
    [
        ({"kv_cache_size_tokens": "149760", "num_gpu_blocks": "1170", "block_size": "128"}, 149760),
        ({"kv_cache_size_tokens": "None", "num_gpu_blocks": "1170", "block_size": "128"}, 149760),
        ({"num_gpu_blocks": "1170", "block_size": "128"}, 149760),
        ({"num_gpu_blocks": "None", "block_size": "128"}, None),
        ({"kv_cache_size_tokens": "0"}, None),
        ({"kv_cache_size_tokens": "-5"}, None),
        ({"kv_cache_size_tokens": "9" * 400}, None),
        ({}, None),
    ],
)
def test_kv_capacity(labels: dict[str, str], capacity: float | None) -> None:
    assert window([*scrapes([(T0, ZERO), (T2, BUSY)]), info(T2, **labels)]).kv_capacity_tokens == capacity


def test_info_of_the_process_before_is_passed_over() -> None:
    series = [*scrapes([(T0, ZERO), (T2, BUSY)]), info(T0 - 20, num_gpu_blocks="7", block_size="1")]
    assert window(series).kv_capacity_tokens is None
    assert window([*series, info(T2, num_gpu_blocks="9", block_size="2")]).kv_capacity_tokens == 18


def test_prompt_tokens_leave_out_the_cached_ones() -> None:
    def totals(**more: float) -> list[Series]:
        return scrapes([(T0, ZERO | dict.fromkeys(more, 0.0)), (T2, BUSY | more)])

    assert window(totals(**{"vllm:prompt_tokens_cached_total": 1200.0})).prompt_tokens == 3800
    sources = [
        Series("vllm:prompt_tokens_by_source_total", {"pod": "qwen-0", "source": source}, ((T0, 0.0), (T2, count)))
        for source, count in (("local_compute", 700.0), ("local_cache_hit", 4000.0), ("external_kv_transfer", 300.0))
    ]
    assert window([*totals(), *sources]).prompt_tokens == 700


def test_idle_pod_gives_a_window_of_nothing() -> None:
    seen = window(scrapes([(T0, BUSY), (T2, BUSY)]))
    assert (seen.steps, seen.generated_tokens, seen.drafts) == (0, 0, 0)
    assert seen.tpot is None


def test_no_series_is_missing_and_other_pods_do_not_help() -> None:
    assert gap([]).reason is Reason.METRICS_MISSING
    assert gap(scrapes([(T0, ZERO), (T2, BUSY)], pod="other-0")).reason is Reason.METRICS_MISSING
    assert gap([Series(name, {"pod": "qwen-0"}, ()) for name in METRIC_NAMES]).reason is Reason.METRICS_MISSING
    seen = read(scrapes([(T0, ZERO), (T2, BUSY)]), ["qwen-0", "qwen-1"], {}, NOW, 60.0)
    assert isinstance(seen["qwen-0"], PodWindow)
    assert isinstance(seen["qwen-1"], Gap)


@pytest.mark.parametrize(("ends", "first", "later"), [(T2, T2 + 61, T2 + 70), (T2, T2 - 61, T2 - 70)])
def test_a_message_does_not_move_with_the_clock(ends: float, first: float, later: float) -> None:
    """It stands in a condition, which would be written at each tick."""
    series = scrapes([(T0, ZERO), (ends, BUSY)])
    assert gap(series, now=first).message == gap(series, now=later).message


def test_the_message_of_a_series_that_ended_does_not_grow_with_its_age() -> None:
    short = [s for s in scrapes([(T0, ZERO)]) if "generation" in s.name]

    def told(end: float) -> str:
        problem = gap([*(s for s in scrapes([(T0, ZERO), (end, BUSY)]) if "generation" not in s.name), *short])
        assert problem.reason is Reason.METRICS_PARTIAL
        return problem.message

    assert told(T2) == told(T2 - 5.0)


def test_age_is_judged_by_the_newest_sample() -> None:
    series = scrapes([(T0, ZERO), (T2, BUSY)])
    assert gap(series, now=T2 + 61).reason is Reason.METRICS_STALE
    assert isinstance(read_one(series, now=T2 + 59), PodWindow)
    ahead = gap(series, now=T2 - 61)
    assert (ahead.reason, "clocks differ" in ahead.message) == (Reason.METRICS_ABSURD, True)


def test_first_scrape_and_no_new_scrape() -> None:
    assert gap(scrapes([(T2, BUSY)])).reason is Reason.STARTING
    assert gap(scrapes([(T0, ZERO), (T2, BUSY)]), {"qwen-0": T2}).reason is Reason.COLLECTING


@pytest.mark.parametrize("name", sorted(name for name in BUSY if "/" not in name))
def test_a_missing_series_is_a_gap_unless_it_can_be_done_without(name: str) -> None:
    optional = {
        "vllm:time_to_first_token_seconds_sum", "vllm:num_preemptions_total",
        "vllm:kv_cache_usage_perc",
    }  # fmt: skip
    seen = read_one([s for s in scrapes([(T0, ZERO), (T2, BUSY)]) if s.name != name])
    if name in optional:
        assert isinstance(seen, PodWindow)
        assert seen.kv_usage is None or name != "vllm:kv_cache_usage_perc"
    else:
        assert isinstance(seen, Gap)
        assert (seen.reason, name in seen.message) == (Reason.METRICS_PARTIAL, True)


def test_a_position_missing_between_others_is_a_gap() -> None:
    series = [s for s in scrapes([(T0, ZERO), (T2, BUSY)]) if s.labels.get("position") != "1"]
    assert gap(series).reason is Reason.METRICS_PARTIAL


@pytest.mark.parametrize("name", sorted(BUSY))
def test_a_series_that_ends_early_is_a_gap(name: str) -> None:
    short = [(T0, ZERO), (T1, BUSY), (T2, {key: value for key, value in BUSY.items() if key != name})]
    assert gap(scrapes(short)).reason is Reason.METRICS_PARTIAL


def test_a_series_that_begins_late_shortens_the_window() -> None:
    late = {key: value for key, value in ZERO.items() if key != "vllm:generation_tokens_total"}
    seen = window(scrapes([(T0, late), (T1, ZERO), (T2, BUSY)]))
    assert (seen.start, seen.steps) == (T1, 100)


def test_impossible_values_are_absurd() -> None:
    values = (math.nan, math.inf, -math.inf, -1.0, 2.0**53)
    assert failing(absurd, itertools.product(sorted(BUSY), values)) == []


def absurd(case: tuple[str, float]) -> None:
    name, bad = case
    problem = gap(scrapes([(T0, ZERO), (T1, BUSY | {name: bad}), (T2, BUSY)]))
    assert (problem.reason, name.partition("/")[0] in problem.message) == (Reason.METRICS_ABSURD, True)
    assert gap(scrapes([(T0, ZERO), (T2, BUSY | {name: bad})])).reason is Reason.METRICS_ABSURD


def test_impossible_values_before_the_window_do_not_matter() -> None:
    series = scrapes([(T0, dict.fromkeys(BUSY, -1.0)), (T1, ZERO), (T2, BUSY)])
    assert window(series, {"qwen-0": T1}).steps == 100
    assert gap(series).reason is Reason.METRICS_ABSURD


MISSED = dict.fromkeys(BUSY, math.nan)


@pytest.mark.parametrize("missed", [(T0,), (T1,), (T2,), (T0 + 5, T1, T1 + 5), (T2 + 4,)])
def test_a_scrape_that_failed_is_none(missed: tuple[float, ...]) -> None:
    """VictoriaMetrics answers it as NaN in every series of the target; the window goes on from the scrapes beside."""
    points = {T0 - 10: ZERO, T0: ZERO, T1: ZERO, T2: BUSY, T2 + 3: BUSY} | dict.fromkeys(missed, MISSED)
    whole = [(time, points[time]) for time in sorted(points) if time not in missed]
    assert window(scrapes(sorted(points.items()))) == window(scrapes(whole))


def test_a_scrape_that_failed_hides_no_restart() -> None:
    assert gap(scrapes([(T0, BUSY), (T1, MISSED), (T2, ZERO)])).reason is Reason.COUNTER_RESET


@pytest.mark.parametrize("name", ["vllm:generation_tokens_total", "vllm:num_requests_running"])
def test_no_number_in_one_series_alone_is_absurd(name: str) -> None:
    series = scrapes([(T0, ZERO), (T1, ZERO | {name: math.nan}), (T2, BUSY)])
    assert gap(series).reason is Reason.METRICS_ABSURD


def test_scrapes_of_one_target_do_not_vouch_for_another() -> None:
    """Of two jobs that scrape a pod the first failed at the instant at which the other did not."""
    failed = scrapes([(T0, ZERO), (T1, MISSED), (T2, BUSY)], job="a")
    other = scrapes([(T0, ZERO), (T1, ZERO), (T2, BUSY)], job="b")
    assert window([*failed, *other]) == window(scrapes([(T0, ZERO), (T2, BUSY)]))


def test_a_pod_of_which_every_scrape_failed_has_no_samples() -> None:
    assert gap(scrapes([(T1, MISSED), (T2, MISSED)])).reason is Reason.METRICS_MISSING


def test_a_histogram_that_prometheus_made_a_native_one_is_named_with_the_remedy() -> None:
    native = {name: value for name, value in BUSY.items() if not name.endswith(("_count", "_sum"))}
    problem = gap(scrapes([(T0, dict.fromkeys(native, 0.0)), (T2, native)]))
    assert problem.reason is Reason.METRICS_PARTIAL
    assert "vllm:iteration_tokens_total_count is missing" in problem.message
    assert "always_scrape_classic_histograms" in problem.message
    other = gap(
        scrapes([(T0, without(ZERO, "vllm:prompt_tokens_total")), (T2, without(BUSY, "vllm:prompt_tokens_total"))])
    )
    assert other.message == "vllm:prompt_tokens_total is missing"


def without(totals: Mapping[str, float], name: str) -> dict[str, float]:
    return {key: value for key, value in totals.items() if key != name}


@pytest.mark.parametrize("name", sorted(set(BUSY) - {"vllm:num_requests_running", "vllm:num_requests_waiting",
                                                     "vllm:kv_cache_usage_perc"}))  # fmt: skip
def test_a_counter_that_falls_is_a_restart(name: str) -> None:
    fallen = BUSY | {name: BUSY[name] / 2}
    assert gap(scrapes([(T0, ZERO), (T1, BUSY), (T2, fallen)])).reason is Reason.COUNTER_RESET
    regrown = BUSY | {name: BUSY[name] * 2}
    problem = gap(scrapes([(T0, BUSY), (T1, fallen), (T2, regrown)]))
    assert problem.reason is Reason.COUNTER_RESET, "even when it has grown past the old value since"


def test_a_window_after_a_restart_is_good() -> None:
    series = scrapes([(T0, {key: value * 9 for key, value in BUSY.items()}), (T1, ZERO), (T2, BUSY)])
    assert gap(series).reason is Reason.COUNTER_RESET
    assert window(series, {"qwen-0": T1}).steps == 100


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"vllm:iteration_tokens_total_count": 0}, "0 steps"),
        ({"vllm:inter_token_latency_seconds_sum": 0}, "took 0 s"),
        ({"vllm:inter_token_latency_seconds_count": 0}, "no request-step"),
        ({"vllm:generation_tokens_total": 3}, "first tokens"),
        ({"vllm:kv_cache_usage_perc": 57.0}, "share of 1"),
        ({"vllm:spec_decode_num_accepted_tokens_total": 1300}, "accepted of"),
        ({"vllm:spec_decode_num_draft_tokens_total": 399 * 0.9}, "accepted of"),
        ({"vllm:spec_decode_num_drafts_total": 1300}, "drafts hold"),
        ({"vllm:spec_decode_num_drafts_total": 300}, "drafts of 3 hold"),
        ({f"{PER_POSITION}/0": 450}, "first drafts accepted"),
        ({f"{PER_POSITION}/1": 300}, "position 1"),
        ({f"{PER_POSITION}/2": 200}, "position 2"),
        ({"vllm:spec_decode_num_accepted_tokens_total": 300}, "by position"),
        ({"vllm:spec_decode_num_accepted_tokens_total": 500}, "by position"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_contradictions_are_absurd(change: dict[str, float], says: str) -> None:
    problem = gap(scrapes([(T0, ZERO), (T2, BUSY | change)]))
    assert problem.reason is Reason.METRICS_ABSURD
    assert says in problem.message


def test_counters_a_step_apart_are_no_contradiction() -> None:
    """Several API servers write their counters one after the other."""
    assert isinstance(read_one(scrapes([(T0, ZERO), (T2, BUSY | {f"{PER_POSITION}/0": 252})])), PodWindow)


def test_created_twins_and_other_names_are_not_asked_for() -> None:
    assert not [name for name in METRIC_NAMES if name.endswith("_created")]
    twins = [Series(f"{name}_created", {"pod": "qwen-0"}, ((T2, math.nan),)) for name in METRIC_NAMES]
    assert window([*scrapes([(T0, ZERO), (T2, BUSY)]), *twins]).steps == 100
