"""Threshold laws against values worked out by hand from their published form."""

from __future__ import annotations

import pytest

from speculative_lab.sim.policies.base import Step
from speculative_lab.sim.policies.thresholds import AutoSpec, RuleOfThumb, SglangAdaptive, Slot, SlotRule, padded

EVERY = tuple(range(9))


def step(batch: int, k: int, accepted: float) -> Step:
    return Step(batch, batch, k, 0.01, accepted, batch * (1.0 + accepted))


def feed(law: SglangAdaptive | AutoSpec | RuleOfThumb, times: int, batch: int, accepted: float) -> list[int]:
    """K chosen at `batch` after each of so many steps in which the law's own K ran."""
    found = []
    for _ in range(times):
        k = law.choose(batch)
        law.observe(step(batch, k, min(accepted, k)))
        found.append(law.choose(batch))
    return found


def test_slots_start_at_three_three_one_and_none() -> None:
    law = SglangAdaptive(EVERY)
    assert [law.choose(batch) for batch in (1, 7, 8, 31, 32, 63, 64, 200)] == [3, 3, 3, 1, 1, 0, 0, 0]


def test_batches_are_padded_before_they_are_routed() -> None:
    assert [padded(batch) for batch in (1, 9, 31, 33, 41)] == [1, 10, 32, 40, 48]
    law = SglangAdaptive(EVERY)
    assert law.route(31) is law.route(32)
    assert law.route(30) is law.route(8)
    assert law.route(57) is law.route(64)


def test_nothing_moves_during_warm_up_and_then_every_fifth_step() -> None:
    """Slot of 1: mean starts at 2. All 3 accepted: 3 - 0.8^15 = 2.965 > 2.5 at the fifteenth step -> 5 steps."""
    found = feed(SglangAdaptive(EVERY), 15, 1, 9.0)
    assert found == [3] * 14 + [5]


def test_full_acceptance_climbs_to_the_top_of_the_slot() -> None:
    """With 5 accepted: the mean passes 4.5 within the next five steps (not 5 - 2.035 * 0.8^5 = 4.33, then 4.78)."""
    found = feed(SglangAdaptive(EVERY), 25, 1, 9.0)
    assert found[15:] == [5] * 9 + [7]


def test_no_acceptance_falls_to_one_at_single_requests() -> None:
    """2 * 0.8^15 = 0.07 <= 0.5 - 0.25: down to the lowest candidate, 1; never 0 in this slot."""
    found = feed(SglangAdaptive(EVERY), 40, 1, 0.0)
    assert found[14:] == [1] * 26


def test_low_acceptance_is_a_square_wave_between_32_and_63() -> None:
    """At 0 steps the smallest candidate is tried at the next decision, whatever is known, and falls again after it."""
    found = feed(SglangAdaptive(EVERY), 30, 40, 0.0)
    assert found[13:] == [1] + [0] * 5 + [1] * 5 + [0] * 5 + [1]


def test_the_mean_is_frozen_while_nothing_is_drafted() -> None:
    slot = Slot(SlotRule(32, (0, 1), down=0.0), 1)
    slot.steps, slot.mean = 0, 0.4
    for _ in range(9):
        slot.verified(5.0, 0.2, 10, 5)
    assert slot.mean == 0.4


def test_a_ceiling_lowers_steps_below_what_acceptance_asks_for() -> None:
    slot = Slot(SlotRule(1, (1, 3, 5, 7), ceiling=1.0), 5)
    for _ in range(15):
        slot.verified(3.9, 0.2, 10, 5)
    assert slot.steps == 3


def test_from_64_requests_on_sglang_never_drafts() -> None:
    assert set(feed(SglangAdaptive(EVERY), 60, 64, 0.0)) == {0}


def test_candidates_that_the_engine_lacks_are_left_out() -> None:
    law = SglangAdaptive((0, 1, 3, 7))
    assert feed(law, 30, 1, 9.0)[14] == 7


@pytest.mark.parametrize(
    ("batch", "rate", "expected"),
    [(1, 0.56, 4), (1, 0.52, 3), (1, 0.49, 2), (32, 0.90, 3), (32, 0.92, 4), (64, 0.64, 2)],
)
def test_autospec_moves_by_one_step_outside_its_dead_zone(batch: int, rate: float, expected: int) -> None:
    law = AutoSpec(EVERY)
    for _ in range(5):
        law.observe(step(batch, 3, rate * 3))
    assert law.choose(batch) == expected


def test_autospec_buckets_are_apart_and_steps_stay_within_one_and_six() -> None:
    law = AutoSpec(EVERY)
    assert feed(law, 60, 2, 9.0)[-1] == 6
    assert feed(law, 60, 16, 0.0)[-1] == 1
    assert law.choose(100) == 3


def test_rule_of_thumb_is_off_at_32_and_lowers_k_below_half() -> None:
    law = RuleOfThumb(EVERY)
    assert (law.choose(31), law.choose(32)) == (3, 0)
    assert feed(law, 200, 8, 0.6)[-1] == 2
