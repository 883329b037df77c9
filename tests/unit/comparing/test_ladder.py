"""What is read from the load generator's table, and what is said of a ladder of rates."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.comparing.ladder import Measure, Step, measured, rungs, verdict

TABLE = (Path(__file__).parents[2] / "fixtures" / "guidellm.csv").read_text()
"""Of GuideLLM 0.8.1 at 4 requests/s for 10 s, without the columns that are not read."""


def step(rate: float, drafts: bool, repeat: int, tpot: float, **more: float) -> Step:
    return replace(Step(rate, drafts, repeat, {Measure.TPOT: tpot}, done=60), **more)  # type: ignore[arg-type]


def ladder(*pairs: tuple[float, float, float]) -> str:
    """What is said of (rate, TPOT without, TPOT with) as two repeats that differ by 4 %."""
    steps = [
        step(rate, drafts, repeat, value * (1.0 if repeat == 1 else 1.04 if drafts else 1.0))
        for rate, plain, drafted in pairs
        for repeat in (1, 2)
        for drafts, value in ((False, plain), (True, drafted))
    ]
    return " ".join(verdict(rungs(steps)))


def test_a_table_is_read_in_seconds() -> None:
    found = measured(Step(4.0, True, 1), TABLE)
    assert (found.done, found.failed, found.cut) == (39, 0, 2)
    assert found.values is not None
    assert found.values[Measure.TPOT] == pytest.approx(0.0073, abs=1e-4)
    assert found.values[Measure.TTFT] == pytest.approx(0.0181, abs=1e-4)
    assert found.values[Measure.TTFT_P99] > found.values[Measure.TTFT]
    assert found.values[Measure.THROUGHPUT] == pytest.approx(249.6)
    assert (found.prompt_tokens, round(found.running, 2)) == (108.0, 1.88)


@pytest.mark.parametrize(
    "text", ["", "a\nb\nc\n", "a,b\nc\nd\ne\n", "Run Info\nx\n\n1\n", TABLE.replace("Successful", "Lucky")]
)
def test_what_is_no_such_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no row of values|count requests"):
        measured(Step(1.0, True, 1), text)


@given(st.text())
def test_no_text_ends_otherwise_than_with_a_step_or_a_refusal(text: str) -> None:
    """A pod's log says anything."""
    with contextlib.suppress(ValueError):
        measured(Step(1.0, True, 1), text)


def test_only_what_all_repeats_show_is_told_apart() -> None:
    said = ladder((1.0, 0.020, 0.010), (4.0, 0.020, 0.0198), (8.0, 0.020, 0.025))
    assert "shorter at 1/s (0.51, repeats 0.50 to 0.52)" in said
    assert "not told apart at 4/s" in said
    assert "longer at 8/s" in said


def test_one_repeat_tells_nothing_apart() -> None:
    said = " ".join(verdict(rungs([step(1.0, False, 1, 0.02), step(1.0, True, 1, 0.01)])))
    assert "not told apart at 1/s (0.50" in said
    assert "raise --repeats" in said


def test_a_side_that_is_missing_tells_nothing() -> None:
    assert "nothing is known" in next(verdict(rungs([step(1.0, True, 1, 0.01)])))
    assert "nothing is known" in next(verdict([]))


def test_requests_that_pile_up_are_said_to() -> None:
    steps = [step(8.0, False, 1, 0.02, cut=300, running=40.0), step(8.0, True, 1, 0.01, cut=8, running=7.0)]
    assert "at 8/s requests piled up" in " ".join(verdict(rungs(steps)))
    assert "piled up" not in " ".join(verdict(rungs([steps[1], replace(steps[1], drafts=False)])))
