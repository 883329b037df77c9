"""Trials of another K: when they are worth it, what ends them, and that they always lead back."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuner.plant import KNOBS, TICK, Plant, Run, policy, run

from speculative_operator.domain.decision import State
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory
from speculative_operator.tuner.memory import Probe
from speculative_operator.tuner.outlook import Outlook, outlook
from speculative_operator.tuner.pace import Pace
from speculative_operator.tuner.probe import (
    AGAIN_SECONDS,
    ARMS,
    MOST_TRIALS,
    SECONDS,
    STEADY_SECONDS,
    begun,
    expected_improvement,
    following,
    trial_table,
    watch_load,
    worth_probing,
)

LOAD = 20.0


def view_of(loop: Run, memory: Memory | None = None) -> Outlook:
    held = memory or loop.memory
    return outlook(loop.policy, held.costs, held.acceptance, held.traffic)


def ready(**changes: object) -> tuple[Run, Memory]:
    """A loop a few ticks old, and its memory as it is when trials are allowed."""
    loop = run(Plant(noise=0.01), policy(**changes))
    loop.play(*[LOAD] * 3)
    steady = (loop.now - 2 * STEADY_SECONDS, LOAD)
    return loop, replace(loop.memory, probe=None, surveyed=False, trials=(), steady=steady, changed_at=None, since=0.0)


def test_a_full_engine_tries_no_larger_k() -> None:
    """From 512 verified tokens in a cell of the load on; at few requests the same memory has the choice."""
    loop, memory = ready()
    view = view_of(loop, memory)
    full = replace(memory, table=KTable.constant(1, KNOBS.max_batch), steady=(memory.steady[0], 180.0))
    tried = worth_probing(full, view, [180.0], loop.now)
    assert tried is None or max(tried.k, *tried.next, 0) <= 1
    few = replace(full, steady=(memory.steady[0], LOAD))
    assert max(worth_probing(few, view, [LOAD], loop.now).k, 0) > 1  # type: ignore[union-attr]  # there is one


@given(st.floats(-0.3, 0.3), st.floats(0.001, 0.3))
@settings(max_examples=20, derandomize=True, deadline=None)
def test_expected_improvement_is_the_mean_of_what_is_gained(gain: float, spread: float) -> None:
    draws = np.random.default_rng(5).standard_normal(200_000)
    true = np.maximum(gain + spread * draws, 0.0).mean()
    found = expected_improvement(np.array([gain]), np.array([spread]))[0]
    assert found == pytest.approx(true, abs=0.01 * spread)
    assert found >= max(gain, 0.0) - 1e-12


def test_without_doubt_knowing_is_worth_what_is_known() -> None:
    assert expected_improvement(np.array([0.1, -0.1]), np.zeros(2)) == pytest.approx([0.1, 0.0])


class TestWorth:
    """What `worth_probing` says of a memory."""

    def test_the_neighbours_are_surveyed_once(self) -> None:
        loop, memory = ready()
        trial = worth_probing(memory, view_of(loop), [LOAD], loop.now)
        assert trial is not None
        k = memory.table.k_at(LOAD)
        assert abs(trial.k - k) == 1
        assert len(trial.next) == ARMS - 1
        assert trial.base == memory.table
        assert trial.began == loop.now < trial.until

    def test_no_second_survey_when_all_is_known(self) -> None:
        loop = run(Plant(noise=0.01))
        loop.play(*[LOAD] * 60)
        assert loop.memory.surveyed
        rested = replace(loop.memory, trials=(), pace=Pace(), probe=None)
        known = view_of(loop)
        known.__dict__["gradients"] = np.zeros_like(known.gradients)  # nothing in doubt
        assert worth_probing(rested, known, [LOAD], loop.now) is None
        assert worth_probing(replace(rested, surveyed=False), known, [LOAD], loop.now) is not None

    @pytest.mark.parametrize("left", [-2.0, 0.0, 1.0])
    def test_not_without_writes_for_there_and_back(self, left: float) -> None:
        loop, memory = ready()
        assert worth_probing(replace(memory, pace=Pace(left)), view_of(loop), [LOAD], loop.now) is None

    def test_one_arm_when_writes_are_short(self) -> None:
        loop, memory = ready()
        trial = worth_probing(replace(memory, pace=Pace(2.0)), view_of(loop), [LOAD], loop.now)
        assert trial is not None
        assert trial.next == ()

    def test_not_while_the_load_or_the_table_is_new(self) -> None:
        loop, memory = ready()
        moved = replace(memory, steady=(loop.now - STEADY_SECONDS + 1, LOAD))
        changed = replace(memory, changed_at=loop.now - STEADY_SECONDS + 1)
        for one in (moved, changed):
            assert worth_probing(one, view_of(loop), [LOAD], loop.now) is None

    def test_not_more_than_a_few_an_hour(self) -> None:
        loop, memory = ready()
        other = tuple((loop.now - 600.0 - n, 1000.0) for n in range(MOST_TRIALS))
        assert worth_probing(replace(memory, trials=other), view_of(loop), [LOAD], loop.now) is None

    @pytest.mark.parametrize("actuator", [Actuator.TABLE, Actuator.RESTART])
    def test_never_where_a_trial_is_a_rollout(self, actuator: Actuator) -> None:
        loop, memory = ready(knobs=replace(KNOBS, actuator=actuator))
        assert worth_probing(memory, view_of(loop), [LOAD], loop.now) is None

    def test_never_beyond_the_capture_ceiling(self) -> None:
        knobs = replace(KNOBS, capture_ceiling_tokens=64)
        loop, memory = ready(knobs=knobs)
        trial = worth_probing(memory, view_of(loop), [LOAD], loop.now)
        assert trial is None or all((k + 1) * LOAD <= 64 * 1.1 for k in (trial.k, *trial.next))

    def test_never_what_is_surely_far_worse(self) -> None:
        loop, memory = ready()
        view = view_of(loop)
        speed = view.speed.copy()
        speed[:, [k for k in range(6) if k != memory.table.k_at(LOAD)]] -= 5.0
        view.__dict__["speed"] = speed
        assert worth_probing(memory, view, [LOAD], loop.now) is None


def test_steadiness_counts_from_the_last_change_of_load() -> None:
    memory = Memory.fresh(KTable.constant(3, 256), 0.0)
    memory = watch_load(memory, 20.0, 100.0)
    assert watch_load(memory, 25.0, 200.0).steady == (100.0, 20.0)
    assert watch_load(memory, 100.0, 200.0).steady == (200.0, 100.0)
    assert watch_load(memory, 20.0, 50.0).steady == (50.0, 20.0)  # a clock that went backwards


def test_trials_are_forgotten_in_time_and_when_they_lie_ahead() -> None:
    memory = replace(
        Memory.fresh(KTable.constant(3, 256), 0.0), trials=((0.0, 20.0), (AGAIN_SECONDS, 20.0), (9e9, 1.0))
    )
    assert watch_load(memory, 20.0, AGAIN_SECONDS + 1.0).trials == ((AGAIN_SECONDS, 20.0),)


def test_a_trial_touches_only_loads_near_those_there_are() -> None:
    loop, memory = ready()
    view = view_of(loop)
    trial = worth_probing(memory, view, [LOAD, 100.0], loop.now)
    assert trial is not None
    table = trial_table(trial, view, [LOAD, 100.0])
    assert table.k_at(LOAD) == table.k_at(100.0) == trial.k
    for point in (1, 2, 5, 45, 250):
        assert table.k_at(point) == trial.base.k_at(point)


def test_arms_follow_one_another() -> None:
    loop, memory = ready()
    trial = worth_probing(memory, view_of(loop), [LOAD], loop.now)
    assert trial is not None
    second = following(replace(memory, probe=trial), trial.until)
    assert second is not None
    assert (second.k, second.base, second.began) == (trial.next[0], trial.base, trial.until)
    assert following(replace(memory, probe=second), second.until) is None
    assert following(memory, trial.until) is None


def test_two_k_of_one_trial_are_one_trial_and_two_writes() -> None:
    loop, memory = ready()
    view = view_of(loop)
    trial = worth_probing(memory, view, [LOAD], loop.now)
    assert trial is not None
    first = begun(memory, trial, view, [LOAD])
    late = following(first, trial.until + 600.0)
    assert late is not None
    second = begun(first, late, view, [LOAD])
    assert second.trials == first.trials != memory.trials
    assert second.pace.left == memory.pace.left - 2.0


def test_where_few_are_served_a_trial_takes_longer() -> None:
    loop, memory = ready()
    few = worth_probing(replace(memory, steady=(memory.steady[0], 1.0)), view_of(loop), [1.0], loop.now)
    many = worth_probing(memory, view_of(loop), [LOAD], loop.now)
    assert few is not None
    assert many is not None
    assert few.until > many.until


def test_while_nothing_is_drafted_trials_become_rarer_up_to_a_limit() -> None:
    loop, memory = ready()
    off = KTable.constant(0, 256)
    memory = replace(memory, table=off)
    waits = [memory.retry_seconds]
    for n in range(8):
        trial = Probe(base=off, k=1, began=loop.now + 9000.0 * n, until=loop.now + 9000.0 * n + 10)
        memory = replace(begun(memory, trial, view_of(loop), [LOAD]), table=off, probe=None)
        waits.append(memory.retry_seconds)
    assert waits == sorted(waits)
    assert waits[1] > waits[0]
    assert waits[-1] == waits[-2]
    drafting = Probe(base=KTable.constant(2, 256), k=3, began=loop.now + 9e5, until=loop.now + 9e5 + 10)
    assert begun(memory, drafting, view_of(loop), [LOAD]).retry_seconds == waits[0]


class TestInTheLoop:
    """Trials as decisions."""

    def test_a_trial_that_shows_nothing_leads_back(self) -> None:
        loop = run(Plant(noise=0.0))
        began = loop.until_probe(LOAD)
        assert (began.state, began.reason, began.changed, began.valid) == (State.PROBING, Reason.PROBING, True, True)
        trial = loop.memory.probe
        assert trial is not None
        assert began.table == loop.memory.table != trial.base
        while loop.memory.probe is not None:
            loop.play(LOAD)
        last = loop.decisions[-1]
        assert last.changed
        assert last.reason in {Reason.PROBED, Reason.FASTER, Reason.LOW_ACCEPTANCE, Reason.HIGH_CONCURRENCY}
        if last.reason is Reason.PROBED:
            assert last.table == trial.base
            assert "brought no gain" in last.message
        assert loop.now - trial.began <= ARMS * (SECONDS + TICK) + TICK

    def test_both_ways_out_occur(self) -> None:
        """Where the K in force is the best, the table before is back; where the trial is better, its K stays."""
        best = run(
            Plant(conditional=(0.7,) * 5, slow=dict.fromkeys((0, 1, 3, 4, 5), 1.3)), table=KTable.constant(2, 256)
        )
        loop = run(Plant(conditional=(0.7,) * 5, slow={2: 1.3}), table=KTable.constant(2, 256))
        for one in (best, loop):
            one.play(*[4] * 40)
        assert best.memory.table.k_at(4) == 2
        assert any(decision.reason is Reason.PROBED for decision in best.decisions)
        assert loop.memory.table.k_at(4) != 2

    def test_a_gap_during_a_trial_changes_nothing_but_that_it_ends(self) -> None:
        loop = run(Plant())
        loop.until_probe(LOAD)
        trial, table = loop.memory.probe, loop.memory.table
        assert trial is not None
        for _ in range(20):
            loop.now += TICK
            decision = loop.see(Observation(loop.now, {"pod": Gap(Reason.METRICS_MISSING, "gone")}))
            if loop.now < trial.until:
                assert (decision.valid, decision.changed, decision.table) == (False, False, table)
            else:
                assert (decision.table, loop.memory.probe) == (trial.base, None)
        loop.play(*[LOAD] * 8)
        assert loop.memory.probe is None

    def test_a_trial_that_measures_clearly_worse_ends_early(self) -> None:
        loop = run(Plant(noise=0.0))
        loop.until_probe(LOAD)
        trial = loop.memory.probe
        assert trial is not None
        loop.plant.slow = {trial.k: 1.8}
        loop.now += 4.0
        window = loop.plant.window(loop.memory.table, LOAD, loop.now, seconds=3.0)
        assert loop.now < trial.until
        decision = loop.see(Observation(loop.now, {"pod": window}))
        assert decision.changed
        assert loop.memory.probe is None or loop.memory.probe.k != trial.k

    def test_the_same_trial_without_a_loss_goes_on(self) -> None:
        loop = run(Plant(noise=0.0))
        loop.until_probe(LOAD)
        trial = loop.memory.probe
        loop.now += 4.0
        window = loop.plant.window(loop.memory.table, LOAD, loop.now, seconds=3.0)
        decision = loop.see(Observation(loop.now, {"pod": window}))
        assert (decision.changed, loop.memory.probe) == (False, trial)

    def test_a_restart_of_the_operator_ends_a_trial_in_its_base(self) -> None:
        loop = run(Plant())
        loop.until_probe(LOAD)
        trial = loop.memory.probe
        assert trial is not None
        restored = Memory.from_status(loop.memory.to_status(), loop.policy)
        assert restored.probe is None
        assert restored.table == trial.base

    def test_a_clock_that_steps_back_ends_it(self) -> None:
        loop = run(Plant())
        loop.until_probe(LOAD)
        loop.now -= 5000.0
        loop.play(*[LOAD] * 8)
        assert loop.memory.probe is None

    @pytest.mark.parametrize("mode", [Mode.RECOMMEND, Mode.STATIC])
    def test_no_trial_without_the_right_to_change(self, mode: Mode) -> None:
        loop = run(Plant(), policy(mode=mode))
        table = loop.memory.table
        loop.play(*[LOAD] * 60)
        assert loop.memory.probe is None
        assert loop.memory.table == table
        assert all(decision.state is not State.PROBING for decision in loop.decisions)

    def test_a_mode_that_only_recommends_ends_a_trial(self) -> None:
        loop = run(Plant())
        loop.until_probe(LOAD)
        known = {loop.memory.table, loop.memory.probe.base if loop.memory.probe else None}
        loop.policy = policy(mode=Mode.RECOMMEND)
        loop.play(*[LOAD] * 6)
        assert loop.memory.probe is None
        assert loop.memory.table in known
        assert all(d.state is not State.PROBING for d in loop.decisions[-5:])

    def test_knobs_that_change_during_a_trial_are_kept_to(self) -> None:
        knobs = replace(KNOBS, max_batch=1)
        loop = run(Plant(knobs=knobs), policy(knobs=knobs))
        loop.until_probe(1)
        trial = loop.memory.probe
        assert trial is not None
        fewer = replace(knobs, ks=tuple(k for k in knobs.ks if k not in trial.base.ks))
        loop.policy, loop.plant.knobs = policy(knobs=fewer), fewer
        for _ in range(20):
            assert loop.play(1).table.ks <= set(fewer.ks)

    def test_no_trial_while_the_load_moves(self) -> None:
        loop = run(Plant())
        loop.play(*itertools.islice(itertools.cycle((4, 40)), 120))
        assert all(decision.state is not State.PROBING for decision in loop.decisions)

    def test_no_trial_without_writes(self) -> None:
        loop = run(Plant())
        for _ in range(60):
            loop.memory = replace(loop.memory, pace=Pace(0.5))
            loop.play(LOAD)
        assert all(decision.state is not State.PROBING for decision in loop.decisions)

    def test_trials_cost_little_of_what_is_served(self) -> None:
        loop = run(Plant(noise=0.03))
        loop.play(*[LOAD] * 360)
        probing = [n for n, decision in enumerate(loop.decisions) if decision.state is State.PROBING]
        base = min(loop.regret[-60:])
        assert 0 < len(probing) <= MOST_TRIALS * (ARMS + 1) * 2
        assert sum(max(loop.regret[n + 1] - base, 0.0) for n in probing if n + 1 < 360) / 360 < 0.005
