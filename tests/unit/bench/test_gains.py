"""The judge of reported gains."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from bench.tuner.gains import ALIKE, LEAST_SECONDS, Report, main, true_gain
from speculative_operator.domain.decision import Basis

LOADS = [1.0, 4.0, 16.0]
RUN = np.array([[120.0, 400.0, 0.0], [10.0, 20.0, 0.0], LOADS])
"""Tokens, request-seconds and mean load at three loads."""


def test_the_true_gain_is_that_of_loads_that_both_have_met() -> None:
    none = np.array([[100.0, 300.0, 900.0], [10.0, 20.0, 30.0], LOADS])
    assert true_gain(RUN, none) == pytest.approx((math.log(1.2) + 2 * math.log(4 / 3)) / 3)
    none[1, 0] = LEAST_SECONDS
    assert true_gain(RUN, none) == pytest.approx(math.log(4 / 3))


def test_loads_that_are_far_apart_are_not_the_same() -> None:
    none = np.array([[100.0, 300.0, 900.0], [10.0, 20.0, 30.0], [1.0, 4.0 * 2.0 ** (1.1 * ALIKE), 16.0]])
    assert true_gain(RUN, none) == pytest.approx(math.log(1.2))


def test_runs_that_met_other_loads_are_not_judged() -> None:
    assert true_gain(RUN, np.array([[0.0, 0.0, 900.0], [0.0, 0.0, 30.0], LOADS])) is None


def test_an_interval_holds_the_truth_or_not() -> None:
    assert Report(0.1, 0.0, 0.05, 0.1, Basis.MEASURED).holds_truth
    assert str(Report(0.2, 0.0, 0.05, 0.1, Basis.ESTIMATED)).endswith("estimated +5 % [+0, +11], outside")


def test_worlds_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "771", "--count", "2", "--minutes", "8"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert set(told) <= {"measured", "estimated"}
    judged = [line for line in err.splitlines() if "true " in line]
    assert sum(one["worlds"] for one in told.values()) == len(judged) > 0
