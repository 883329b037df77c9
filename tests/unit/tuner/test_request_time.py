"""Where requests spend their time, and what a K does to it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tuner.plant import KNOBS, Plant

from speculative_operator.domain.observation import BlockTotals, Comparison, PodWindow
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.request_time import TimeShares, whole_time

SEATS = KNOBS.max_batch
PART = st.floats(0.0, 1.0)


def window(load: float = 20.0) -> PodWindow:
    return Plant(noise=0.0).window(KTable.constant(4, SEATS), load, 0.0)


def waiting(**changes: float) -> PodWindow:
    """A window whose requests spend three quarters of their time before their first token, half of it queueing."""
    one = window()
    before = 3.0 * one.step_seconds
    told = {"ttft_seconds": before, "queue_seconds": 2.0 * before / 3.0, "waiting": 40.0, "running": 25.0}
    return replace(one, **{**told, **changes})  # type: ignore[arg-type]


def after(*windows: PodWindow, old: TimeShares | None = None, new: float = 1.0) -> TimeShares:
    return (old or TimeShares()).after(windows, SEATS, new)


def longer(shares: TimeShares, tokens: float, seconds: float) -> float:
    return float(whole_time(shares, np.array(math.log(tokens)), np.array(math.log(seconds))).longer)


class TestWhatIsSeen:
    def test_time_is_split_into_queue_and_prompts(self) -> None:
        seen = after(waiting())
        assert (seen.queued, seen.prompting) == pytest.approx((0.5, 0.25))
        assert seen.full == 0.0
        assert seen.before_first == pytest.approx(0.75)

    def test_without_queue_time_who_waits_and_who_has_a_prompt_computed_tell_the_split(self) -> None:
        one = waiting(waiting=30.0, running=window().batch + 10.0)
        seen = after(replace(one, queue_seconds=None))
        assert seen.queued == pytest.approx(0.75 * 0.75)
        assert seen.before_first == pytest.approx(0.75)

    def test_a_queue_is_for_seats_or_memory_where_these_are_taken_while_requests_wait(self) -> None:
        assert after(waiting(running=0.8 * SEATS)).full == 0.0
        assert after(waiting(running=0.9 * SEATS)).full == pytest.approx(0.5)
        assert after(waiting(running=float(SEATS))).full == 1.0
        assert after(waiting(kv_usage=0.95)).full == 1.0
        assert after(waiting(kv_usage=0.95)).before_first == pytest.approx(0.25)
        assert after(waiting(kv_usage=0.95, waiting=0.0)).full == 0.0

    def test_a_queue_longer_than_the_time_to_first_tokens_counts_as_all_of_it(self) -> None:
        seen = after(waiting(queue_seconds=1e30))
        assert (seen.queued, seen.prompting) == pytest.approx((0.75, 0.0))

    def test_pods_count_by_their_request_steps_and_looks_by_their_weight(self) -> None:
        assert after(waiting(), window()).queued == pytest.approx(0.25, rel=0.05)
        assert after(waiting(), new=0.1).queued == pytest.approx(0.05)

    def test_an_empty_look_changes_nothing(self) -> None:
        old = TimeShares(0.3, 0.2, 0.5, 0.4)
        assert after(replace(window(), decode_request_steps=0.0, steps=0.0), old=old) == old

    def test_steps_with_prompts_tell_how_much_longer_prompts_make_steps(self) -> None:
        """100 steps of 10 ms without prompts, 100 of 40 ms with them."""
        sides = BlockTotals(200.0, 5.0, 800.0, 20.0, 1600.0, 100.0, 1.0)
        blocks = Comparison(1, 0, 1, 8, 25.0, sides, sides, 1.0, 1.0)
        found = after(replace(window(), comparisons=(blocks,)))
        assert (found.lighter, found.filled) == pytest.approx((0.25, 0.6))


class TestWholeTime:
    def test_without_a_queue_and_prompts_it_is_seconds_over_tokens(self) -> None:
        assert longer(TimeShares(), 2.0, 1.2) == pytest.approx(math.log(1.2 / 2.0))

    def test_prompts_gain_nothing_from_tokens(self) -> None:
        assert longer(TimeShares(prompting=0.5), 2.0, 1.2) == pytest.approx(math.log(0.5 * 1.2 + 0.5 * 0.6))
        light = TimeShares(prompting=0.5, lighter=0.25)
        assert longer(light, 2.0, 1.2) == pytest.approx(math.log(0.5 * 1.05 + 0.5 * 0.6))

    def test_a_queue_for_prompts_grows_by_longer_steps_and_one_for_seats_shrinks_by_shorter_answers(self) -> None:
        assert longer(TimeShares(queued=0.5), 2.0, 1.2) == pytest.approx(math.log(0.5 * 1.2**3 + 0.5 * 0.6))
        assert longer(TimeShares(queued=0.5, full=1.0), 2.0, 1.2) == pytest.approx(math.log(0.5 * 0.6**3 + 0.5 * 0.6))

    @given(PART, PART, PART, PART, st.floats(-7.0, 7.0), st.floats(-7.0, 7.0))
    def test_derivatives_are_those_of_the_time(
        self, queued: float, prompting: float, full: float, lighter: float, richer: float, seconds: float
    ) -> None:
        shares = TimeShares(queued, (1.0 - queued) * prompting, full, lighter)
        found = whole_time(shares, np.array(richer), np.array(seconds))
        step = 1e-6
        more, fewer = (whole_time(shares, np.array(richer), np.array(seconds + d)).longer for d in (step, -step))
        assert float(found.by_seconds) == pytest.approx(float((more - fewer) / (2 * step)), abs=1e-4)
        more, fewer = (whole_time(shares, np.array(richer + d), np.array(seconds)).longer for d in (step, -step))
        assert float(found.by_tokens) == pytest.approx(-float((more - fewer) / (2 * step)), abs=1e-4)

    @given(PART, PART, PART, PART)
    def test_the_k_in_force_takes_as_long_as_it_takes(
        self, queued: float, prompting: float, full: float, lighter: float
    ) -> None:
        shares = TimeShares(queued, (1.0 - queued) * prompting, full, lighter)
        assert longer(shares, 1.0, 1.0) == pytest.approx(0.0, abs=2e-3)
