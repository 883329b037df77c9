"""The short part of `make chaos`: the operator killed at points drawn by chance, a hanging API server, absurd metrics.

What each of them does and what is harm is in dev/chaos; the whole is in docs/reliability.md.
"""

from __future__ import annotations

import random

import pytest

from chaos import faults
from chaos.faults.fault import Fault
from chaos.judge import Check
from chaos.run import Report, line, play

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

KILLS = 3


@pytest.fixture(scope="module")
def report(enclosures: None) -> Report:
    """Of one run, whose seed is in the output of a test that fails."""
    seed = random.randrange(10_000)
    return play(seed, faults.SHORT, kills=KILLS, short=True)


@pytest.mark.parametrize("fault", [fault for fault in faults.SHORT if fault is not faults.CONTROL])
def test_no_fault_does_harm(report: Report, fault: type[Fault]) -> None:
    (outcome,) = [one for one in report.outcomes if one.name == fault.name]
    assert outcome.harms == [], line(outcome)
    assert outcome.answered > 0


def test_the_judge_finds_harm_that_is_done(report: Report) -> None:
    (control,) = [one for one in report.outcomes if one.expects_harm]
    assert control.of(Check.PODS)
