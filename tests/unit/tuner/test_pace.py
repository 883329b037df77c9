"""The budget of writes, and the price that follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuner.plant import KNOBS, policy

from speculative_operator.domain.table import Actuator
from speculative_operator.tuner.pace import PER_HOUR, SAVED, URGENT, Pace, dwell_seconds

HOUR = 3600.0


def test_a_rested_deployment_may_write_and_pays_least() -> None:
    assert Pace().allows(0.0)
    assert Pace().after(100 * HOUR) == Pace()


def test_saved_writes_are_spent_one_by_one() -> None:
    paces = [Pace()]
    while paces[-1].allows(0.0):
        paces.append(paces[-1].spend())
    assert len(paces) == SAVED + 1


def test_time_grants_writes() -> None:
    spent = Pace(0.0)
    assert not spent.allows(0.0)
    assert spent.after(HOUR).left == pytest.approx(min(PER_HOUR, SAVED))
    assert spent.after(HOUR).allows(0.0)


def test_a_debt_is_paid_off_first() -> None:
    assert not Pace(-3.0).after(HOUR / PER_HOUR).allows(0.0)


def test_a_clock_that_went_backwards_grants_and_takes_nothing() -> None:
    assert Pace(2.0).after(-1e9) == Pace(2.0)


@given(st.lists(st.floats(1, 600), min_size=1, max_size=200))
@settings(max_examples=30, derandomize=True)
def test_no_pattern_of_waits_writes_more_than_is_granted(waits: list[float]) -> None:
    pace, writes = Pace(), 0
    for wait in waits:
        pace = pace.after(wait)
        if pace.allows(0.0):
            pace, writes = pace.spend(), writes + 1
    assert writes <= SAVED + PER_HOUR * sum(waits) / HOUR + 1e-6
    assert pace.left <= SAVED


def test_dwell_follows_what_a_change_costs() -> None:
    live = policy()
    rollout = policy(knobs=replace(KNOBS, actuator=Actuator.RESTART))
    assert dwell_seconds(live, URGENT) < dwell_seconds(live, 0.0) < dwell_seconds(rollout, 0.0)
    assert dwell_seconds(rollout, URGENT) == dwell_seconds(rollout, 0.0)
