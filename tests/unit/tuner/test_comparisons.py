"""Tried blocks beside those at the K in force, put together into the speed of every K."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.tuner.plant import KNOBS, policy

from speculative_operator.domain.observation import BlockTotals, Comparison, PodWindow
from speculative_operator.domain.spec import OffPolicy
from speculative_operator.tuner.comparisons import (
    FADE_SECONDS,
    MOST_CELLS,
    Cell,
    band_of,
    learn_comparisons,
    middle,
)
from speculative_operator.tuner.grid import grid
from speculative_operator.tuner.outlook import Outlook, outlook

LENGTHS = np.array([1.0, 1.7, 2.1, 2.4, 2.6, 2.7])
LOAD = 8


def compared(k: int, against: int, seconds: float, tokens: float, blocks: float = 20.0, load: int = LOAD) -> Comparison:
    """Blocks at `k` whose steps take `exp(seconds)` times as long and yield `exp(tokens)` times as many tokens."""
    steps = 16.0 * blocks
    per, each = math.exp(seconds), math.exp(tokens)

    def totals(steps: float, per: float, each: float) -> BlockTotals:
        times = 0.02 * per * steps
        return BlockTotals(steps, times, load * steps, load * times, 2.0 * each * load * steps, steps, times)

    beside = totals(2 * steps, 1.0, 1.0)
    return Comparison(
        k, against, load, load, blocks, totals(steps, per, each), beside, blocks * seconds**2, blocks * tokens**2
    )


def window(*comparisons: Comparison, load: float = LOAD, seconds: float = 10.0) -> PodWindow:
    steps = seconds / 0.02
    return PodWindow(
        start=1000.0 - seconds, end=1000.0, steps=steps, decode_request_steps=load * steps,
        step_seconds=load * seconds, first_tokens=0.0, generated_tokens=2 * load * steps, prompt_tokens=0.0,
        running=load, waiting=0.0, comparisons=comparisons,
    )  # fmt: skip


def learned(*comparisons: Comparison, known: tuple[Cell, ...] = (), seconds: float = 10.0) -> tuple[Cell, ...]:
    return learn_comparisons(known, [window(*comparisons, seconds=seconds)], [1.0], LENGTHS, 0.0, seconds)


def view(cells: tuple[Cell, ...] = ()) -> Outlook:
    return outlook(policy(), cells=cells, compares=True)


def seen(found: Outlook, k: int, against: int, load: int = LOAD) -> tuple[float, float]:
    row = grid(KNOBS.max_batch).index(load)
    difference = found.against(np.full(len(found.points), against))
    return float(difference.mean[row, k]), float(difference.deviation[row, k])


def test_bands_ascend_and_hold_their_middle() -> None:
    found = [band_of(load) for load in range(1, 1000)]
    assert found == sorted(found)
    assert all(band_of(middle(band)) == band for band in found)


def test_many_blocks_outweigh_the_model() -> None:
    tokens = math.log(LENGTHS[4] / LENGTHS[3])
    cells = learned(compared(4, 3, 0.25, tokens, blocks=200.0))
    model = seen(view(), 4, 3)
    measured = seen(view(cells), 4, 3)
    drafts = view().drafts.length
    assert measured[0] == pytest.approx(math.log(drafts[4] / drafts[3]) - 0.25, abs=0.02)
    assert abs(measured[0] - model[0]) > 0.05
    assert measured[1] < model[1] / 2


def test_few_blocks_of_many_requests_say_more_of_seconds_than_of_tokens() -> None:
    slow, lucky = learned(compared(4, 3, 0.2, 0.0, 3.0)), learned(compared(4, 3, 0.0, 0.5, 3.0))
    plain = learned(compared(4, 3, 0.0, 0.0, 3.0))
    base = seen(view(plain), 4, 3)[0]
    assert base - seen(view(slow), 4, 3)[0] > 0.15
    assert seen(view(lucky), 4, 3)[0] - base < 0.1


def test_where_requests_wait_what_prompts_take_stays() -> None:
    """Steps without prompts are twice as long; with prompts, which take half of the time, half as much longer."""
    tried, beside = (
        BlockTotals(160, 160 * t, 1280, 1280 * t, 2560, 80, 80 * d) for t, d in ((0.06, 0.04), (0.04, 0.02))
    )
    one = Comparison(4, 3, LOAD, LOAD, 10.0, tried, beside, 10.0 * math.log(2.0) ** 2, 0.0)
    few, most = (learn_comparisons((), [window(one)], [1.0], LENGTHS, share, 10.0)[0].seconds for share in (0.0, 1.0))
    assert [few, most] == pytest.approx([math.log(2.0), math.log(1.5)])


def test_a_difference_stays_true_when_another_k_comes_into_force() -> None:
    cells = learned(compared(3, 4, 0.3, 0.0, 100.0))
    forth, back = seen(view(cells), 3, 4), seen(view(cells), 4, 3)
    assert forth[0] == pytest.approx(-back[0])
    assert forth[1] == pytest.approx(back[1])


def test_neighbouring_loads_learn_too_and_distant_ones_do_not() -> None:
    cells = learned(compared(4, 3, 0.6, 0.0, 100.0))
    moved = [seen(view(), 4, 3, load)[0] - seen(view(cells), 4, 3, load)[0] for load in (LOAD, 6, 1)]
    assert moved[0] > moved[1] > moved[2]
    assert moved[0] > 0.2


def test_what_is_compared_fades_with_the_time_of_its_band_alone() -> None:
    cells = learned(compared(4, 3, 0.1, 0.0))
    there = learned(known=cells, seconds=FADE_SECONDS)
    away = learn_comparisons(cells, [window(load=200.0, seconds=300.0)], [1.0], LENGTHS, 0.0, 300.0)
    assert there[0].blocks < 0.4 * cells[0].blocks
    assert away[0].blocks > 0.9 * cells[0].blocks
    assert there[0].seconds == cells[0].seconds


def test_two_looks_are_as_one_of_both() -> None:
    apart = learned(compared(4, 3, 0.1, 0.02, 10.0))
    apart = learn_comparisons(apart, [window(compared(4, 3, 0.2, 0.1, 30.0))], [1.0], LENGTHS, 0.0, 0.0)
    assert len(apart) == 1
    assert apart[0].blocks == pytest.approx(40.0, rel=0.05)
    assert apart[0].seconds == pytest.approx(0.175, abs=0.005)


def test_cells_are_bounded_and_the_best_known_stay() -> None:
    many = [compared(k, other, 0.0, 0.0, 5.0 + load, load) for load in (1, 2, 4, 8, 16) for k in range(6)
            for other in range(6) if k != other]  # fmt: skip
    cells = learned(*many)
    assert len(cells) == MOST_CELLS
    assert min(cell.blocks for cell in cells) > 5.0


@pytest.mark.parametrize("field", ["steps", "request_seconds", "requests", "tokens"])
def test_blocks_in_which_nothing_ran_say_nothing(field: str) -> None:
    one = compared(4, 3, 0.1, 0.0)
    assert learned(replace(one, trial=replace(one.trial, **{field: 0.0}))) == ()


def test_k_that_the_policy_lacks_say_nothing() -> None:
    cells = learned(compared(4, 3, 0.3, 0.0, 100.0))
    fewer = outlook(policy(knobs=replace(KNOBS, ks=(0, 1, 2, 3))), cells=cells, compares=True)
    assert fewer.cells == ()


@pytest.mark.parametrize("active", [0, 3])
def test_no_measurement_makes_drafts_shorten_a_step(active: int) -> None:
    """A step at K = 1 is said to take half of one at K = 0, which it contains."""
    ours = policy(off_policy=OffPolicy.SKIP, knobs=replace(KNOBS, can_skip=True))
    cells = learned(compared(1, 0, -0.7, math.log(LENGTHS[1]), 100.0))
    absurd = outlook(ours, cells=cells, compares=True)
    gain = seen(absurd, 1, active)[0] - seen(absurd, 0, active)[0]
    assert 0.0 < gain <= math.log(absurd.lengths()[1]) + 0.02
