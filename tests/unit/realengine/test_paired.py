"""The rule by which two engines count as equally fast: noise never helps, and a real loss never passes."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

import pytest

from payloadbench.paired import (
    FEWEST,
    MARGIN,
    MOST_ERROR,
    Ratio,
    Verdict,
    beside_copies,
    between,
    ratio_of,
    until_resolved,
)
from realengine.e2e.__main__ import check_equal
from realengine.e2e.report import Report

NOISES = (0.0, 0.005, 0.02, 0.05, 0.15, 0.4, 1.0)
"""Standard deviation of the logarithm of one pair."""
SEEDS = 400


def series(seed: int, mean: float, noise: float, stalls: float = 0.0) -> Callable[[int], dict[str, float]]:
    """Pairs of that mean and noise; a share of them, `stalls`, met something that tripled the time of one side."""
    rng = random.Random(seed)

    def pair(_: int) -> dict[str, float]:
        stall = 3.0 ** rng.choice((-1, 1)) if rng.random() < stalls else 1.0
        return {"ratio": mean * stall * rng.lognormvariate(0.0, noise)}

    return pair


def judged(pair: Callable[[int], dict[str, float]], pairs: int = 200) -> Verdict:
    """The verdict after at most so many pairs of a second each."""
    seconds = count()
    return ratio_of(until_resolved(pair, pairs, lambda: float(next(seconds)))["ratio"]).verdict()


def test_the_measurement_that_passed_by_noise_is_undecided() -> None:
    assert Ratio(0.9613, 0.1161, 24).verdict() is Verdict.UNDECIDED
    assert Ratio(1.2, 0.1161, 24).verdict() is Verdict.UNDECIDED, "fast and noisy tells nothing either"


@pytest.mark.parametrize("noise", [0.15, 0.4, 1.0])
@pytest.mark.parametrize("mean", [0.97, 1.0, 1.05])
def test_a_noisy_series_is_never_equal(noise: float, mean: float) -> None:
    assert all(judged(series(seed, mean, noise)) is not Verdict.EQUAL for seed in range(SEEDS))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("stalls", [0.0, 0.1])
def test_a_loss_of_22_per_cent_never_passes(noise: float, stalls: float) -> None:
    assert all(judged(series(seed, 0.78, noise, stalls)) is not Verdict.EQUAL for seed in range(SEEDS))


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02, 0.05])
def test_a_loss_beyond_the_margin_hardly_ever_passes(noise: float) -> None:
    passed = sum(judged(series(seed, 1.0 - MARGIN - 0.005, noise)) is Verdict.EQUAL for seed in range(SEEDS))
    assert passed <= 0.02 * SEEDS


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02, 0.04])
def test_engines_that_are_equal_pass_where_the_machine_is_quiet(noise: float) -> None:
    passed = sum(judged(series(seed, 1.0, noise)) is Verdict.EQUAL for seed in range(SEEDS))
    assert passed >= 0.9 * SEEDS


def test_a_clear_loss_is_called_slower_and_ends_soon() -> None:
    seconds = count()
    found = until_resolved(series(1, 0.8, 0.03), 200.0, lambda: float(next(seconds)))
    assert ratio_of(found["ratio"]).verdict() is Verdict.SLOWER
    assert len(found["ratio"]) == FEWEST


def test_every_ratio_must_be_resolved() -> None:
    quiet, noisy = series(1, 1.0, 0.001), series(2, 1.0, 0.5)
    seconds = count()
    found = until_resolved(
        lambda n: {"quiet": quiet(n)["ratio"], "noisy": noisy(n)["ratio"]}, 50.0, lambda: float(next(seconds))
    )
    assert len(found["quiet"]) == len(found["noisy"]) >= 49, "it went on to the end"
    assert ratio_of(found["quiet"]).verdict() is Verdict.EQUAL
    assert ratio_of(found["noisy"]).verdict() is Verdict.UNDECIDED


@pytest.mark.parametrize("ratios", [[], [1.0], [1.0] * (FEWEST - 1)])
def test_few_pairs_show_nothing(ratios: list[float]) -> None:
    assert ratio_of(ratios).verdict() is Verdict.UNDECIDED


def test_the_error_is_that_of_the_mean() -> None:
    ratio = ratio_of([0.99, 1.01] * 50)
    assert ratio.value == pytest.approx(1.0, abs=1e-3)
    assert ratio.error == pytest.approx(0.001, rel=0.02)
    assert ratio.error < MOST_ERROR


@pytest.mark.parametrize(
    ("copies", "verdict"),
    [
        (Ratio(1.003, 0.003, 100), Verdict.EQUAL),
        (Ratio(1.048, 0.004, 100), Verdict.UNDECIDED),
        (Ratio(0.965, 0.004, 100), Verdict.UNDECIDED),
        (Ratio(1.0, 0.02, 100), Verdict.UNDECIDED),
    ],
)
def test_processes_that_differ_by_themselves_decide_nothing(copies: Ratio, verdict: Verdict) -> None:
    assert beside_copies(Ratio(1.0, 0.003, 100), copies) is verdict
    slower = Verdict.SLOWER if verdict is Verdict.EQUAL else Verdict.UNDECIDED
    assert beside_copies(Ratio(0.78, 0.003, 100), copies) is slower, "no loss is called one that copies show as well"


def test_an_engine_is_compared_with_the_mean_of_two_equal_ones() -> None:
    assert between(0.010, 0.010, 0.010) == pytest.approx(1.0)
    assert between(0.010, 0.0099, 0.0101) == pytest.approx(1.0, abs=1e-4)
    assert between(0.020, 0.010, 0.010) == pytest.approx(0.5)


@pytest.mark.parametrize("ratio", [Ratio(0.9613, 0.1161, 24), Ratio(0.998, 0.001, 100), Ratio(0.78, 0.001, 100)])
def test_the_report_is_ok_only_where_the_ratio_is_resolved_and_within_the_margin(ratio: Ratio) -> None:
    report = Report()
    check_equal(report, "throughput with", "without", ratio)
    assert report.ok is (ratio.value == 0.998)
    assert str(ratio.verdict()) in report.checks[0].numbers
