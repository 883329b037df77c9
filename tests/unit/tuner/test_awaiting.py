"""A change counts from when pods took it, where they say so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.tuner.plant import TICK, Plant, run

from speculative_operator.domain.observation import Observation, PodWindow
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.learning import learn
from speculative_operator.tuner.traffic import pool

LOAD = 20.0


@pytest.mark.parametrize("ahead", [0, 3])
def test_a_pod_that_is_as_far_or_further_is_not_waited_for(ahead: int) -> None:
    loop = run(Plant())
    loop.play(*[LOAD] * 4)
    window = replace(loop.plant.window(loop.memory.table, LOAD, loop.now + TICK), table_version=5 + ahead)
    loop.now += TICK
    assert loop.see(Observation(loop.now, {"a": window}, table_version=5)).valid


def test_one_pod_of_several_holds_all() -> None:
    loop = run(Plant())
    loop.play(*[LOAD] * 4)
    loop.now += TICK

    def window(version: int) -> PodWindow:
        return replace(loop.plant.window(loop.memory.table, LOAD, loop.now), table_version=version)

    decision = loop.see(Observation(loop.now, {"a": window(5), "b": window(4), "c": window(4)}, table_version=5))
    assert not decision.valid
    assert "b and 1 more has" in decision.message


def test_an_old_table_is_judged_under_its_own_name() -> None:
    """Right after a change a late pod's window is learned with the table before it, an older one's with none."""
    loop = run(Plant())
    old = KTable.constant(2, 256)
    loop.memory = replace(loop.memory, previous=old, changed_at=loop.now)
    gathered = []
    for version in (4, 3):
        window = loop.plant.window(old, LOAD, loop.now)
        seen = replace(window, table_version=version)
        after = learn(loop.memory, {"a": seen}, pool([seen]), loop.policy, loop.now, 5)
        gathered.append(sum(after.acceptance.reached))
    assert gathered[0] > 0.0
    assert gathered[1] == 0.0
