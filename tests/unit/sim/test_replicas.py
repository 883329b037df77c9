"""Several replicas: routing, crashes, rolling restarts into and out of removal, tables that need a rollout."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.sim.rigs import arriving, knobs, plant, steady

from speculative_lab.sim import layout as at
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.workload import Lengths
from speculative_operator.domain.table import Actuator, KTable

QUICK = plant(restart_seconds=20.0)


@pytest.mark.parametrize("routing", ["least-loaded", "round-robin"])
def test_replicas_share_the_load(routing: str) -> None:
    load = arriving(30.0, 60.0)
    run = Deployment(plant(), load, replicas=3, routing="round-robin" if routing == "round-robin" else "least-loaded")
    run.advance(200.0)
    served = [run.counters(replica)[at.FIRST_TOKENS] for replica in range(3)]
    assert sum(served) == len(load.prompt) == run.totals().finished
    assert max(served) - min(served) <= (1 if routing == "round-robin" else 0.1 * sum(served))


def test_the_least_loaded_replica_is_given_the_next_request() -> None:
    run = Deployment(plant(), steady(31, output=Lengths(4000)), replicas=3)
    run.advance(1.0)
    assert sorted(sum(run.load(replica)) for replica in range(3)) == [10, 10, 11]


def test_replicas_of_one_seed_do_not_walk_in_step() -> None:
    run = Deployment(plant(noise=0.05), steady(30), replicas=2, log_steps=1000)
    run.advance(10.0)
    one, two = run.steps(0), run.steps(1)
    assert not np.isin(one.end, two.end).any()


def test_a_crash_loses_answers_but_no_request() -> None:
    load = arriving(20.0, 60.0)
    run = Deployment(QUICK, load, replicas=2)
    run.advance(30.0)
    before = run.counters(1)
    run.restart(1)
    run.restart(1)
    assert list(run.pods()) == ["sim-0-0"]
    assert run.load(1) == (0, 0)
    run.advance(49.9)
    assert list(run.pods().values()) == [0]
    run.advance(51.0)
    assert run.pods() == {"sim-0-0": 0, "sim-0-1": 1}
    assert run.counters(1)[at.GENERATION] < before[at.GENERATION]
    run.advance(300.0)
    totals = run.totals()
    assert totals.finished == len(load.prompt)
    assert totals.tokens == load.output.sum()
    assert totals.lost_tokens > 0
    emitted = before[at.GENERATION] + sum(run.counters(replica)[at.GENERATION] for replica in range(2))
    assert emitted == totals.tokens + totals.lost_tokens
    assert sorted(totals.row.tolist()) == list(range(len(load.prompt)))


def test_requests_wait_while_no_replica_is_there() -> None:
    run = Deployment(QUICK, arriving(5.0, 60.0))
    run.advance(10.0)
    run.restart(0)
    run.advance(29.0)
    waiting = run.totals().alive
    assert waiting > 60
    run.advance(30.5)
    assert sum(run.load(0)) >= waiting
    assert run.counters(0)[at.FIRST_SECONDS] < run.totals().alive * 1.0, "the pod counts from when it got them"
    run.advance(300.0)
    assert run.totals().ttft.max() > 15.0, "clients from when they asked"


def test_removal_rolls_one_replica_at_a_time() -> None:
    run = Deployment(QUICK, steady(24), replicas=3, table=KTable.constant(3, 64))
    run.advance(10.0)
    run.removed(True)
    seen = []
    for time in np.arange(11.0, 80.0, 10.0):
        run.advance(float(time))
        seen.append((len(run.pods()), sum(run.is_off(replica) for replica in run.pods().values())))
    assert seen[:7] == [(2, 0), (2, 0), (2, 1), (2, 1), (2, 2), (2, 2), (3, 3)]
    assert list(run.pods()) == ["sim-1-0", "sim-1-1", "sim-1-2"]
    assert run.totals().alive == 24
    pool = 'kv_cache_size_tokens="120000"'
    assert all(pool in text and "spec_decode" not in text for text in run.exposition().values())
    run.removed(False)
    run.advance(200.0)
    assert list(run.pods()) == ["sim-2-0", "sim-2-1", "sim-2-2"]
    assert all('tokens="100000"' in text and "spec_decode" in text for text in run.exposition().values())
    assert run.counters(0)[at.DRAFT_TOKENS] == 3 * run.counters(0)[at.DRAFTED] > 0


def test_a_change_of_mind_takes_back_only_what_was_rolled() -> None:
    run = Deployment(QUICK, steady(24), replicas=3)
    run.advance(10.0)
    run.removed(True)
    run.advance(15.0)
    run.removed(False)
    run.advance(200.0)
    assert list(run.pods()) == ["sim-2-0", "sim-0-1", "sim-0-2"]
    assert not any(run.is_off(replica) for replica in range(3))
    run.removed(False)
    run.advance(201.0)
    assert len(run.pods()) == 3


def test_removal_gives_the_drafters_memory_to_requests() -> None:
    tight = plant(kv_tokens=8_000, kv_tokens_without=24_000, restart_seconds=5.0)
    run = Deployment(tight, steady(60), off=False)
    run.advance(60.0)
    before = run.load(0)
    run.removed(True)
    run.advance(120.0)
    assert run.load(0)[0] > 1.5 * before[0]


def test_a_table_that_is_not_live_takes_a_rollout() -> None:
    own = plant(knobs=knobs(actuator=Actuator.TABLE), restart_seconds=20.0)
    run = Deployment(own, steady(24), replicas=2, table=KTable.constant(1, 64), log_steps=50_000)
    run.advance(10.0)
    run.set_table(KTable.constant(3, 64))
    run.advance(12.0)
    assert list(run.pods()) == ["sim-0-1"]
    assert set(run.steps(1).next_k) == {1.0}
    run.advance(60.0)
    assert list(run.pods()) == ["sim-1-0", "sim-1-1"]
    run.steps(0), run.steps(1)
    run.advance(70.0)
    assert set(run.steps(0).k) == set(run.steps(1).k) == {3.0}


def test_a_live_table_reaches_replicas_that_come_back() -> None:
    run = Deployment(QUICK, steady(24), replicas=2, table=KTable.constant(1, 64), log_steps=50_000)
    run.advance(10.0)
    run.restart(1)
    run.set_table(KTable.constant(3, 64))
    run.advance(31.0)
    run.steps(1)
    run.advance(40.0)
    assert set(run.steps(1).k) == {3.0}


def test_a_crash_while_rolling_delays_but_does_not_stop_it() -> None:
    run = Deployment(QUICK, steady(24), replicas=2)
    run.advance(10.0)
    run.removed(True)
    run.advance(15.0)
    run.restart(1)
    assert run.pods() == {}
    run.advance(150.0)
    assert [run.is_off(replica) for replica in run.pods().values()] == [True, True]
    assert run.totals().alive == 24
