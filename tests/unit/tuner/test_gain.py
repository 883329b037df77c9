"""The gain over pods without a speculator: measured by blocks at K = 0, else estimated."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.unit.tuner.plant import KNOBS, policy
from tests.unit.tuner.test_comparisons import LOAD, compared, learned

from speculative_operator.domain.decision import Basis, Policy
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.comparisons import Cell
from speculative_operator.tuner.gain import UNSEEN, Gain, gain_of
from speculative_operator.tuner.outlook import MEASURED_BLOCKS, QUANTILE, outlook
from speculative_operator.tuner.request_time import TimeShares
from speculative_operator.tuner.traffic import Traffic

SKIPS = policy(off_policy=OffPolicy.SKIP, knobs=replace(KNOBS, can_skip=True, passes_at_zero=0.0))
TABLE = KTable.constant(3, 256)
SHORTER, FEWER = -0.25, math.log(1.0 / 2.0)
"""Log seconds and tokens of a step at K = 0 over those at K = 3."""
SHOWN = learned(compared(0, 3, SHORTER, FEWER, blocks=400.0))


def gain(
    cells: tuple[Cell, ...] = SHOWN,
    table: KTable = TABLE,
    mix: tuple[tuple[float, float], ...] = ((LOAD, 1.0),),
    shares: TimeShares = TimeShares(),  # noqa: B008
    policy: Policy = SKIPS,
    *,
    compares: bool = True,
) -> Gain:
    view = outlook(policy, cells=cells, traffic=Traffic(shares=shares), compares=compares)
    found = gain_of(view, table, mix)
    assert found is not None
    assert found.low < found.mid < found.high
    return found


def test_it_is_the_ratio_of_tokens_over_that_of_seconds() -> None:
    found = gain()
    assert found.basis is Basis.MEASURED
    assert found.mid == pytest.approx(SHORTER - FEWER, abs=0.02)
    assert found.high - found.mid >= QUANTILE * UNSEEN
    assert found.high - found.low < 0.2
    assert found.percent.mid == pytest.approx(100 * math.expm1(found.mid))


def test_prompts_take_the_same_time_without_a_speculator() -> None:
    half = gain(shares=TimeShares(filled=0.5)).mid
    assert half == pytest.approx(math.log(0.5 * math.exp(gain().mid) + 0.5), abs=0.02)
    assert gain(shares=TimeShares(prompting=0.9, lighter=0.1)).mid < 0.1


@pytest.mark.parametrize(
    ("cells", "asked", "compares"),
    [
        (learned(compared(0, 3, SHORTER, FEWER, blocks=MEASURED_BLOCKS - 1.0)), SKIPS, True),
        (learned(compared(0, 3, SHORTER, FEWER, blocks=400.0, load=100)), SKIPS, True),
        (learned(compared(2, 3, SHORTER, FEWER, blocks=400.0)), SKIPS, True),
        (SHOWN, SKIPS, False),
        (SHOWN, replace(SKIPS, off_policy=OffPolicy.KEEP_RUNNING), True),
        (SHOWN, replace(SKIPS, off_policy=OffPolicy.REMOVE), True),
    ],
    ids=["few blocks", "far", "another K", "no trials", "the speculator runs at K = 0", "removed"],
)
def test_what_nobody_measured_is_estimated(cells: tuple[Cell, ...], asked: Policy, compares: bool) -> None:
    found = gain(cells, policy=asked, compares=compares)
    assert found.basis is Basis.ESTIMATED
    assert found.high - found.low > gain().high - gain().low


def test_pods_that_leave_the_speculator_out_are_as_fast_as_without() -> None:
    for asked in (SKIPS, replace(SKIPS, mode=Mode.STATIC)):
        found = gain((), KTable.constant(0, 256), policy=asked)
        assert found.basis is Basis.MEASURED
        assert found.mid == pytest.approx(0.0, abs=1e-9)
    kept = gain((), KTable.constant(0, 256), policy=replace(SKIPS, off_policy=OffPolicy.KEEP_RUNNING))
    assert kept.basis is Basis.ESTIMATED


def test_every_batch_size_counts_by_the_time_of_its_requests() -> None:
    table = KTable.from_rows([[1, 31, 3], [32, 256, 0]])
    assert gain(mix=((LOAD, 0.75), (100.0, 0.25)), table=table).mid == pytest.approx(0.75 * gain().mid, abs=0.01)


@pytest.mark.parametrize(("table", "mix"), [(KTable.constant(9, 256), ((LOAD, 1.0),)), (TABLE, ())])
def test_a_k_that_the_tuner_does_not_choose_from_and_no_requests_have_none(
    table: KTable, mix: tuple[tuple[float, float], ...]
) -> None:
    assert gain_of(outlook(SKIPS, cells=SHOWN, compares=True), table, mix) is None
