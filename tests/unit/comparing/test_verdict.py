"""What `compare` says of two objects: never more than the figures show, and nothing of absurd ones."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.comparing.drawn import priced, samples

from speculative_operator.comparing.matching import STEEPEST, Basis
from speculative_operator.comparing.measures import Sample
from speculative_operator.comparing.verdict import Comparison, Limits, Measure, Verdict, compare

OPPOSITE = {
    Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER,
    Verdict.EQUIVALENT: Verdict.EQUIVALENT, Verdict.UNDECIDED: Verdict.UNDECIDED,
}  # fmt: skip


def verdicts(found: Comparison) -> dict[Measure, Verdict]:
    return {one.measure: one.verdict for one in found.measures}


def test_a_slower_object_is_worse_and_a_faster_one_better() -> None:
    slower = compare(samples(1), samples(2, pace=1.06))
    assert slower.verdict is Verdict.WORSE
    tpot = slower.of(Measure.TPOT)
    assert (tpot.low or 9.0) < 1.06 < (tpot.high or 0.0)
    assert slower.of(Measure.THROUGHPUT).ratio == pytest.approx(1 / 1.06, rel=0.02)
    assert compare(samples(1), samples(2, pace=0.94)).verdict is Verdict.BETTER


def test_equal_objects_are_equivalent_once_that_is_known() -> None:
    found = compare(samples(1, 400), samples(2, 400))
    assert found.verdict is Verdict.EQUIVALENT
    assert found.of(Measure.TPOT).a == pytest.approx(0.02, rel=0.05)
    assert compare(samples(1, 400), samples(2, 400), Limits(equivalent=0.001)).verdict is Verdict.UNDECIDED


@settings(max_examples=15, deadline=None)
@given(st.floats(0.8, 1.25), st.floats(0.8, 1.25), st.integers(20, 90), st.floats(4.0, 16.0))
def test_swapping_the_objects_inverts_every_ratio_and_measure(
    pace: float, ttft: float, count: int, batch: float
) -> None:
    a, b = priced(samples(3, count), 5.0), priced(samples(4, count, pace=pace, ttft=ttft, batch=batch), 5.0)
    there, back = compare(a, b), compare(b, a)
    # Worse in one measure is Worse; Better in one is nothing while TPOT is not known.
    allowed = {there.verdict, OPPOSITE[back.verdict]}
    assert len(allowed) == 1 or allowed in ({Verdict.WORSE, Verdict.UNDECIDED}, {Verdict.BETTER, Verdict.UNDECIDED})
    assert there.basis is back.basis
    for one in there.measures:
        other = back.of(one.measure)
        assert one.verdict is OPPOSITE[other.verdict]
        if one.ratio is not None and other.ratio is not None:
            assert one.ratio == pytest.approx(1 / other.ratio, rel=1e-3)
        if one.low is not None and other.high is not None:
            assert one.low == pytest.approx(1 / other.high, rel=1e-3)


@settings(max_examples=10, deadline=None)
@given(st.floats(0.3, 5.0))
def test_units_of_time_and_money_cancel(scale: float) -> None:
    def scaled(every: list[Sample]) -> list[Sample]:
        times = ("start", "end", "request_seconds", "step_seconds", "ttft_seconds")
        return [replace(one, hourly_cost=7.0, **{name: getattr(one, name) * scale for name in times}) for one in every]

    a, b = samples(5), samples(6, pace=1.1)
    plain, other = compare(priced(a, 1.0), priced(b, 1.0)), compare(scaled(a), scaled(b))
    for measure in (Measure.TPOT, Measure.TTFT, Measure.THROUGHPUT, Measure.COST):
        assert other.of(measure).ratio == pytest.approx(plain.of(measure).ratio, rel=1e-6)


def test_a_canary_with_an_eighth_of_the_requests_is_not_faster_for_that() -> None:
    busy = samples(1, batch=16.0) + [
        replace(one, start=one.start + 1e4, end=one.end + 1e4) for one in samples(7, batch=2.0)
    ]
    found = compare(busy, samples(2, 160, batch=2.0))
    assert found.of(Measure.TPOT).ratio == pytest.approx(1.0, abs=0.02)
    assert found.verdict in (Verdict.EQUIVALENT, Verdict.UNDECIDED)
    assert found.matched_seconds == pytest.approx(80 * 15.0, rel=0.05)


def test_other_loads_and_other_prompts_are_not_compared() -> None:
    for other in (samples(2, batch=200.0, pace=0.1), samples(2, prompt=5000.0, pace=0.5)):
        found = compare(samples(1), other)
        assert set(verdicts(found).values()) == {Verdict.UNDECIDED}
        assert "in common" in found.why


def test_a_much_quicker_object_at_the_same_traffic_is_compared_at_equal_requests_per_second() -> None:
    """With a quarter of the batch size it answers as many requests."""
    found = compare(samples(1), samples(2, batch=2.0, pace=0.5))
    tpot, speed = found.of(Measure.TPOT), found.of(Measure.THROUGHPUT)
    assert (found.verdict, found.basis) == (Verdict.BETTER, Basis.ARRIVALS)
    assert (tpot.low or 9.0) < 0.25 < (tpot.high or 0.0) < 0.3
    assert (speed.verdict, speed.ratio, "equal batch" in speed.why) == (Verdict.UNDECIDED, None, False)
    assert "batch sizes are equal" in speed.why
    assert compare(samples(1), samples(2, pace=0.7)).basis is Basis.BATCH


def test_requests_per_second_that_differ_a_little_widen_the_intervals_and_more_ends_it() -> None:
    def width(pace: float) -> float:
        one = compare(samples(1), samples(2, batch=2.0, pace=pace)).of(Measure.TPOT)
        return math.log((one.high or math.inf) / (one.low or 1e-9))

    assert width(0.47) > width(0.5) + 2 * STEEPEST * 0.04
    assert "in common" in compare(samples(1), samples(2, batch=2.0, pace=0.4)).why


def test_no_figures_are_undecided_and_name_the_side() -> None:
    assert compare([], samples(2)).why == "there are no figures of A"
    assert compare(samples(1), []).why == "there are no figures of B"
    few = compare(samples(1, 6), samples(2, 6, pace=0.5))
    assert few.verdict is Verdict.UNDECIDED
    assert few.of(Measure.TPOT).why == "too few requests or minutes in common so far"


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e300])
@pytest.mark.parametrize("name", [one.name for one in fields(Sample) if one.type == "float"])
def test_absurd_figures_are_never_better(name: str, value: float) -> None:
    wrong: dict[str, Any] = {name: value}
    absurd = [replace(one, **wrong) for one in samples(2, pace=0.5)]
    found = compare(samples(1), absurd)
    assert found.verdict is not Verdict.BETTER
    if not value < 1e300:
        assert (found.verdict, found.why[:2]) == (Verdict.UNDECIDED, "B:")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda one: {"request_seconds": one.request_seconds / 1e4},
        lambda one: {"tokens": one.tokens * 1e3},
        lambda one: {"request_seconds": one.request_seconds / 50},
        lambda one: {"start": 1e9, "end": 1e9 + 15},
        lambda one: {"tokens": one.first_tokens / 2},
        lambda one: {"steps": 0.0},
    ],
)  # fmt: skip
def test_contradictions_are_never_better(wrong: Any) -> None:
    found = compare(samples(1), [replace(one, **wrong(one)) for one in samples(2)])
    assert found.verdict is Verdict.UNDECIDED


def test_what_is_better_in_one_and_worse_in_another_is_left_to_the_user() -> None:
    found = compare(samples(1), samples(2, pace=0.7, ttft=1.5))
    assert found.of(Measure.TPOT).verdict is Verdict.BETTER
    assert found.of(Measure.TTFT).verdict is Verdict.WORSE
    assert (found.verdict, "worse in TTFT" in found.why) == (Verdict.UNDECIDED, True)


def test_a_small_loss_of_ttft_beside_a_clear_gain_of_tpot_is_better_and_named() -> None:
    found = compare(samples(1), samples(2, pace=0.7, ttft=1.1))
    ttft = found.of(Measure.TTFT)
    assert (found.verdict, ttft.verdict) == (Verdict.BETTER, Verdict.WORSE)
    assert re.search(r"a little worse in TTFT \(at most 1\d%, of 25% tolerated\)", found.why)
    strict = Limits(ttft_tolerated=0.05)
    assert compare(samples(1), samples(2, pace=0.7, ttft=1.1), strict).verdict is Verdict.UNDECIDED
    assert (ttft.beyond(Limits()), ttft.beyond(strict), ttft.within(strict)) == (False, True, False)
    assert compare(samples(1), samples(2, pace=0.99, ttft=1.1)).verdict is not Verdict.BETTER


def test_a_loss_of_ttft_decides_nothing_while_tpot_is_not_known_but_where_it_is_large() -> None:
    def compared(ttft: float) -> Comparison:
        return compare(samples(1, scatter=0.1), samples(2, pace=0.97, ttft=ttft, scatter=0.1))

    small, large = compared(1.2), compared(1.6)
    assert [one.of(Measure.TPOT).verdict for one in (small, large)] == [Verdict.UNDECIDED] * 2
    assert [one.of(Measure.TTFT).verdict for one in (small, large)] == [Verdict.WORSE] * 2
    assert (small.verdict, large.verdict) == (Verdict.UNDECIDED, Verdict.WORSE)


def test_a_longer_tail_is_worse_though_the_mean_is_equal() -> None:
    a, b = samples(1, 200, tail=0.002), samples(2, 200, tail=0.03)
    found = compare(a, b)
    tail = found.of(Measure.TPOT_P99)
    assert tail.verdict is Verdict.WORSE
    assert (tail.ratio or 0.0) > 3
    assert found.verdict is Verdict.WORSE


def test_a_tail_of_other_buckets_or_of_one_bucket_is_undecided() -> None:
    other = [replace(one, tpot_histogram=((1.0, 5.0), (math.inf, 0.0))) for one in samples(2)]
    assert compare(samples(1), other).of(Measure.TPOT_P99).verdict is Verdict.UNDECIDED
    assert compare(other, other).of(Measure.TPOT_P99).verdict is Verdict.UNDECIDED


def test_cost_is_hourly_cost_by_tokens_per_second() -> None:
    one = replace(samples(1, 1)[0], tokens=1500.0, step_seconds=15.0, accelerators=1.0, hourly_cost=5.0)
    assert one.cost == pytest.approx(0.013889, rel=1e-4)
    dear = compare(priced(samples(1), 5.0), priced(samples(2, pace=0.8), 10.0))
    assert dear.of(Measure.COST).ratio == pytest.approx(1.6, rel=0.02)
    assert dear.of(Measure.COST).verdict is Verdict.WORSE
    assert "hourlyCost" in compare(samples(1), samples(2)).of(Measure.COST).why


def test_order_and_doubled_samples_change_nothing() -> None:
    a, b = samples(1), samples(2, pace=1.03)
    assert compare(a[::-1] + a, b[::-1] + b[:7]) == compare(a, b)
