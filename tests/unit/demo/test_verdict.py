"""The demo's claims, held to figures whose answer is known: each claim must be able to fail."""

from __future__ import annotations

import pytest
from tests.unit.demo.test_figures import sight

from demo.figures import Phases
from demo.verdict import Phase, checks_of_k, checks_of_phases, phases_of

GOOD = {
    "low": Phase({"auto": 5.0, "static5": 5.1, "off": 8.0}, 4.0),
    "peak": Phase({"auto": 27.0, "static5": 90.0, "off": 27.0}, 0.03),
    "after": Phase({"auto": 5.0, "static5": 5.1, "off": 8.0}, 4.0),
}


def test_what_holds_is_said_to_hold() -> None:
    assert all({**checks_of_phases(GOOD), **checks_of_k(GOOD)}.values())


@pytest.mark.parametrize("phase", ["low", "peak", "after"])
@pytest.mark.parametrize("role", ["static5", "off"])
def test_a_slow_phase_is_found_whatever_the_others_are(phase: str, role: str) -> None:
    slow = {**GOOD, phase: Phase({**GOOD[phase].tpot_ms, role: 0.88 * (GOOD[phase].tpot_ms["auto"] or 0.0)}, 0.0)}
    assert sum(not good for good in checks_of_phases(slow).values()) == 1


@pytest.mark.parametrize("phase", ["low", "peak", "after"])
def test_a_phase_without_figures_shows_nothing(phase: str) -> None:
    blind = {**GOOD, phase: Phase({}, None)}
    assert not all(checks_of_phases(blind).values())
    assert not all(checks_of_k(blind).values())


def test_k_that_does_not_follow_the_load_is_found() -> None:
    assert not all(checks_of_k({**GOOD, "peak": GOOD["low"]}).values())
    assert not all(checks_of_k({**GOOD, "after": GOOD["peak"]}).values())


def test_each_phase_has_its_own_windows() -> None:
    seen = {"auto": [sight(30, 100, 1.0, 200, 300), sight(60, 100, 4.0, 200, 100), sight(95, 100, 1.0, 200, 300)]}
    found = phases_of(seen, Phases.of(100))
    assert [found[name].k for name in ("low", "peak", "after")] == [3.0, 1.0, 3.0]
    assert found["peak"].tpot_ms == {"auto": 20.0}
