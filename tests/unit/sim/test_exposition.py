"""What a scrape reads: vLLM's names, read without a gap, and the figures that the documented formulas make of them."""

from __future__ import annotations

import csv
import math
from importlib import resources

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.sim.rigs import CODE, plant, steady

from speculative_lab.sim import layout as at
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.workload import Lengths
from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.engines.vllm.reading import BUCKETS, ENGINE_NAMES, read

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]]


def scrape(run: Deployment, samples: Samples) -> None:
    for pod, text in run.exposition().items():
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(sorted({**sample.labels, "pod": pod}.items()))
                samples.setdefault((sample.name, labels), []).append((run.now, sample.value))


def windows(run: Deployment, times: list[float]) -> dict[str, PodWindow | Gap]:
    samples: Samples = {}
    for time in times:
        run.advance(time)
        scrape(run, samples)
    series = [Series(name, dict(labels), tuple(values)) for (name, labels), values in samples.items()]
    return read(series, list(run.pods()), {}, run.now, 30.0)


def window(run: Deployment, times: list[float]) -> PodWindow:
    (found,) = windows(run, times).values()
    assert isinstance(found, PodWindow), found
    return found


def test_a_window_is_read_and_tells_the_truth() -> None:
    run = Deployment(plant(noise=0.05), steady(20), table=KTable.constant(3, 64), log_steps=50_000)
    run.advance(20.0)
    run.steps(0)
    found = window(run, [20.0, 25.0, 30.0, 35.0])
    steps = run.steps(0)
    assert (found.start, found.end) == (20.0, 35.0)
    assert found.steps == len(steps.end)
    assert found.decode_request_steps / found.steps == pytest.approx(steps.batch.mean())
    period = found.step_seconds / found.decode_request_steps
    assert period == pytest.approx(np.average(steps.seconds, weights=steps.batch), rel=2e-3)
    length = (found.generated_tokens - found.first_tokens) / found.decode_request_steps
    assert 1.0 < length <= 1.0 + steps.accepted.sum() / steps.drafted.sum()
    assert found.drafts == found.decode_request_steps
    assert found.draft_tokens == 3 * found.decode_request_steps
    assert found.accepted_tokens == steps.accepted.sum() == sum(found.accepted_per_position)
    assert len(found.accepted_per_position) == 5
    assert found.accepted_per_position[3:] == (0.0, 0.0)
    survival = np.array(found.accepted_per_position[:3]) / found.drafts
    runs = CODE.w * CODE.p ** np.arange(1, 4)
    assert np.all(np.diff(survival) < 0)
    assert survival[0] > runs[0]
    assert found.running == 20.0
    assert found.kv_capacity_tokens == 100_000
    assert found.kv_usage is not None
    assert found.kv_usage * 100_000 == pytest.approx(20 * (300 + 100), rel=0.3)
    assert found.prompt_tokens == pytest.approx(steps.prefill.sum(), rel=0.1)
    assert found.requests_finished is not None
    assert found.requests_finished > 10


def test_k_0_freezes_the_counters_and_removal_takes_the_series_away() -> None:
    soft = Deployment(plant(), steady(8), table=KTable.constant(0, 64))
    soft.advance(5.0)
    found = window(soft, [5.0, 10.0])
    assert found.drafts == found.draft_tokens == found.accepted_tokens == 0
    hard = Deployment(plant(), steady(8), off=True)
    hard.advance(5.0)
    found = window(hard, [5.0, 10.0])
    assert found.drafts is None
    assert found.kv_capacity_tokens == 120_000
    assert "spec_decode" not in hard.exposition()["sim-0-0"]


def test_an_idle_replica_is_read_too() -> None:
    found = window(Deployment(plant(), steady([(0.0, 0)])), [5.0, 10.0])
    assert found.steps == found.running == found.waiting == 0


def test_a_restart_shows_as_a_reset() -> None:
    run = Deployment(plant(restart_seconds=5.0), steady(8))
    run.advance(5.0)
    run.restart(0)
    assert run.exposition() == {}
    samples: Samples = {}
    run = Deployment(plant(restart_seconds=5.0), steady(8))
    run.advance(30.0)
    scrape(run, samples)
    run.restart(0)
    run.advance(38.0)
    scrape(run, samples)
    series = [Series(name, dict(labels), tuple(values)) for (name, labels), values in samples.items()]
    (found,) = read(series, ["sim-0-0"], {}, 38.0, 30.0).values()
    assert isinstance(found, Gap)
    assert found.reason is Reason.COUNTER_RESET


def test_latencies_by_bucket_are_those_of_the_requests() -> None:
    """At its first token and at its end each request is counted once; a bucket takes what is not above its bound."""
    load = steady(30, output=Lengths(20))
    run = Deployment(plant(noise=0.05), load, table=KTable.constant(3, 64))
    found = window(run, [0.0, 40.0])
    truth = run.totals()
    edges = np.array([0.0, *at.TPOT_BOUNDS, np.inf])
    assert tuple(bound for bound, _ in found.tpot_histogram) == tuple(edges[1:])
    tpot = np.histogram(-np.nan_to_num(truth.tpot), bins=-edges[::-1])[0][::-1]
    assert [count for _, count in found.tpot_histogram] == tpot.tolist()
    assert tuple(bound for bound, _ in found.ttft_histogram) == (*at.TTFT_BOUNDS, math.inf)
    ended = np.searchsorted(at.TTFT_BOUNDS, truth.ttft)
    counts = np.array([count for _, count in found.ttft_histogram])
    assert counts.sum() == found.first_tokens == run.counters(0)[at.FIRST_TOKENS] > truth.finished
    assert found.ttft_seconds == pytest.approx(run.counters(0)[at.FIRST_SECONDS])
    assert np.all(counts >= np.bincount(ended, minlength=len(counts)))


def values_of(run: Deployment) -> dict[str, float]:
    """What a scrape reads now, by name and the bucket's bound."""
    (text,) = run.exposition().values()
    families = text_string_to_metric_families(text)
    return {one.name + one.labels.get("le", ""): one.value for family in families for one in family.samples}


def test_a_restart_begins_the_latencies_anew() -> None:
    run = Deployment(plant(restart_seconds=5.0), steady(8, output=Lengths(20)))
    run.advance(30.0)
    run.restart(0)
    run.advance(35.0)
    found = values_of(run)
    assert found["vllm:time_to_first_token_seconds_bucket+Inf"] == 0.0
    assert found["vllm:request_time_per_output_token_seconds_sum"] == 0.0


def test_an_answer_of_one_token_takes_no_time_per_token() -> None:
    run = Deployment(plant(), steady(8, output=Lengths(1)), table=KTable.constant(2, 64))
    run.advance(10.0)
    found, name = values_of(run), "vllm:request_time_per_output_token_seconds"
    assert found[f"{name}_bucket0.01"] == found[f"{name}_count"] == run.counters(0)[at.FINISHED] > 0
    assert found[f"{name}_sum"] == 0.0


def test_names_labels_and_kinds_are_vllms() -> None:
    run = Deployment(plant(), steady(8, output=Lengths(20)), table=KTable.constant(2, 64))
    run.advance(10.0)
    text = run.exposition()["sim-0-0"]
    names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    table = resources.files("speculative_lab.emulator").joinpath("data", "vllm_metric_families.csv")
    families = {row["family"] for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines())}
    for name in names:
        family = name
        for suffix in ("_bucket", "_sum", "_count"):
            family = family.removesuffix(suffix)
        assert {name, family} & families, name
    wanted = {*ENGINE_NAMES, *BUCKETS.names}
    silent = {"vllm:prompt_tokens_cached_total", "vllm:request_queue_time_seconds_sum"}
    assert wanted - names <= silent, "nothing is cached, and who waits is told by gauges alone"


def test_created_twins_stand_beside_counters_on_demand() -> None:
    run = Deployment(plant(restart_seconds=5.0), steady(8))
    run.advance(10.0)
    run.restart(0)
    run.advance(20.0)
    plain, twins = run.exposition()["sim-0-0"], run.exposition(created=True)["sim-0-0"]
    added = set(twins.splitlines()) - set(plain.splitlines())
    assert all("_created{" in line and line.endswith(" 15.0") for line in added)
    counters = {line.split("{", 1)[0] for line in plain.splitlines() if "_total{" in line or "_count{" in line}
    assert {line.split("{", 1)[0].removesuffix("_created") for line in added} == {
        name.removesuffix("_count").removesuffix("_total") if "_count" not in name else name.removesuffix("_count")
        for name in counters
    }


def test_figures_are_exact() -> None:
    run = Deployment(plant(noise=0.05), steady(8))
    run.advance(33.3)
    (families,) = [list(text_string_to_metric_families(text)) for text in run.exposition().values()]
    values = {sample.name: sample.value for family in families for sample in family.samples}
    seen = run.counters(0)
    assert values["vllm:inter_token_latency_seconds_sum"] == seen[at.STEP_SECONDS]
    assert values["vllm:generation_tokens_total"] == seen[at.GENERATION]
    assert values["vllm:iteration_tokens_total_sum"] == seen[at.PROMPTS] + seen[at.GENERATION]
