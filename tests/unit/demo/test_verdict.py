"""The demo's claims, held to figures whose answer is known: each claim must be able to fail."""

from __future__ import annotations

import pytest
from tests.unit.demo.test_figures import sight

from demo.figures import Phases
from demo.verdict import Phase, Stretches, checks_of_k, checks_of_phases, phases_of

GOOD = {
    "low": Phase({"auto": 5.0, "static5": 5.1, "off": 8.0}, 4.0),
    "peak": Phase({"auto": 27.0, "static5": 90.0, "static-best": 40.0, "off": 27.0}, 0.03),
    "after": Phase({"auto": 5.0, "static5": 5.1, "off": 8.0}, 4.0),
}
STEADY = Stretches([1.0, 2.0, -1.0, 1.5], [1.0, -1.0, 1.0, -1.0])
"""Chance is 1 % in ten seconds, half a per cent in the mean."""


def test_what_holds_is_said_to_hold() -> None:
    assert all({**checks_of_phases(GOOD, STEADY), **checks_of_k(GOOD)}.values())


@pytest.mark.parametrize("phase", ["low", "peak", "after"])
@pytest.mark.parametrize("role", ["static5", "off"])
def test_a_slow_phase_is_found_whatever_the_others_are(phase: str, role: str) -> None:
    slow = {**GOOD, phase: Phase({**GOOD[phase].tpot_ms, role: 0.88 * (GOOD[phase].tpot_ms["auto"] or 0.0)}, 0.0)}
    assert sum(not good for good in checks_of_phases(slow, STEADY).values()) == 1


def test_the_best_constant_k_may_not_be_faster_at_the_peak() -> None:
    peak = Phase({**GOOD["peak"].tpot_ms, "static-best": 25.0}, 0.03)
    assert sum(not good for good in checks_of_phases({**GOOD, "peak": peak}, STEADY).values()) == 1


@pytest.mark.parametrize(("auto", "holds"), [(27.6, True), (27.7, False)])
def test_the_mean_of_the_peak_may_be_two_percent_and_chance_slower(auto: float, holds: bool) -> None:
    peak = Phase({**GOOD["peak"].tpot_ms, "auto": auto}, 0.03)
    assert all(checks_of_phases({**GOOD, "peak": peak}, STEADY).values()) == holds


def test_the_report_tells_what_is_gained_over_no_speculation() -> None:
    cells = [GOOD["low"].cell(role) for role in ("auto", "off", "again")]
    assert cells == ["5.0 ms (+60 %)", "8.0 ms", "–"]


def test_ten_seconds_may_be_slower_by_what_chance_explains() -> None:
    """Two copies without speculation differ by 1 %, or where the machine is busy by 3 %."""
    assert STEADY.limit == 6.0
    assert STEADY.summary() == {"median": 1.2, "worst": 2.0, "chance": 1.0, "limit": 6.0, "mean_limit": 2.5}
    slow = Stretches([1.0, 7.0, 1.0], STEADY.chance)
    assert sum(not good for good in checks_of_phases(GOOD, slow).values()) == 1
    assert all(checks_of_phases(GOOD, Stretches(slow.tuned, [3.0, -3.0])).values())


def test_nothing_is_said_of_ten_seconds_that_nobody_saw() -> None:
    for blind in (Stretches([], [1.0]), Stretches([1.0], [])):
        assert not all(checks_of_phases(GOOD, blind).values())
        assert blind.summary() is None


@pytest.mark.parametrize("phase", ["low", "peak", "after"])
def test_a_phase_without_figures_shows_nothing(phase: str) -> None:
    blind = {**GOOD, phase: Phase({}, None)}
    assert not all(checks_of_phases(blind, STEADY).values())
    assert not all(checks_of_k(blind).values())


def test_k_that_does_not_follow_the_load_is_found() -> None:
    assert not all(checks_of_k({**GOOD, "peak": GOOD["low"]}).values())
    assert not all(checks_of_k({**GOOD, "after": GOOD["peak"]}).values())


def test_each_phase_has_its_own_windows() -> None:
    seen = {"auto": [sight(30, 100, 1.0, 200, 300), sight(60, 100, 4.0, 200, 100), sight(95, 100, 1.0, 200, 300)]}
    found = phases_of(seen, Phases.of(100))
    assert [found[name].k for name in ("low", "peak", "after")] == [3.0, 1.0, 3.0]
    assert found["peak"].tpot_ms == {"auto": 20.0}
    assert found["peak"].ttft_ms == {"auto": 250.0}


def test_stretches_are_those_of_the_peak() -> None:
    theirs = [sight(at, 100, 1.0, 100, 0) for at in range(0, 100, 5)]
    ours = [sight(at, 100, 1.1 if at > 30 else 2.0, 100, 0) for at in range(0, 100, 5)]
    assert Stretches.of({"auto": ours, "off": theirs, "again": theirs}, (40, 60)) == Stretches([10.0, 10.0], [0.0, 0.0])
