"""P99 from histograms: by values, and that no histogram makes it lie."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tuner.tails import BOUNDS, histogram

from speculative_operator.domain.observation import Histogram
from speculative_operator.tuner.tail import Bounds, add, fall, is_believable, p99, requests, slow

FAST = tuple((bound, 0.0) for bound in BOUNDS)


def of(**counts: float) -> Histogram:
    """Counts by upper bound in milliseconds: `of(ms25=990)`."""
    named = {float(name.removeprefix("ms")) / 1e3: count for name, count in counts.items()}
    return tuple((bound, named.get(bound, 0.0)) for bound in BOUNDS)


def test_nothing_is_known_of_no_requests() -> None:
    assert p99(()) == p99(FAST) == Bounds(0.0, math.inf)


def test_the_interval_is_the_bucket_where_requests_are_many() -> None:
    assert p99(of(ms25=9_000, ms50=1_000)) == Bounds(0.025, 0.05)


def test_below_the_first_bound_nothing_is_told_apart() -> None:
    assert p99(of(ms10=10_000)) == Bounds(0.0, 0.01)


def test_few_requests_widen_the_interval() -> None:
    assert p99(of(ms25=95, ms50=5)) == Bounds(0.01, math.inf)
    assert p99(of(ms25=94, ms50=6)) == Bounds(0.025, math.inf)
    assert p99(of(ms25=458)) == Bounds(0.01, math.inf)
    assert p99(of(ms25=459)) == Bounds(0.01, 0.025)


def test_a_share_of_just_one_per_cent_is_neither() -> None:
    assert p99(of(ms25=9_900, ms50=100)) == Bounds(0.01, 0.05)


def test_slow_are_those_that_surely_were() -> None:
    seen = of(ms25=50, ms50=30, ms75=20)
    assert [slow(seen, target) for target in (0.025, 0.03, 0.05, 0.05001, 0.1)] == [50, 20, 20, 0, 0]


@pytest.mark.parametrize(
    ("before", "after", "least", "most"),
    [((100, 1000), (50, 1000), 4.0, 5.0), ((10, 100), (9, 100), 0.0, 0.5), ((50, 1000), (100, 1000), -5.0, -4.0)],
)
def test_a_fall_is_told_in_standard_deviations(
    before: tuple[float, float], after: tuple[float, float], least: float, most: float
) -> None:
    assert least < fall(before, after) < most


def test_a_fall_needs_requests() -> None:
    assert fall((0, 0), (1, 10)) == fall((1, 10), (0, 0)) == fall((0, 10), (0, 10)) == 0.0


def test_histograms_are_added_by_what_is_new_and_fade() -> None:
    first = add((), [(of(ms25=100), 0.5), (of(ms50=10), 1.0)], 1.0)
    assert first == of(ms25=50, ms50=10)
    assert add(first, [], 0.5) == of(ms25=25, ms50=5)


def test_buckets_of_others_are_not_mixed() -> None:
    other = ((0.02, 5.0), (math.inf, 0.0))
    assert add((), [(of(ms25=100), 1.0), (other, 1.0)], 1.0) == of(ms25=100)
    assert add(of(ms25=100), [(other, 1.0)], 1.0) == other  # the engine was replaced by one with other buckets


@pytest.mark.parametrize(
    "odd",
    [
        ((0.1, 3.0), (math.inf, math.nan)),
        ((0.1, 3.0), (math.inf, -1.0)),
        ((0.1, 3.0), (math.inf, math.inf)),
        ((0.1, 3.0), (0.2, 1.0)),
        ((0.2, 3.0), (0.1, 1.0), (math.inf, 0.0)),
        ((0.0, 3.0), (math.inf, 0.0)),
        ((math.nan, 3.0), (math.inf, 0.0)),
    ],
    ids=["no number", "below 0", "too many", "no last bound", "falling", "a bound of 0", "a bound that is none"],
)
def test_what_is_no_histogram_is_left_out(odd: Histogram) -> None:
    assert not is_believable(odd)
    assert add(of(ms25=1), [(odd, 1.0)], 1.0) == of(ms25=1)


@given(st.lists(st.floats(0, 1e9), min_size=len(BOUNDS), max_size=len(BOUNDS)))
def test_the_interval_spans_a_bucket_and_holds_the_p99(counts: list[float]) -> None:
    seen = tuple(zip(BOUNDS, counts, strict=True))
    found, whole = p99(seen), requests(seen)
    assert found.low in (0.0, *BOUNDS)
    assert found.low < found.high
    if whole > 0:
        assert slow(seen, found.low) > 0.01 * whole * (1 - 1e-9) or found.low == 0
        assert found.high == math.inf or slow(seen, found.high) <= 0.01 * whole


@pytest.mark.parametrize("mean", [0.012, 0.03, 0.06])
def test_the_interval_holds_the_true_one(mean: float) -> None:
    true = mean * math.exp(2.326 * 0.3)
    for count in (50, 500, 5_000, 500_000):
        assert p99(histogram(mean, 0.3, count)).low <= true <= p99(histogram(mean, 0.3, count)).high


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (Bounds(), "unknown"),
        (Bounds(0.025, 0.05), "25 to 50 ms"),
        (Bounds(0.0, 0.01), "below 10 ms"),
        (Bounds(2.5, math.inf), "above 2500 ms"),
    ],
)
def test_bounds_are_told_in_words(bounds: Bounds, text: str) -> None:
    assert str(bounds) == text
