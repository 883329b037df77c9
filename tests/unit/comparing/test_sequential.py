"""The intervals hold at every look."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from speculative_operator.comparing.measures import sample_of
from speculative_operator.comparing.sequential import FEWEST, boundary, half_width, widened
from speculative_operator.domain.observation import PodWindow


def misses(alike: float, error: float, runs: int = 200, length: int = 160) -> float:
    """Share of processes of first order with mean 0 whose intervals ever miss it, looked at every fourth value."""
    rng, found = np.random.default_rng(3), 0
    for _ in range(runs):
        values = rng.normal(size=length)
        for place in range(1, length):
            values[place] = alike * values[place - 1] + math.sqrt(1 - alike**2) * values[place]
        for count in range(FEWEST, length + 1, 4):
            own = values[:count]
            width = half_width((own - own.mean()) / count, np.arange(count), 15.0 * count, error)
            if width is not None and abs(own.mean()) > width:
                found += 1
                break
    return found / runs


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_intervals_rarely_ever_miss(alike: float) -> None:
    assert misses(alike, 0.05) <= 0.1


def test_one_interval_of_a_fixed_time_would_miss_often() -> None:
    """What this guards against: looking until the usual 95 % interval leaves the mean."""
    rng = np.random.default_rng(3)
    walks = np.cumsum(rng.normal(size=(300, 160)), axis=1)[:, FEWEST:] / np.sqrt(np.arange(FEWEST + 1, 161))
    assert np.mean(np.abs(walks).max(axis=1) > 1.96) > 0.2


def test_the_boundary_is_tightest_at_ten_minutes_and_never_that_of_one_look() -> None:
    reach = [boundary(seconds, 0.05) for seconds in (60.0, 600.0, 6000.0)]
    assert min(reach) == reach[1]
    assert min(reach) > NormalDist().inv_cdf(0.975)


def test_widened_is_students_t() -> None:
    assert widened(1.959964, 9) == pytest.approx(2.262, rel=0.005)
    assert widened(2.575829, 30) == pytest.approx(2.750, rel=0.005)
    assert widened(3.0, 1e6) == pytest.approx(3.0, rel=1e-3)


def test_too_little_is_known() -> None:
    ones = np.ones(FEWEST)
    assert half_width(ones[1:], np.arange(FEWEST - 1), 600.0, 0.05) is None
    assert half_width(ones, np.zeros(FEWEST, dtype=np.int64), 600.0, 0.05) is None
    assert half_width(np.sin(np.arange(FEWEST)), np.arange(FEWEST), 239.0, 0.05) is None


def test_windows_of_pods_are_added_up() -> None:
    first = PodWindow(
        0.0, 15.0, steps=100, decode_request_steps=400, step_seconds=8.0, first_tokens=5, generated_tokens=805,
        prompt_tokens=1000, running=4, waiting=0, ttft_seconds=1.0, ttft_histogram=((1.0, 5.0), (math.inf, 0.0)),
    )  # fmt: skip
    second = PodWindow(
        4.0, 19.0, steps=50, decode_request_steps=50, step_seconds=0.5, first_tokens=1, generated_tokens=51,
        prompt_tokens=10, running=1, waiting=0, ttft_seconds=0.1, ttft_histogram=((1.0, 1.0), (math.inf, 0.0)),
    )  # fmt: skip
    one = sample_of([first, second], accelerators_per_pod=2)
    assert one is not None
    assert (one.start, one.end, one.batch, one.tpot) == (2.0, 17.0, 3.0, 8.5 / 850)
    assert one.throughput == pytest.approx(856 / (2.0 + 0.5) / 2)
    assert one.ttft_histogram == ((1.0, 6.0), (math.inf, 0.0))
    assert sample_of([], accelerators_per_pod=2) is None
