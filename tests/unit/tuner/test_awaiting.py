"""A change counts from when pods took it, where they say so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.tuner.plant import TICK, Plant, Run, run

from speculative_operator.domain.decision import Decision, State
from speculative_operator.domain.observation import Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.awaiting import LONGEST_SECONDS
from speculative_operator.tuner.learning import learn
from speculative_operator.tuner.traffic import pool

LOAD = 20.0


class Slow(Run):
    """Pods that take a table `delay` ticks after it was asked for, and acknowledge it; None: never say anything."""

    delay = 0
    says = True

    def tick(self, *loads: float) -> Decision:
        for load in loads:
            self.now += TICK
            tables = [decision.table for decision in self.decisions]
            asked = sum(one.changed for one in self.decisions)
            taken = sum(one.changed for one in self.decisions[: max(len(self.decisions) - self.delay, 0)])
            place = max(len(tables) - 1 - self.delay, 0)
            table = tables[place] if tables else self.memory.table
            window = self.plant.window(table, load, self.now)
            pods = {"a": replace(window, table_version=taken if self.says else None)}
            self.see(Observation(self.now, pods, table_version=asked))
        return self.decisions[-1]


def slow(delay: int, says: bool = True, **plant: object) -> Slow:
    plain = run(Plant(telemetry=True, **plant))  # type: ignore[arg-type]  # fields by name
    loop = Slow(plain.plant, plain.policy, plain.memory)
    loop.delay, loop.says = delay, says
    return loop


def at_trial(loop: Slow) -> Slow:
    for _ in range(60):
        loop.tick(LOAD)
        if loop.memory.probe is not None:
            return loop
    raise AssertionError("no trial")


def test_a_trial_begins_when_its_table_is_taken() -> None:
    loop = at_trial(slow(4))
    trial = loop.memory.probe
    assert trial is not None
    for _ in range(4):
        decision = loop.tick(LOAD)
        assert (decision.state, decision.reason, decision.valid) == (State.HOLDING, Reason.HOLDING, False)
        assert "has not taken the table" in decision.message
        assert loop.memory.probe is not None
        assert loop.memory.probe.until == loop.now + trial.until - trial.began
    taken = loop.now
    loop.tick(LOAD)
    assert loop.memory.probe is not None, "its seconds only begin"
    while loop.memory.probe is not None and loop.memory.probe.k == trial.k:
        loop.tick(LOAD)
    assert loop.now - taken >= trial.until - trial.began


def test_what_pods_still_run_is_not_learned_under_the_new_name() -> None:
    """While the old table is in force, what is measured is its own; nothing is of the K on trial."""
    loop = at_trial(slow(6))
    trial = loop.memory.probe
    assert trial is not None
    known = loop.memory.acceptance.reached
    for _ in range(5):
        loop.tick(LOAD)
        assert {sample.k for sample in loop.memory.last} == {float(trial.base.k_at(LOAD))}
    deeper = trial.base.k_at(LOAD)
    assert loop.memory.acceptance.reached[deeper] <= known[deeper] + 1e-9


def test_a_silent_pod_is_believed_after_a_while() -> None:
    """A table that is never taken ends the trial that asked for it."""
    loop = at_trial(slow(10**6))
    base = loop.memory.probe.base if loop.memory.probe else None
    began = loop.now
    while loop.memory.probe is not None:
        loop.tick(LOAD)
        assert loop.now - began < LONGEST_SECONDS + 100.0
    assert loop.now - began > LONGEST_SECONDS
    assert loop.memory.table == base


def test_without_versions_time_decides() -> None:
    loop = at_trial(slow(0, says=False))
    assert loop.tick(LOAD).state is State.PROBING
    assert loop.memory.awaited_since is None


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
