"""What the engine is to try, and what comes of it in the closed loop."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.unit.tuner.plant import KNOBS, Plant, policy, run
from tests.unit.tuner.test_comparisons import LOAD, compared, learned

from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.tuner.outlook import outlook
from speculative_operator.tuner.trials import (
    BASELINE_BLOCKS,
    LEAST_SHARE,
    MOST_COST,
    MOST_KS,
    MOST_SHARE,
    RESTING_SHARE,
    expected_improvement,
    missing,
    worth_trying,
)


def test_rows_ascend_within_the_table_and_name_other_k_than_its_own() -> None:
    table = KTable.from_rows([[1, 11, 4], [12, 60, 2], [61, 256, 0]])
    rows = worth_trying(outlook(policy(), compares=True), table)
    assert rows
    for row, after in pairwise(rows):
        assert row.last < after.first
    for row in rows:
        held = {table.k_at(load) for load in range(row.first, row.last + 1)}
        assert len(held) == 1
        assert not held & set(row.ks)
        assert 1 <= len(row.ks) <= MOST_KS
        assert LEAST_SHARE <= row.share <= MOST_SHARE


def test_knowing_is_worth_more_the_nearer_and_the_less_sure() -> None:
    gain, spread = np.array([-0.2, -0.02, -0.02, 0.1]), np.array([0.05, 0.05, 0.01, 0.0])
    far, near, sure, known = expected_improvement(gain, spread)
    assert near > far >= 0
    assert near > sure
    assert known == pytest.approx(0.1)


@pytest.mark.parametrize("batch", [1.0, 4.0, 10.0, 30.0, 100.0])
@pytest.mark.parametrize("slow", [{3: 1.1}, {2: 0.9}, {1: 0.85, 5: 1.2}])
def test_a_k_that_the_model_prices_wrongly_is_found(batch: float, slow: dict[int, float]) -> None:
    loop = run(Plant(telemetry=True, slow=slow), policy(), KTable.constant(3, KNOBS.max_batch))
    loop.play(*[batch] * 60)
    assert np.mean(loop.regret[-8:]) < 0.01
    assert loop.writes <= 6


def test_in_a_steady_load_nothing_is_written_for_tries_again_and_again() -> None:
    loop = run(Plant(telemetry=True))
    trials = []
    for _ in range(120):
        loop.play(10.0)
        trials.append((loop.memory.table, loop.memory.trials))
    assert sum(one != other for one, other in pairwise(trials)) <= 6


@pytest.mark.parametrize(
    "changes", [{"mode": Mode.RECOMMEND}, {"trials": False}, {"mode": Mode.STATIC, "schedule": KTable.constant(3, 256)}]
)
def test_nothing_is_tried_where_nobody_may(changes: dict[str, object]) -> None:
    loop = run(Plant(telemetry=True), policy(**changes))
    loop.play(*[10.0] * 20)
    assert loop.memory.trials == ()
    assert all(decision.trials == () for decision in loop.decisions)


def test_nothing_is_tried_where_engines_tell_nothing_of_blocks() -> None:
    loop = run(Plant())
    loop.play(*[10.0] * 20)
    assert loop.memory.trials == ()


def test_tries_end_when_the_plug_in_is_no_longer_seen() -> None:
    loop = run(Plant(telemetry=True))
    loop.play(*[10.0] * 10)
    assert loop.memory.trials
    loop.plant.telemetry = False
    loop.play(10.0)
    assert loop.memory.trials == ()


def test_where_a_rollout_changes_the_table_nothing_is_tried() -> None:
    knobs = KNOBS.__class__(Actuator.TABLE, KNOBS.ks, KNOBS.max_batch)
    loop = run(Plant(telemetry=True, knobs=knobs), policy(knobs=knobs))
    loop.play(*[10.0] * 10)
    assert loop.memory.trials == ()


@pytest.mark.parametrize("load", [1.0, 7.0, 31.0, 100.0, 256.0])
def test_where_nothing_is_drafted_the_least_k_is_always_asked_for(load: float) -> None:
    """However sure the model is that drafts lose there: nothing else would tell that it errs."""
    view, off = outlook(policy(), compares=True), KTable.constant(0, KNOBS.max_batch)
    assert missing(view, off, (), [load]) == math.inf
    trials = worth_trying(view, off)
    assert missing(view, off, trials, [load]) < math.inf
    assert all(min(row.ks) == 1 for row in trials)


def test_a_drafter_that_rests_is_seldom_asked() -> None:
    """Before each block of drafts it must catch up with all requests."""
    table = KTable.from_rows([[1, 11, 4], [12, 256, 0]])
    knobs = replace(KNOBS, can_skip=True)
    resting = worth_trying(outlook(policy(knobs=knobs, off_policy=OffPolicy.SKIP), compares=True), table)
    awake = worth_trying(outlook(policy(knobs=KNOBS), compares=True), table)
    assert all(row.share <= RESTING_SHARE for row in resting if row.first >= 12)
    assert max(row.share for row in resting if row.first < 12) > RESTING_SHARE
    assert max(row.share for row in awake if row.first >= 12) > RESTING_SHARE


def test_loads_between_two_grid_points_are_asked_about_too() -> None:
    """Rows of what is tried end at 127, those of the table at 124 and 156: no grid point lies between."""
    table = KTable.from_rows([[1, 124, 1], [125, 156, 0], [157, 256, 1]])
    view = outlook(policy(), compares=True)
    assert missing(view, table, worth_trying(view, table), [126.0]) < math.inf


class TestBaseline:
    """K = 0 is tried where pods skip the speculator at it, so that the gain is measured."""

    SKIPS = policy(off_policy=OffPolicy.SKIP, knobs=replace(KNOBS, can_skip=True, passes_at_zero=0.0))
    TABLE = KTable.constant(4, KNOBS.max_batch)

    def test_it_is_tried_at_every_load_and_costs_little(self) -> None:
        view = outlook(self.SKIPS, compares=True)
        lost = -view.against(np.full(len(view.points), view.ks.index(4))).mean[:, 0]
        for row in worth_trying(view, self.TABLE):
            assert 0 in row.ks
            at = (view.points >= row.first) & (view.points <= row.last)
            assert row.share / len(row.ks) * float(lost[at].mean()) <= MOST_COST * 1.2

    def test_it_waits_while_it_is_known_and_another_k_is_worth_more(self) -> None:
        much = compared(0, 4, -0.1, -1.2, blocks=BASELINE_BLOCKS + 1.0)
        rows = [
            next(
                row
                for row in worth_trying(outlook(self.SKIPS, cells=cells, compares=True), self.TABLE)
                if row.last == 31
            )
            for cells in ((), learned(much))
        ]
        assert [0 in row.ks for row in rows] == [True, False]
        view, full = outlook(self.SKIPS, cells=learned(much), compares=True), rows[1]
        lost = -view.against(np.full(len(view.points), view.ks.index(4))).mean[:, 0]
        at = (view.points >= full.first) & (view.points <= full.last)
        affordable = min(len(full.ks) + 1, MOST_KS) * MOST_COST / float(lost[at].mean())
        assert affordable < full.share, "with K = 0 the others would have to be tried less often"

    @pytest.mark.parametrize(("blocks", "lacks"), [(BASELINE_BLOCKS - 2.0, True), (BASELINE_BLOCKS + 2.0, False)])
    def test_the_table_is_written_again_where_comparisons_run_dry(self, blocks: float, lacks: bool) -> None:
        view = outlook(self.SKIPS, cells=learned(compared(0, 4, -0.1, -0.8, blocks=blocks)), compares=True)
        assert (missing(view, self.TABLE, (), [float(LOAD)]) == math.inf) is lacks
        assert missing(view, self.TABLE, worth_trying(view, self.TABLE), [float(LOAD)]) < math.inf

    @pytest.mark.parametrize("off", [OffPolicy.KEEP_RUNNING, OffPolicy.NEVER, OffPolicy.REMOVE])
    def test_elsewhere_it_has_no_such_right(self, off: OffPolicy) -> None:
        view = outlook(replace(self.SKIPS, off_policy=off), compares=True)
        assert missing(view, self.TABLE, (), [float(LOAD)]) < math.inf
