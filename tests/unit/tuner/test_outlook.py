"""Predictions of every K at every load."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.tuner.plant import FACTS, KNOBS, USELESS, Plant, policy, run

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Goal, Objective, OffPolicy
from speculative_operator.tuner.acceptance import AcceptanceEvidence, draft_sample, learn_acceptance
from speculative_operator.tuner.comparisons import Cell, band_of
from speculative_operator.tuner.gain import removal_gain
from speculative_operator.tuner.grid import nearest
from speculative_operator.tuner.outlook import BEYOND, INFEASIBLE, Outlook, outlook
from speculative_operator.tuner.prior import acceptance_prior
from speculative_operator.tuner.request_time import TimeShares
from speculative_operator.tuner.traffic import Traffic


def learned(plant: Plant, **changes: object) -> Outlook:
    loop = run(plant, policy(**changes))
    loop.play(*[1] * 4, *[8] * 4, *[60] * 4, *[200] * 4, *[20] * 4)
    return outlook(loop.policy, loop.memory.costs, loop.memory.acceptance, loop.memory.traffic)


def best(view: Outlook) -> np.ndarray:
    return np.asarray(view.columns[np.argmax(view.speed, axis=1)])


def test_the_grid_is_points_by_candidates() -> None:
    view = outlook(policy())
    assert view.speed.shape == (len(view.points), len(view.ks))
    assert view.ks == KNOBS.ks
    assert outlook(policy(off_policy=OffPolicy.NEVER)).ks == KNOBS.ks[1:]


def test_learned_speeds_are_those_of_the_plant() -> None:
    plant = Plant(noise=0.01)
    view = learned(plant)
    for batch in (1, 8, 20, 60):
        for k in (0, 2, 4):
            assert math.exp(view.at(batch, k)) == pytest.approx(plant.speed(batch, k), rel=0.06)
        assert math.exp(view.at(batch, None)) == pytest.approx(plant.off_speed(batch), rel=0.1)


def test_between_points_speed_is_between_theirs() -> None:
    view = outlook(policy())
    low, high = view.points[20], view.points[21]
    assert view.at(float(high), 2) < view.at(math.sqrt(low * high), 2) < view.at(float(low), 2)
    assert view.at(1e9, 2) == view.at(256, 2)
    assert view.at(0.0, None) == view.at(1.0, None)


def test_the_longer_requests_wait_for_a_first_token_the_fewer_drafts_are_best() -> None:
    """Four drafts a step, nearly always accepted, at a load at which they make a step a third longer."""
    chosen = []
    for share in (0.0, 0.5, 0.95):
        view = outlook(policy(), traffic=replace(Traffic(), shares=TimeShares(prompting=share)))
        mean = view.against(np.zeros(len(view.points), dtype=np.int64)).mean
        chosen.append(view.ks[int(np.argmax(mean[nearest(32.0, 256)]))])
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[0] > 0
    assert chosen[-1] == 0


@pytest.mark.parametrize("passes_at_zero", [0.0, 1.0])
def test_prompts_speak_for_no_drafts_where_the_drafter_then_skips_them(passes_at_zero: float) -> None:
    """Prompts that come by the second take a part of it from each K, and a larger part where a drafter reads them."""
    knobs = replace(KNOBS, passes_at_zero=passes_at_zero)
    held = np.full(len(outlook(policy()).points), 1)
    few, many = (
        outlook(policy(knobs=knobs), traffic=replace(Traffic(), prompt_ratio=ratio)).against(held).mean
        for ratio in (0.1, 30.0)
    )
    row = nearest(32.0, 256)
    assert many[row, 2:] == pytest.approx(few[row, 2:], abs=1e-6)
    if passes_at_zero:
        assert many[row, 0] == pytest.approx(few[row, 0], abs=1e-6)
    else:
        assert many[row, 0] > few[row, 0] + 0.03


def test_what_lies_beyond_captured_graphs_is_doubted_until_blocks_have_shown_it() -> None:
    beyond = policy(knobs=replace(KNOBS, capture_ceiling_tokens=100))
    view, free = outlook(beyond, compares=True), outlook(policy(), compares=True)
    held = np.full(len(view.points), view.ks.index(1))
    row, column = nearest(40.0, 256), view.ks.index(3)
    doubtful, plain = view.against(held), free.against(held)
    assert doubtful.mean[row, column] == pytest.approx(plain.mean[row, column] - BEYOND, abs=0.05)
    assert doubtful.deviation[row, column] > plain.deviation[row, column] + 0.2
    cell = Cell(band_of(40.0), 3, 1, 50.0, 400.0, 800.0, 0.05, 9e-4, 0.05**2 + 9e-4, 0.0, 1e-3, 40.0, 90.0, 80.0)
    known = outlook(beyond, cells=(cell,), compares=True).against(held)
    assert known.deviation[row, column] < plain.deviation[row, column] + 0.02
    assert known.mean[row, column] > doubtful.mean[row, column]


def test_beyond_the_capture_ceiling_nothing_but_the_least_k_is_feasible() -> None:
    view = outlook(policy(knobs=replace(KNOBS, capture_ceiling_tokens=100)))
    tokens = view.points[:, None] * (np.array(view.ks)[None, :] + 1)
    out = (tokens > 100) & (np.array(view.ks) > 0)[None, :]
    assert np.all(view.speed[out] == INFEASIBLE)
    assert np.all(view.speed[~out] > INFEASIBLE / 2)


@pytest.mark.parametrize("goal", list(Goal))
def test_no_goal_and_no_target_changes_what_is_believed(goal: Goal) -> None:
    """A target is judged by what was measured, never by a formula."""
    strict = outlook(policy(objective=Objective(goal, 1e-9, 1e-9)))
    assert np.array_equal(strict.speed, outlook(policy()).speed)


class TestDoubt:
    def test_the_k_in_force_is_not_in_doubt_against_itself(self) -> None:
        view = outlook(policy())
        incumbent = np.full(len(view.points), 2)
        deviation = view.against(incumbent).deviation
        assert np.all(deviation[:, 2] < 0.02)
        assert np.all(deviation[:, [0, 5]] > deviation[:, [2]])

    def test_a_neighbour_is_in_less_doubt_than_one_far_off_and_evidence_takes_it(self) -> None:
        before, after = outlook(policy()), learned(Plant())
        incumbent = np.full(len(before.points), 1)
        unsure, sure = (one.against(incumbent).deviation for one in (before, after))
        assert np.all(unsure[:, 2] < unsure[:, 5])
        assert np.mean(sure[:, 3]) < 0.75 * np.mean(unsure[:, 3])


def removed(view: Outlook) -> float:
    found = removal_gain(view)
    assert found is not None
    return found.mid


class TestWithoutSpeculator:
    def test_nothing_seen_is_no_comparison(self) -> None:
        assert removal_gain(outlook(policy())) is None

    @pytest.mark.parametrize("conditional", [USELESS, (0.7,) * 5])
    def test_the_comparison_is_that_of_the_plant(self, conditional: tuple[float, ...]) -> None:
        plant = Plant(conditional=conditional, noise=0.01)
        loop = run(plant)
        loop.play(*[30] * 60)
        view = outlook(loop.policy, loop.memory.costs, loop.memory.acceptance, loop.memory.traffic)
        found = removal_gain(view)
        assert found is not None
        true = math.log(plant.off_speed(30) / plant.best_speed(30))
        assert found.mid == pytest.approx(true, abs=0.06)
        assert found.low < found.mid < found.high

    def test_memory_that_comes_back_counts_where_requests_wait_for_it(self) -> None:
        facts = replace(FACTS, kv_capacity_tokens=100_000, kv_capacity_tokens_without_speculator=200_000)
        load = tuple(10.0 if 20 <= p <= 40 else 0.0 for p in outlook(policy()).points)
        gains = [
            removed(outlook(policy(facts=known), traffic=Traffic(load=load, history=load, pressed=pressed)))
            for known, pressed in ((facts, 0.0), (facts, 0.5), (facts, 1.0), (FACTS, 1.0))
        ]
        assert gains[0] < gains[1] < gains[2]
        assert gains[2] - gains[0] == pytest.approx(2 * (gains[1] - gains[0]))
        assert gains[2] - gains[0] > 0.2  # a batch twice as large serves a good deal more
        assert gains[3] == pytest.approx(gains[0])  # capacity unknown

    def test_a_pool_that_does_not_grow_brings_nothing(self) -> None:
        load = tuple(1.0 for _ in outlook(policy()).points)
        traffic = Traffic(load=load, history=load, pressed=1.0)
        smaller = replace(FACTS, kv_capacity_tokens=200_000, kv_capacity_tokens_without_speculator=100_000)
        one, other = (removed(outlook(policy(facts=f), traffic=traffic)) for f in (FACTS, smaller))
        assert one == other


def test_more_accepted_drafts_move_the_best_k_up_everywhere() -> None:
    prior = acceptance_prior(FACTS, KNOBS, policy().workload)

    def at(level: float) -> np.ndarray:
        sample = draft_sample(1e5, tuple(1e5 * level**j for j in range(1, 6)), 5, 0.0, 5.0)
        return best(outlook(policy(), drafts=learn_acceptance(AcceptanceEvidence(), sample, prior)))

    assert np.all(at(0.9) >= at(0.6))
    assert np.all(at(0.6) >= at(0.05))
    assert np.all(at(0.05) == 0)


def test_nothing_known_still_gives_finite_speeds() -> None:
    view = outlook(policy(facts=PairFacts()))
    assert np.all(np.isfinite(view.speed))
    assert not view.costs.prior.from_models
