"""Memory survives a restart of the operator, small and tolerant."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.unit.tuner.plant import KNOBS, Plant, Run, policy, run, same

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory, initial_table
from speculative_operator.tuner.acceptance import AcceptanceEvidence
from speculative_operator.tuner.comparisons import Cell
from speculative_operator.tuner.outlook import outlook
from speculative_operator.tuner.persistence import from_status, to_status


@cache
def _used() -> Run:
    loop = run(Plant(slow={2: 1.2}))
    loop.play(*[1] * 5, *[20] * 5, *[120] * 5)
    return loop


def used() -> Run:
    return replace(_used())


def floats(value: Any) -> bool:
    if isinstance(value, dict):
        return any(floats(inner) for inner in value.values())
    if isinstance(value, list):
        return any(floats(inner) for inner in value)
    return isinstance(value, float)


def test_it_is_small_plain_json_without_floats() -> None:
    stored = to_status(used().memory)
    assert len(json.dumps(stored)) < 3072
    assert json.loads(json.dumps(stored)) == stored
    assert not floats(stored)


def test_the_largest_memory_stays_below_four_kibibytes() -> None:
    knobs = replace(KNOBS, ks=tuple(range(33)), max_batch=2048)
    asked = policy(knobs=knobs)
    loop = run(Plant(), asked, KTable.from_dense([max(32 - b // 16, 0) for b in range(2048)]))
    for batch in (1, 5, 20, 80, 200, 250):
        loop.play(batch, batch)
    memory = loop.memory
    size = len(memory.costs.mean)
    long = tuple(1.234567e4 for _ in range(32))
    evidence = AcceptanceEvidence(long, long, 1.234567e5, 31.2345)
    noisy = replace(
        memory,
        costs=replace(memory.costs, mean=np.full(size, -0.123456), precision=np.diag(np.full(size, 1.234567e5))),
        acceptance=evidence,
        traffic=replace(
            memory.traffic,
            load=tuple(1.234567e-7 for _ in memory.traffic.load),
            history=tuple(1.234567e-7 for _ in memory.traffic.load),
        ),
        cells=tuple(Cell(n, 10, 11, *[-1.234567] * 11) for n in range(48)),
    )
    assert len(json.dumps(to_status(noisy))) < 4096


def test_beliefs_survive_a_round_trip() -> None:
    loop = used()
    restored = from_status(json.loads(json.dumps(to_status(loop.memory))), loop.policy)
    assert restored.table == loop.memory.table
    assert restored.changed_at == pytest.approx(loop.memory.changed_at)
    assert restored.acceptance.reached == pytest.approx(loop.memory.acceptance.reached, rel=1e-3)
    assert restored.traffic.context == pytest.approx(loop.memory.traffic.context, rel=1e-3)
    assert restored.pace.left == pytest.approx(loop.memory.pace.left, abs=0.01)
    before, after = (
        outlook(loop.policy, memory.costs, memory.acceptance, memory.traffic) for memory in (loop.memory, restored)
    )
    assert after.speed == pytest.approx(before.speed, abs=0.03)
    assert after.off_speed == pytest.approx(before.off_speed, abs=0.03)


def test_after_a_restart_the_same_load_brings_no_change() -> None:
    loop = run(Plant())
    loop.play(*[1] * 5, *[20] * 5, *[120] * 10)
    loop.memory = from_status(to_status(loop.memory), loop.policy)
    table = loop.memory.table
    loop.play(120, 120)
    assert loop.decisions[-2].reason is Reason.STARTING
    assert loop.decisions[-1].valid
    assert loop.memory.table.k_at(120) == table.k_at(120)


def test_the_dwell_survives_a_restart() -> None:
    loop = used()
    changed = replace(loop.memory, changed_at=loop.now)
    assert from_status(to_status(changed), loop.policy).changed_at == pytest.approx(loop.now, abs=1.0)


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 1},
        {"format": "2"},
        {"mean": None},
        {"mean": "nan nan nan nan nan"},
        {"precision": None},
        {"precision": "1 x"},
        {"reached": "-5"},
        {"accepted": "inf"},
        {"traffic": ""},
        {"traffic": "1 1 1 1 1 1 1 1 1"},
        {"drafts": "5"},
        {"load": ["1"]},
        {"history": 4},
        {"times": "yesterday"},
        {"cells": ["1 2 3"]},
        {"pace": ""},
        {"cells": 7},
    ],
    ids=str,
)
def test_whatever_is_odd_leaves_a_fresh_memory_with_the_table(damage: dict[str, Any]) -> None:
    loop = used()
    restored = from_status(to_status(loop.memory) | damage, loop.policy)
    assert same(restored, Memory.fresh(loop.memory.table, 0.0))


@pytest.mark.parametrize("damage", [{}, {"mean": "x"}, {"format": 0}])
def test_pods_without_speculator_stay_so_whatever_is_odd(damage: dict[str, Any]) -> None:
    loop = used()
    stored = to_status(replace(loop.memory, removed=True)) | damage
    assert from_status(stored, loop.policy).removed
    assert not from_status(stored | {"speculatorRemoved": "yes"}, loop.policy).removed


@pytest.mark.parametrize("rows", [None, [], "x", [[1, 2]], [[2, 9, 1]], [["1", 256, 3]], [[1, 256, -1]], 5])
def test_an_unreadable_table_is_the_start_table(rows: Any) -> None:
    loop = used()
    restored = from_status(to_status(loop.memory) | {"table": rows}, loop.policy)
    assert restored.table == initial_table(loop.policy)


def test_nothing_stored_is_a_fresh_start() -> None:
    asked = policy()
    assert from_status({}, asked).table == initial_table(asked)


def test_evidence_of_another_engine_size_is_resized() -> None:
    loop = used()
    asked = policy(knobs=replace(KNOBS, max_batch=64))
    restored = from_status(to_status(loop.memory), asked)
    assert restored.table.max_batch == 64
    assert restored.traffic.load == ()
