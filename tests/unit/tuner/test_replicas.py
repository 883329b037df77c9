"""Several replicas, one table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.unit.tuner.plant import TICK, Plant, Run, run

from speculative_operator.domain.decision import Decision
from speculative_operator.domain.observation import Gap, Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.traffic import pool


def play(loop: Run, loads: Sequence[float], ticks: int, names: str = "abcdefgh") -> Decision:
    """`ticks` ticks of one pod for each of `loads`."""
    for _ in range(ticks):
        loop.now += TICK
        pods = {name: loop.window(load) for name, load in zip(names, loads, strict=False)}
        loop.see(Observation(loop.now, pods))
    return loop.decisions[-1]


def test_four_replicas_decide_as_one_and_are_surer() -> None:
    one, four = run(Plant(noise=0.02)), run(Plant(noise=0.02))
    play(one, [20], 6)
    play(four, [20] * 4, 6)
    assert four.memory.acceptance.drafts > 2 * one.memory.acceptance.drafts
    assert np.trace(four.memory.costs.precision) > 2 * np.trace(one.memory.costs.precision)
    speeds = [loop.plant.speed(20, loop.memory.table.k_at(20)) for loop in (one, four)]
    assert speeds[1] >= 0.97 * speeds[0]


def test_tokens_per_second_are_those_of_all() -> None:
    loop = run(Plant(noise=0.0))
    decision = play(loop, [20] * 3, 2)
    alone = play(run(Plant(noise=0.0)), [20], 2)
    assert decision.estimate.tokens_per_second == pytest.approx(3 * (alone.estimate.tokens_per_second or 0), rel=0.1)


def test_mixed_loads_are_each_given_their_k() -> None:
    loop = run(Plant(conditional=(0.8,) * 5, noise=0.02))
    play(loop, [2, 30, 180], 60)
    for load in (2, 30, 180):
        k = loop.memory.table.k_at(load)
        assert loop.plant.speed(load, k) > 0.95 * loop.plant.best_speed(load)
    assert loop.memory.table.k_at(2) > loop.memory.table.k_at(180)


def test_a_replica_that_restarts_changes_nothing_while_it_is_away() -> None:
    loop = run(Plant())
    play(loop, [20, 20, 20], 10)
    table = loop.memory.table
    for reason in (Reason.COUNTER_RESET, Reason.METRICS_MISSING):
        loop.now += TICK
        pods: dict[str, PodWindow | Gap] = {name: loop.window(25) for name in "ab"}
        decision = loop.see(Observation(loop.now, pods | {"c": Gap(reason, "restarted")}))
        assert (decision.valid, decision.changed, decision.reason) == (False, False, Reason.METRICS_PARTIAL)
        assert loop.memory.table == table
    drafts = loop.memory.acceptance.drafts
    loop.now += TICK
    back = {name: loop.window(25) for name in "ab"} | {"c": loop.plant.window(table, 3, loop.now, seconds=4.0)}
    assert loop.see(Observation(loop.now, back)).valid
    assert loop.memory.acceptance.drafts > 0.5 * drafts


def test_replicas_that_come_and_go_are_taken_as_they_are() -> None:
    loop = run(Plant())
    for ticks, loads in ((8, [60.0]), (8, [30.0, 30.0]), (8, [15.0] * 4), (8, [60.0])):
        assert play(loop, loads, ticks).valid
    best = loop.plant.best_speed(60)
    assert loop.plant.speed(60, loop.memory.table.k_at(60)) > 0.95 * best


def test_an_idle_replica_is_no_reason_to_hold() -> None:
    loop = run(Plant())
    play(loop, [20], 6)
    loop.now += TICK
    idle = PodWindow(loop.now - TICK, loop.now, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert loop.see(Observation(loop.now, {"a": loop.window(20), "b": idle})).valid


def test_one_slow_replica_of_many_moves_the_mean_by_its_share() -> None:
    plant, table = Plant(noise=0.0), KTable.constant(3, 256)
    good = [plant.window(table, 20, 0.0) for _ in range(9)]
    slow = Plant(noise=0.0, slow={3: 2.0}).window(table, 20, 0.0)
    alone, mixed = pool(good), pool([*good, slow])
    assert alone.tpot is not None
    assert mixed.tpot is not None
    assert 1.0 < mixed.tpot / alone.tpot < 1.12


def test_pods_that_lag_behind_by_seconds_are_read_all_the_same() -> None:
    loop = run(Plant())
    for _ in range(10):
        loop.now += TICK
        pods = {
            name: loop.plant.window(loop.memory.table, 20, loop.now - lag) for name, lag in (("a", 0.0), ("b", 7.0))
        }
        loop.see(Observation(loop.now, pods))
    assert loop.decisions[-1].valid
