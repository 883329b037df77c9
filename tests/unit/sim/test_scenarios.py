"""Scenarios: what they hold, that they repeat, and that the tuner is told no truth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from speculative_lab.sim.catalogue import ALL, BY_NAME
from speculative_lab.sim.pairs import PAIRS, capture_sizes
from speculative_lab.sim.profiles import KINDS, MIXED
from speculative_lab.sim.scenarios import Case, Scenario, build
from speculative_lab.sim.traces import Trace
from speculative_operator.domain.spec import Goal, Objective, OffPolicy

TRACE = Trace(np.array([0.0, 10.0, 400.0, 5000.0]), np.array([100, 200, 300, 400]), np.array([10, 20, 30, 40]))


def build_case(name: str, seed: int = 1, **more: object) -> Case:
    return build(BY_NAME[name], seed, trace=TRACE, **more)  # type: ignore[arg-type]


def test_there_are_enough_and_no_two_share_a_name() -> None:
    assert len(BY_NAME) == len(ALL) >= 20
    assert {scenario.pair for scenario in ALL} <= set(PAIRS)
    assert {PAIRS[one.pair].accelerator for one in ALL} >= {"A40", "A100-80GB", "H100-SXM", "B300-SXM"}


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_every_scenario_builds_and_repeats(scenario: Scenario) -> None:
    first, again, other = (build(scenario, seed, trace=TRACE, scale=0.2) for seed in (1, 1, 2))
    assert first.seconds == pytest.approx(max(300.0, scenario.minutes * 12.0), abs=5.0)
    assert first.plant == again.plant == other.plant
    assert np.array_equal(first.workload.output, again.workload.output)
    if not scenario.trace:
        assert not np.array_equal(first.workload.output, other.workload.output)
    assert len(first.workload.classes) == len(KINDS) + 1
    assert all(0 <= step < 1 for step in (*scenario.load_steps, scenario.dead_since))


@pytest.mark.parametrize("name", [one.name for one in ALL if one.name.startswith("lumps")])
def test_lumps_come_together_with_prompts_much_longer_than_answers(name: str) -> None:
    load = build_case(name).workload
    assert load.arrival is not None
    assert 20.0 < load.prompt.mean() / load.output.mean() < 105.0
    gaps = np.diff(load.arrival)
    assert np.quantile(gaps, 0.6) < 0.2 * gaps.mean(), "most requests follow the one before at once"


def test_the_scenarios_goal_and_targets_are_the_tuners() -> None:
    assert build_case("lumps").policy.objective.goal is Goal.LATENCY
    assert build_case("lumps_target").policy.objective.tpot_p99_seconds == 0.065
    assert build_case("burst").policy.objective == Objective()


@pytest.mark.parametrize("name", ["diurnal", "dead_drafter", "moe", "slow_dynamic"])
def test_perturbed_physics_is_within_30_percent_and_repeats(name: str) -> None:
    plain, shaken = build_case(name).plant, build_case(name, shaken=True).plant
    assert shaken == build_case(name, shaken=True).plant
    assert shaken != build_case(name, seed=2, shaken=True).plant
    for one in dataclasses.fields(plain.costs):
        was, now = getattr(plain.costs, one.name), getattr(shaken.costs, one.name)
        assert was / 1.301 <= now <= was * 1.301 or now == was


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_tuner_is_told_what_a_user_knows(pair: object) -> None:
    case = next(build_case(one.name) for one in ALL if PAIRS[one.pair] is pair)
    assert case.policy.facts.accelerator is not None
    assert case.policy.facts.verifier is not None
    assert case.policy.off_policy is OffPolicy.REMOVE
    assert case.policy.knobs.ks == case.plant.knobs.ks
    assert case.policy == build_case(case.scenario.name, shaken=True).policy


def test_a_replay_needs_its_trace_and_is_cut_to_the_length() -> None:
    with pytest.raises(ValueError, match="azure_llm_2023_conv"):
        build(BY_NAME["azure_conv"], 1)
    load = build_case("azure_conv").workload
    assert load.arrival is not None
    assert load.arrival.tolist() == [0.0, 5.0, 200.0]
    assert load.prompt.tolist() == [100, 200, 300]


def test_a_day_rises_to_its_peak_at_noon() -> None:
    load = build_case("diurnal").workload
    counts = [count for _, count in load.concurrency]
    assert (min(counts), max(counts), counts[0]) == (1, 256, 1)
    assert counts.index(256) in range(36, 44)


def test_mixes_follow_their_shares() -> None:
    load = build_case("diurnal").workload
    shares = np.bincount(load.kind, minlength=len(KINDS) + 1) / len(load.kind)
    assert shares == pytest.approx(MIXED, abs=0.03)
    load = build_case("mix_shift").workload
    assert [set(load.kind[pool.first : pool.stop].tolist()) for pool in load.pools] == [{0}, {3}]


def test_captured_sizes_end_at_the_ceiling() -> None:
    knobs = PAIRS["eagle_h100"].plant().knobs
    assert knobs.capture_sizes[:4] == (1, 2, 4, 8)
    assert knobs.capture_sizes[-1] == knobs.capture_ceiling_tokens
    assert PAIRS["eagle_h100"].policy(PAIRS["eagle_h100"].plant()).knobs == knobs, "the tuner is told what is captured"
    silent = dataclasses.replace(knobs, capture_sizes=())
    assert capture_sizes(silent)[:5] == (1, 2, 4, 8, 16)
    assert capture_sizes(silent)[-1] == knobs.capture_ceiling_tokens
    assert capture_sizes(dataclasses.replace(knobs, capture_ceiling_tokens=None)) == ()
