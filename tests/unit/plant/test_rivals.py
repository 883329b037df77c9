"""Rivals set K as their laws say, on requests that are the tuner's, too."""

from __future__ import annotations

import numpy as np
import pytest

from speculative_lab.plant import layout as at
from speculative_lab.plant import steptime as st
from speculative_lab.plant.draw import world
from speculative_lab.plant.replica import find_work
from speculative_lab.plant.rivals import RIVALS, Adaptive, SmartSpec, Timed, features, linear_fit, run, work_of
from speculative_lab.plant.serving import constant, fresh, until, with_table
from speculative_lab.plant.types import State
from speculative_lab.plant.world import World

SECONDS = 180.0


def served(k: int) -> tuple[World, State]:
    """A replica after two minutes, with a step that is planned."""
    drawn = world(3, 1, SECONDS)
    replica = drawn.replicas[0]
    state = fresh(replica, drawn.top_k, SECONDS)
    until(state, replica, constant(drawn, k), 120.0)
    find_work(replica.machine, state, replica.opened, SECONDS)
    return drawn, state


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_serves_the_same_requests(name: str) -> None:
    drawn = world(3, 1, SECONDS)
    first, again, plain = run(drawn, name), run(drawn, name), with_table(drawn, constant(drawn, 0))
    assert np.array_equal(first.minutes, again.minutes)
    assert first.speed != plain.speed
    assert len(first.ttft) == pytest.approx(len(plain.ttft), rel=0.3)


def test_the_fit_is_of_the_size_of_the_steps_that_it_was_made_of() -> None:
    drawn = world(3, 1, SECONDS)
    machine = drawn.replicas[0].machine
    terms = linear_fit(machine, drawn.top_k)
    guess = float((features(np.array([8.0]), np.array([2.0]), 500.0) @ terms)[0])
    assert guess == pytest.approx(st.quiet_seconds(machine, work_of(8, 2, 500.0, 16.0)), rel=0.5)


def test_acceptance_decides_how_far_smartspec_drafts() -> None:
    drawn, state = served(2)
    law = SmartSpec(drawn.replicas[0].machine, drawn.policy.knobs.ks)
    state.positions[:] = 0.0
    chosen = []
    for rate in (1.0, 0.0):
        for _ in range(200):
            state.positions[0] += 1.0
            state.positions[1] += rate
            k = law.next_k(state)
        chosen.append(k)
    assert chosen == [drawn.top_k, 0]


def test_adaptive_verification_takes_drafts_back_and_always_makes_all() -> None:
    drawn, state = served(3)
    law = Adaptive(drawn.replicas[0].machine, drawn.policy.knobs.ks)
    rows = state.running[: int(state.now[at.RUNNING])]
    state.req[rows, at.SKILL] = -9.0
    before = state.req[rows, at.DRAFTED].sum()
    assert law.next_k(state) == drawn.top_k
    assert before > 0
    assert state.req[rows, at.DRAFTED].sum() == 0


def test_a_table_of_timed_steps_follows_the_acceptance_of_each_position() -> None:
    drawn, state = served(2)
    law = Timed(drawn.replicas[0].machine, drawn.policy.knobs.ks)
    state.positions[:] = 0.0
    chosen = []
    for good in (drawn.top_k, 1, 0):
        for _ in range(3_000):
            state.positions[0] += 1.0
            state.positions[1, :good] += 1.0
            k = law.next_k(state)
        chosen.append(k)
    assert drawn.top_k == chosen[0] > chosen[1] > chosen[2] == 0


def test_a_law_that_rests_tries_drafts_now_and_then() -> None:
    drawn, state = served(2)
    law = Timed(drawn.replicas[0].machine, drawn.policy.knobs.ks)
    state.positions[:] = 0.0
    tried = 0
    for _ in range(3_000):
        state.positions[0] += 1.0
        tried += law.next_k(state) > 0
    assert 40 < tried < 160
