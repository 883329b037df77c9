"""Schedules, cut-offs and the one-way gate."""

from __future__ import annotations

import pytest

from speculative_lab.sim.policies import fixed
from speculative_lab.sim.policies.base import snap, tabulate
from speculative_lab.sim.policies.gate import Gate
from speculative_operator.domain.table import Actuator, KnobSpace

KNOBS = KnobSpace(Actuator.LIVE, tuple(range(6)), 64)


def ks_of(policy: fixed.Fixed) -> list[int]:
    return policy._table.dense()


@pytest.mark.parametrize(("batch", "length"), [(1, 4), (4, 4), (5, 2), (8, 2), (9, 1), (32, 1), (33, 0), (500, 0)])
def test_schedule_keys_are_inclusive_upper_bounds(batch: int, length: int) -> None:
    assert fixed.scheduled_length(fixed.SCHEDULE, batch) == length


def test_cutoff_drafts_three_below_its_limit() -> None:
    assert ks_of(fixed.cutoff(32, KNOBS)) == [3] * 31 + [0] * 33


def test_auto_takes_five_only_for_tiny_deployments() -> None:
    assert ks_of(fixed.auto(KNOBS)) == [3] * 32 + [0] * 32
    assert ks_of(fixed.auto(KnobSpace(Actuator.LIVE, (0, 3, 5), 4))) == [5] * 4


def test_constants_are_named_after_k() -> None:
    assert fixed.constant(0, KNOBS).name == "off"
    assert ks_of(fixed.constant(5, KNOBS)) == [5] * 64
    assert fixed.constant(5, KNOBS).name == "static_5"


@pytest.mark.parametrize(("wanted", "found"), [(0, 0), (1, 1), (2, 1), (3, 3), (6, 3), (7, 7), (9, 7)])
def test_k_that_the_engine_lacks_is_lowered(wanted: int, found: int) -> None:
    assert snap(wanted, (0, 1, 3, 7)) == found


def test_the_smallest_k_stands_for_one_that_is_below_it() -> None:
    assert snap(1, (0, 3)) == 3
    assert tabulate(lambda batch: 9, KNOBS).dense() == [5] * 64


def test_the_gate_waits_for_a_full_window() -> None:
    gate = Gate(window=3, threshold=0.5)
    assert [gate.completed(1.1), gate.completed(1.1), gate.completed(1.1)] == [False, False, True]


def test_the_gate_never_opens_again() -> None:
    gate = Gate(window=2, threshold=0.5)
    gate.completed(None)
    assert gate.completed(1.0)
    assert all(gate.completed(5.0) for _ in range(10))


def test_the_gate_stays_open_while_the_mean_holds() -> None:
    """Accepted 0.9 and 0.1 in turn: the mean of two is 0.5, which is not below the threshold."""
    gate = Gate(window=2, threshold=0.5)
    assert not any(gate.completed(length) for length in (1.9, 1.1) * 20)
