"""Memory survives a restart of the operator, small and tolerant."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.tuner.plant import FACTS, KNOBS, Plant, Run, policy, run

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory, initial_table
from speculative_operator.tuner.costs import posterior
from speculative_operator.tuner.prior import cost_prior


def used() -> Run:
    loop = run(Plant(slow={2: 1.2}))
    loop.play(*[1] * 5, *[20] * 5, *[120] * 5)
    return loop


def floats(value: Any) -> bool:
    if isinstance(value, dict):
        return any(floats(inner) for inner in value.values())
    if isinstance(value, list):
        return any(floats(inner) for inner in value)
    return isinstance(value, float)


def test_it_is_small_plain_json_without_floats() -> None:
    stored = used().memory.to_status()
    assert len(json.dumps(stored)) < 2048
    assert json.loads(json.dumps(stored)) == stored
    assert not floats(stored)


def test_the_largest_memory_stays_below_four_kibibytes() -> None:
    knobs = replace(KNOBS, ks=tuple(range(33)), max_batch=2048)
    asked = policy(knobs=knobs)
    loop = run(Plant(), asked, KTable.from_dense([max(32 - b // 16, 0) for b in range(2048)]))
    for batch in (1, 5, 20, 80, 200, 250):
        loop.play(batch, batch)
    memory = loop.memory
    noisy = replace(
        memory,
        costs=replace(
            memory.costs,
            precision=tuple(-1.2345678e-12 * n for n in range(25)),
            per_k=tuple((k, -1.2345678e-9, 1.2345678e-9) for k in range(33)),
        ),
        traffic=replace(memory.traffic, load=tuple(1.234567e-7 for _ in memory.traffic.load)),
    )
    assert len(json.dumps(noisy.to_status())) < 4096


def test_beliefs_survive_a_round_trip() -> None:
    loop = used()
    restored = Memory.from_status(json.loads(json.dumps(loop.memory.to_status())), loop.policy)
    assert restored.table == loop.memory.table
    assert restored.changed_at == pytest.approx(loop.memory.changed_at)
    assert restored.acceptance.reached == pytest.approx(loop.memory.acceptance.reached, rel=1e-3)
    assert restored.traffic.context == pytest.approx(loop.memory.traffic.context, rel=1e-3)
    prior = cost_prior(FACTS, KNOBS)
    before, after = (posterior(memory.costs, prior, KNOBS) for memory in (loop.memory, restored))
    assert after.theta == pytest.approx(before.theta, abs=5e-3)
    assert dict(after.per_k) == pytest.approx(dict(before.per_k), abs=1e-3)


def test_after_a_restart_the_same_load_brings_no_change() -> None:
    loop = run(Plant())
    loop.play(*[1] * 5, *[20] * 5, *[120] * 10)
    loop.memory = Memory.from_status(loop.memory.to_status(), loop.policy)
    table = loop.memory.table
    loop.play(*[120] * 6)
    assert loop.decisions[-6].reason is Reason.STARTING
    assert loop.decisions[-1].valid
    assert loop.memory.table == table


def test_the_dwell_survives_a_restart() -> None:
    loop = used()
    changed = replace(loop.memory, changed_at=loop.now)
    assert Memory.from_status(changed.to_status(), loop.policy).changed_at == pytest.approx(loop.now, abs=1.0)


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 2},
        {"format": "1"},
        {"precision": "1 2 3"},
        {"precision": None},
        {"information": "nan nan nan nan nan"},
        {"perK": [["x", "1 1"]]},
        {"perK": 7},
        {"reached": "-5"},
        {"accepted": "inf"},
        {"traffic": ""},
        {"load": ["1"]},
        {"changedAt": "yesterday"},
        {"retrySeconds": "soon"},
    ],
    ids=str,
)
def test_whatever_is_odd_leaves_a_fresh_memory_with_the_table(damage: dict[str, Any]) -> None:
    loop = used()
    stored = loop.memory.to_status() | damage
    restored = Memory.from_status(stored, loop.policy)
    assert restored == replace(Memory.fresh(loop.memory.table, 0.0))


@pytest.mark.parametrize("rows", [None, [], "x", [[1, 2]], [[2, 9, 1]], [["1", 256, 3]], [[1, 256, -1]], 5])
def test_an_unreadable_table_is_the_start_table(rows: Any) -> None:
    loop = used()
    restored = Memory.from_status(loop.memory.to_status() | {"table": rows}, loop.policy)
    assert restored.table == initial_table(loop.policy)


def test_nothing_stored_is_a_fresh_start() -> None:
    asked = policy()
    assert Memory.from_status({}, asked).table == initial_table(asked)


def test_evidence_of_another_engine_size_is_resized() -> None:
    loop = used()
    asked = policy(knobs=replace(KNOBS, max_batch=64))
    restored = Memory.from_status(loop.memory.to_status(), asked)
    assert restored.table.max_batch == 64
    assert restored.traffic.load == ()
