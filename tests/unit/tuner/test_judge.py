"""The choice of a table from speeds that are given, so that only the choosing is judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuner.plant import KNOBS, policy

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Goal, Objective
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.tuner import initial_table
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.grid import choices, grid, nearest
from speculative_operator.tuner.judge import least_bad, propose
from speculative_operator.tuner.outlook import INFEASIBLE, Outlook, incumbent_of, outlook
from speculative_operator.tuner.traffic import Traffic

POINTS = grid(256)
MARGIN = 0.03
CLEAR = 0.2
TWO = KTable.constant(2, 256)


def plain(**changes: object) -> Policy:
    return policy(objective=Objective(Goal.THROUGHPUT), **changes)


def seeing(gains: dict[tuple[int, int], float], asked: Policy | None = None, traffic: Traffic | None = None) -> Outlook:
    """All K alike but for `gains[point, k]` in log speed, and hardly any doubt."""
    view = outlook(asked or plain(), traffic=traffic)
    speed = np.zeros((len(view.points), len(view.ks)))
    for (point, k), gain in gains.items():
        speed[view.points.tolist().index(point), view.ks.index(k)] = gain
    view = replace(view, drafts=replace(view.drafts, variance=np.zeros_like(view.drafts.variance)))
    told: dict[str, object] = view.__dict__
    told.update(speed=speed, gradients=np.zeros((*speed.shape, view.costs.basis.size)))
    told["_alongside"] = lambda _: (np.log(view.lengths())[None, :] - told["speed"], told["gradients"])
    told["_prompts"] = lambda _: np.zeros_like(speed)
    return view


def everywhere(k: int, gain: float) -> dict[tuple[int, int], float]:
    return {(point, k): gain for point in POINTS}


def test_nothing_to_gain_changes_nothing() -> None:
    found = propose(seeing({}), TWO, [20.0], MARGIN)
    assert found.table == TWO
    assert found.worth <= found.needed
    assert not found.tempting


def test_a_gain_inside_the_margin_tempts_and_changes_nothing() -> None:
    found = propose(seeing(everywhere(4, 0.8 * MARGIN)), TWO, [20.0], MARGIN)
    assert found.table == TWO
    assert found.tempting


def test_a_clear_gain_is_taken_and_told() -> None:
    found = propose(seeing(everywhere(4, CLEAR)), TWO, [20.0], MARGIN)
    assert found.table == KTable.constant(4, 256)
    assert found.now == pytest.approx(CLEAR)
    assert found.worth == pytest.approx(CLEAR)
    assert found.worth > found.needed


def test_no_wobbling_at_a_tie() -> None:
    """What was just chosen is not left for what it was chosen over, unless that is better by the margin again."""
    one, other = seeing(everywhere(4, CLEAR)), seeing(everywhere(4, -0.8 * MARGIN))
    chosen = propose(one, TWO, [20.0], MARGIN).table
    assert propose(other, chosen, [20.0], MARGIN).table == chosen
    assert propose(seeing(everywhere(4, -CLEAR)), chosen, [20.0], MARGIN).table != chosen


def test_doubt_is_held_against_a_change() -> None:
    view = seeing(everywhere(4, 2 * MARGIN))
    assert propose(view, TWO, [20.0], MARGIN).table != TWO
    doubtful = seeing(everywhere(4, 2 * MARGIN))
    wide = np.zeros_like(doubtful.gradients)
    wide[:, doubtful.ks.index(4), 0] = 1.0
    doubtful.__dict__["gradients"] = wide
    assert propose(doubtful, TWO, [20.0], MARGIN).table == TWO


def test_only_cells_that_gain_change_and_the_gain_is_that_of_the_loads_there() -> None:
    gains = {(point, 4): CLEAR for point in POINTS if point <= 8}
    found = propose(seeing(gains), TWO, [3.0], MARGIN)
    assert set(choices(found.table, 256)[:8]) == {4}
    assert set(choices(found.table, 256)[9:]) == {2}
    assert POINTS[found.focus] <= 8
    away = propose(seeing(gains), TWO, [200.0], MARGIN)
    assert away.now == 0.0
    assert away.worth < found.worth


def test_the_gain_of_now_is_the_mean_over_replicas() -> None:
    gains = {(point, 4): CLEAR for point in POINTS if point <= 8}
    assert propose(seeing(gains), TWO, [3.0, 200.0], MARGIN).now == pytest.approx(CLEAR / 2)


RISING = {(point, 4): CLEAR for point in POINTS if point > 60}


class TestRise:
    """K that grows with load."""

    def test_k_rises_where_that_is_clearly_faster(self) -> None:
        found = propose(seeing(RISING), TWO, [150.0], MARGIN)
        assert found.table.k_at(150) == 4
        assert found.table.k_at(2) == 2

    def test_it_never_rises_where_the_engine_allows_none(self) -> None:
        found = propose(seeing(RISING, plain(knobs=replace(KNOBS, falling=True))), TWO, [150.0], MARGIN)
        ks = found.table.dense()
        assert ks == sorted(ks, reverse=True)


class TestOneKForAll:
    """An engine that holds one constant K, changed by a rollout."""

    asked = plain(knobs=replace(KNOBS, actuator=Actuator.RESTART))

    def test_the_table_is_constant_and_best_over_the_time_spent(self) -> None:
        at = POINTS[nearest(60, 256)]
        load = tuple(300.0 if p == at else 30.0 if p == 2 else 0.0 for p in POINTS)
        view = seeing({(2, 5): 1.0, (at, 1): CLEAR}, self.asked, Traffic(history=load))
        found = propose(view, TWO, [2.0], MARGIN)
        assert found.table == KTable.constant(1, 256)
        assert 0.0 < found.worth < CLEAR * 300 / 330

    def test_the_last_minutes_do_not_decide_over_the_hour(self) -> None:
        at = POINTS[nearest(60, 256)]
        hour, minutes = (tuple(300.0 if p == load else 0.0 for p in POINTS) for load in (at, 2))
        view = seeing({(2, 5): CLEAR, (at, 1): CLEAR}, self.asked, Traffic(load=minutes, history=hour))
        assert propose(view, TWO, [2.0], MARGIN).table == KTable.constant(1, 256)

    def test_a_rollout_must_pay_more_than_a_write(self) -> None:
        live, rollout = (propose(seeing({}, asked), TWO, [2.0], MARGIN).needed for asked in (plain(), self.asked))
        assert rollout > live
        dear = replace(self.asked, start_seconds=900.0)
        assert propose(seeing({}, dear), TWO, [2.0], MARGIN).needed == pytest.approx(0.02 + 900.0 / 3600.0)

    def test_nothing_seen_yet_is_judged_by_the_load_of_now(self) -> None:
        found = propose(seeing({(2, 5): CLEAR}, self.asked), TWO, [2.0], MARGIN)
        assert found.table == KTable.constant(5, 256)


class TestNothingKnown:
    """Without knowledge of hardware or models."""

    asked = plain(facts=PairFacts())

    def test_cells_far_from_any_load_stay(self) -> None:
        found = propose(seeing(everywhere(0, CLEAR), self.asked), TWO, [4.0], MARGIN)
        assert found.table.k_at(4) == 0
        assert found.table.k_at(200) == 2

    def test_k_rises_one_at_a_time(self) -> None:
        found = propose(seeing(everywhere(5, CLEAR), self.asked), TWO, [4.0], MARGIN)
        assert found.table.k_at(4) == 3


def test_what_is_infeasible_is_never_chosen_and_is_left() -> None:
    gains = everywhere(4, CLEAR) | {(point, 4): INFEASIBLE for point in POINTS if point > 50}
    found = propose(seeing(gains), KTable.constant(4, 256), [20.0], MARGIN)
    assert all(k != 4 for point, k in zip(POINTS, choices(found.table, 256), strict=True) if point > 50)
    assert found.table.k_at(20) == 4


def test_a_k_outside_the_candidates_counts_as_the_nearest() -> None:
    view = seeing({}, plain(knobs=replace(KNOBS, ks=(0, 2, 5))))
    assert set(incumbent_of(view, KTable.constant(4, 256)).tolist()) == {2}
    assert set(incumbent_of(view, KTable.constant(9, 256)).tolist()) == {2}


@given(st.integers(0, 10_000), st.lists(st.floats(0, 400), min_size=1, max_size=4), st.sampled_from(list(Actuator)))
@settings(max_examples=40, derandomize=True, deadline=None)
def test_any_speeds_give_a_legal_table_that_is_not_worse(seed: int, loads: list[float], actuator: Actuator) -> None:
    random = np.random.default_rng(seed)
    view = seeing({}, plain(knobs=replace(KNOBS, actuator=actuator)))
    view.__dict__["speed"] = random.normal(0, 0.1, view.speed.shape)
    table = KTable.from_dense(random.choice(KNOBS.ks, 256).tolist())
    found = propose(view, table, loads, MARGIN)
    assert found.table.ks <= set(KNOBS.ks)
    assert found.table.max_batch == 256
    if actuator is not Actuator.RESTART:
        here = [nearest(load, 256) for load in loads]
        rows = [row for row in here if choices(found.table, 256)[row] != choices(table, 256)[row]]
        assert not rows or found.worth > 0


@given(
    st.integers(0, 10**6),
    st.lists(st.floats(1, 256), min_size=1, max_size=3),
    st.sampled_from([Actuator.LIVE, Actuator.TABLE]),
)
@settings(max_examples=40, derandomize=True, deadline=None)
def test_where_k_may_only_fall_no_table_rises(seed: int, loads: list[float], actuator: Actuator) -> None:
    random = np.random.default_rng(seed)
    asked = plain(knobs=replace(KNOBS, actuator=actuator, falling=True))
    view = seeing({}, asked)
    view.__dict__["speed"] = random.normal(0, 0.1, view.speed.shape)
    table = fit(KTable.from_dense(random.choice(KNOBS.ks, 256).tolist()), asked)
    for found in (
        table,
        initial_table(asked),
        propose(view, table, loads, MARGIN).table,
    ):
        assert [band.k for band in found] == sorted((band.k for band in found), reverse=True)
        assert found == fit(found, asked)


class TestLeastBad:
    """What the guard falls back to."""

    def test_drafts_are_cut_from_the_load_on(self) -> None:
        less = least_bad(seeing(everywhere(0, CLEAR)), TWO, 50.0, 0.0, MARGIN)
        assert less is not None
        assert less.k_at(1) == 2
        assert less.k_at(50) == less.k_at(256) == 0

    def test_no_smaller_k_is_better(self) -> None:
        assert least_bad(seeing(everywhere(5, CLEAR)), TWO, 50.0, 0.0, MARGIN) is None
        assert least_bad(seeing({}), KTable.constant(0, 256), 50.0, -9.0, MARGIN) is None

    def test_what_is_measured_counts_not_what_was_expected(self) -> None:
        view = seeing({})
        assert least_bad(view, TWO, 50.0, 0.0, MARGIN) is None
        assert least_bad(view, TWO, 50.0, -CLEAR, MARGIN) is not None

    def test_a_table_never_rises(self) -> None:
        falling = KTable.from_rows([[1, 40, 4], [41, 100, 3], [101, 256, 1]])
        less = least_bad(seeing(everywhere(2, CLEAR)), falling, 60.0, 0.0, MARGIN)
        assert less is not None
        assert all(after <= before for after, before in zip(less.dense(), falling.dense(), strict=True))
        assert less.k_at(256) == 1
