"""The table before anything was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.unit.tuner.plant import KNOBS, policy

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Mode, OffPolicy, Workload
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.tuner import initial_table
from speculative_operator.tuner.outlook import outlook


def test_it_starts_near_the_fastest_table_of_the_prior_and_never_above_the_start_k() -> None:
    for start in (1, 2, 4, 5):
        asked = policy(start_k=start)
        table, view = initial_table(asked), outlook(asked)
        assert table.k_at(200) <= 1
        dense = table.dense()
        assert dense == sorted(dense, reverse=True)
        assert max(dense) <= start
        below = view.speed[:, : view.ks.index(start) + 1]
        held = np.array([view.ks.index(table.k_at(point)) for point in view.points])
        assert np.all(below[np.arange(len(held)), held] >= below.max(axis=1) - 0.03)


def test_the_start_k_is_kept_where_it_is_as_good_as_any() -> None:
    assert initial_table(policy(start_k=3, workload=Workload.CODE)).k_at(1) == 3


def test_a_harder_workload_starts_lower() -> None:
    code, creative = (initial_table(policy(start_k=5, workload=w)) for w in (Workload.CODE, Workload.CREATIVE))
    assert sum(creative.dense()) < sum(code.dense())


def test_nothing_known_starts_constant() -> None:
    assert initial_table(policy(facts=PairFacts())) == KTable.constant(4, 256)
    assert initial_table(policy(facts=PairFacts(), start_k=None)) == KTable.constant(3, 256)


def test_the_spec_schedule_is_the_start() -> None:
    schedule = KTable.from_rows([[1, 20, 4], [21, 64, 2]])
    assert initial_table(policy(schedule=schedule)) == KTable.from_rows([[1, 20, 4], [21, 256, 2]])


def test_one_k_for_all_loads_where_the_engine_holds_one() -> None:
    knobs = replace(KNOBS, actuator=Actuator.RESTART)
    assert initial_table(policy(knobs=knobs)) == KTable.constant(4, 256)


def test_static_is_what_the_user_said() -> None:
    assert initial_table(policy(mode=Mode.STATIC, start_k=5)) == KTable.constant(5, 256)
    schedule = KTable.from_rows([[1, 20, 4], [21, 256, 0]])
    asked = policy(mode=Mode.STATIC, schedule=schedule, off_policy=OffPolicy.NEVER)
    assert initial_table(asked) == schedule


def test_never_off_starts_above_zero() -> None:
    asked = policy(workload=Workload.CREATIVE, off_policy=OffPolicy.NEVER)
    assert min(initial_table(asked).ks) >= 1


def test_off_and_no_speculator_hold_no_drafts() -> None:
    assert initial_table(policy(mode=Mode.DISABLED)).max_k == 0
    bare = replace(KNOBS, actuator=Actuator.NONE, ks=(0,))
    assert initial_table(policy(knobs=bare)) == KTable.constant(0, 256)


def test_the_start_stays_inside_the_capture_ceiling() -> None:
    knobs = replace(KNOBS, capture_ceiling_tokens=64)
    table = initial_table(policy(knobs=knobs, workload=Workload.CODE))
    assert all(k == 0 or batch * (k + 1) <= 64 * 1.06 for batch, k in enumerate(table.dense(), start=1))
