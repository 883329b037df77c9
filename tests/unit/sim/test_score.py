"""Scores of made-up courses whose value is plain."""

from __future__ import annotations

import numpy as np
import pytest

from speculative_lab.sim import score
from speculative_lab.sim.score import Run


def course(speeds: list[float], load: float = 10.0, **more: object) -> Run:
    """Slices of 5 s with `load` requests and the given tokens per request-second."""
    rates = np.array(speeds)
    ends = 5.0 * np.arange(1, len(rates) + 1)
    held = np.full(len(rates), 5.0 * load)
    return Run("x", ends, rates * held, held, **more)  # type: ignore[arg-type]


def test_speed_leaves_out_the_warm_up() -> None:
    assert score.speed(course([1.0] * 12 + [50.0] * 12)) == 50.0


def test_speed_weighs_by_request_seconds() -> None:
    run = Run("x", np.array([65.0, 70.0]), np.array([100.0, 300.0]), np.array([10.0, 10.0]))
    assert score.speed(run) == 20.0
    assert np.isnan(score.speed(run, 100.0))


def test_regret_is_one_minus_the_ratio() -> None:
    assert score.regret(course([45.0] * 100), course([50.0] * 100)) == pytest.approx(0.1)
    assert score.regret(course([55.0] * 100), course([50.0] * 100)) == pytest.approx(-0.1)


def test_windows_count_as_unsafe_below_98_percent() -> None:
    """720 s: windows start at 60, 120, ..., 420. A slow minute at 60..120 s lies in the first one alone."""
    off = course([50.0] * 144)
    assert score.unsafe_windows(course([50.0] * 144), off) == (0, 7)
    slow = course([50.0] * 12 + [40.0] * 12 + [50.0] * 120)
    assert score.unsafe_windows(slow, off) == (1, 7)
    assert score.worst_window(slow, off) == pytest.approx(0.96)
    assert score.unsafe_windows(course([49.1] * 144), off) == (0, 7)


def test_windows_with_few_tokens_say_nothing() -> None:
    assert score.unsafe_windows(course([1.0] * 144, load=0.1), course([9.0] * 144, load=0.1)) == (0, 0)


def test_adaptation_is_the_time_until_the_run_keeps_up() -> None:
    best = course([50.0] * 200)
    late = course([50.0] * 40 + [40.0] * 6 + [50.0] * 154)
    assert score.adaptation_seconds(late, best, [200.0]) == [pytest.approx(30.0)]
    assert score.adaptation_seconds(best, best, [200.0]) == [0.0]
    assert score.adaptation_seconds(best, best, []) == []


def test_a_step_never_followed_counts_whole() -> None:
    best = course([50.0] * 200)
    assert score.adaptation_seconds(course([40.0] * 200), best, [200.0, 600.0]) == [400.0, 400.0]


def test_a_lucky_slice_is_no_adaptation() -> None:
    best = course([50.0] * 200)
    run = course([50.0] * 40 + [40.0] * 4 + [52.0] * 4 + [40.0] * 4 + [50.0] * 148)
    assert score.adaptation_seconds(run, best, [200.0])[0] >= 55.0


def test_writes_are_counted_per_hour() -> None:
    assert score.writes_per_hour(course([1.0] * 360, writes=(10.0, 900.0))) == 4.0


def test_dead_drafter_minutes() -> None:
    run = course([1.0] * 360, removals=(100.0, 900.0))
    assert score.dead_drafter_minutes(run, 300.0) == 10.0
    assert score.dead_drafter_minutes(course([1.0] * 360), 300.0) == 25.0


def test_dead_weight_needs_more_than_five_percent() -> None:
    best = course([50.0] * 100)
    assert score.is_dead_weight(course([53.0] * 100), best, 0.0)
    assert not score.is_dead_weight(course([52.0] * 100), best, 0.0)
