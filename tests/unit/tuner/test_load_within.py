"""The load that autoscalers are told: from a measured P99, never beyond what it can say, and nothing where that is
nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tuner.plant import KNOBS, policy
from tests.unit.tuner.tails import Lucky, aimed, histogram

from speculative_operator.domain.spec import Goal, Objective
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.outlook import outlook
from speculative_operator.tuner.report import FURTHEST_LOAD, load_within
from speculative_operator.tuner.targets import Targets
from speculative_operator.tuner.traffic import Look, pool

LOAD = 20
FOUR = KTable.constant(4, 256)
VIEW = outlook(policy(objective=Objective(Goal.GOODPUT, 0.02)))
TIGHT, LOOSE = histogram(0.018, 0.1, 5_000.0), histogram(0.008, 0.1, 5_000.0)


def look(load: float = LOAD) -> Look:
    return pool([Lucky().window(FOUR, load, 1000.0)])


def aimed_at(tpot: float | None, seen: tuple[tuple[float, float], ...], load: float = LOAD) -> Targets:
    return Targets(asked=(tpot, None), histograms=(seen, ()), load=load)


def load_of(seen: Look, table: KTable, targets: Targets) -> float:
    return load_within(VIEW, seen, table, targets) or 0.0


@pytest.mark.parametrize("target", [0.0165, 0.02, 0.03])
def test_replicas_keep_the_target_up_to_the_load_that_is_told(target: float) -> None:
    plant = Lucky()
    loop = aimed(plant, tpot=target)
    loop.play(*[LOAD] * 140)
    for decision in loop.decisions[-40:]:
        load = decision.estimate.load_within_target
        assert load is not None
        assert plant.p99(load, decision.table.k_at(load)) < 1.05 * target
    told = [decision.estimate.load_within_target or 0.0 for decision in loop.decisions[-40:]]
    assert min(told) > 0.6 * LOAD, "nor are replicas asked for that nobody needs"


def test_the_load_is_never_told_beyond_what_was_measured() -> None:
    assert load_of(look(), FOUR, aimed_at(10.0, LOOSE)) <= FURTHEST_LOAD * LOAD * 1.05
    assert load_of(look(200.0), FOUR, aimed_at(10.0, LOOSE)) <= KNOBS.max_batch


def test_a_missed_target_means_less_load_for_each_replica() -> None:
    assert 0.0 < load_of(look(), FOUR, aimed_at(0.02, TIGHT)) < LOAD


@pytest.mark.parametrize(
    "targets",
    [
        aimed_at(None, TIGHT),
        aimed_at(0.02, ()),
        aimed_at(0.0001, TIGHT),
        Targets(asked=(None, 0.1), histograms=((), LOOSE)),
    ],
    ids=["no target", "no histogram", "no load keeps it", "a target of TTFT alone"],
)
def test_what_cannot_be_told_is_none(targets: Targets) -> None:
    assert load_within(VIEW, look(), FOUR, targets) is None


def test_pods_without_a_speculator_and_k_that_nobody_knows_are_none() -> None:
    loop = aimed(Lucky(), tpot=0.03)
    loop.memory = replace(loop.memory, removed=True, removed_at=loop.now)
    loop.play(*[LOAD] * 3)
    assert loop.decisions[-1].estimate.load_within_target is None
    assert load_within(VIEW, look(), KTable.constant(77, 256), aimed_at(0.02, LOOSE)) is None


@given(st.floats(1e-9, 1e9), st.floats(1e-4, 10.0), st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_no_figure_breaks_it(target: float, mean: float, batch: float, scheduled: float) -> None:
    odd = replace(look(), scheduled=scheduled)
    found = load_within(VIEW, odd, FOUR, aimed_at(target, histogram(mean, 0.3, 5_000.0), batch))
    assert found is None or 1.0 <= found <= KNOBS.max_batch
