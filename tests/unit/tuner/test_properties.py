"""Whatever is observed: never an exception, never a table outside the knobs, never an action on a gap."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.tuner.plant import FACTS, Plant, policy, run

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator, KnobSpace
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.observation import Gap, Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, OffPolicy, Workload
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory, decide, initial_table

NOW = 1_700_000_000.0
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

figure = st.one_of(
    st.sampled_from([0.0, -1.0, 1.0, math.nan, math.inf, -math.inf, 1e-300, 1e308]),
    st.floats(0, 1e5),
)
maybe = st.one_of(st.none(), figure)
moment = st.one_of(st.floats(NOW - 30, NOW + 5), figure)


@st.composite
def windows(draw: st.DrawFn) -> PodWindow:
    """Anything: from a plausible window with a few fields replaced, to noise."""
    plant = Plant(
        seed=draw(st.integers(0, 9)), conditional=draw(st.sampled_from([(0.0,) * 5, (0.7,) * 5, (0.99,) * 5]))
    )
    table = KTable.constant(draw(st.integers(0, 5)), 256)
    window = plant.window(table, draw(st.floats(1, 256)), NOW - draw(st.floats(0, 20)), draw(st.floats(0.5, 30)))
    required = ("steps", "decode_request_steps", "step_seconds", "first_tokens", "generated_tokens", "prompt_tokens")
    optional = ("kv_usage", "kv_capacity_tokens", "drafts", "draft_tokens", "accepted_tokens")
    chosen: dict[str, Any] = {
        name: draw(maybe if name in optional else figure)
        for name in draw(st.lists(st.sampled_from([*required, *optional, "running", "preemptions"]), max_size=4))
    }
    if draw(st.booleans()):
        chosen["accepted_per_position"] = tuple(draw(st.lists(figure, max_size=8)))
    if draw(st.integers(0, 9)) == 0:
        chosen["start"], chosen["end"] = draw(moment), draw(moment)
    return replace(window, **chosen)


@st.composite
def knobs(draw: st.DrawFn) -> KnobSpace:
    ks = tuple(sorted(draw(st.sets(st.integers(0, 7), min_size=1, max_size=6))))
    return KnobSpace(
        actuator=draw(st.sampled_from(list(Actuator))),
        ks=ks,
        max_batch=draw(st.sampled_from([1, 2, 7, 64, 256, 1024])),
        capture_ceiling_tokens=draw(st.sampled_from([None, 1, 64, 512])),
        draft_passes_follow_k=draw(st.booleans()),
        passes_at_zero=draw(st.sampled_from([0.0, 1.0])),
        block_drafter=draw(st.booleans()),
        draft_free=draw(st.booleans()),
    )


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    return Policy(
        mode=draw(st.sampled_from(list(Mode))),
        knobs=draw(knobs()),
        start_k=draw(st.one_of(st.none(), st.integers(0, 9))),
        schedule=draw(st.sampled_from([None, KTable.from_rows([[1, 9, 4], [10, 300, 1]])])),
        off_policy=draw(st.sampled_from(list(OffPolicy))),
        workload=draw(st.sampled_from(list(Workload))),
        facts=draw(st.sampled_from([FACTS, PairFacts(), replace(FACTS, speculator=None)])),
    )


def legal(table: KTable, asked: Policy) -> bool:
    return table.ks <= set(asked.knobs.ks) and table.max_batch == asked.knobs.max_batch


@FEW
@given(policies())
def test_a_start_is_always_legal(asked: Policy) -> None:
    assert legal(initial_table(asked), asked)


@FEW
@given(policies(), st.lists(st.dictionaries(st.sampled_from("abc"), windows(), max_size=3), min_size=1, max_size=4))
def test_no_observation_raises_or_leaves_the_knobs(asked: Policy, looks: list[dict[str, PodWindow]]) -> None:
    memory = Memory.fresh(initial_table(asked), NOW)
    for step, pods in enumerate(looks):
        before = memory.table
        memory, decision = decide(memory, Observation(NOW, pods), asked, NOW + step)
        assert legal(decision.table, asked)
        assert legal(memory.table, asked)
        if not decision.valid:
            assert decision.table == memory.table == before
            assert not decision.changed
        if not decision.changed and asked.mode is not Mode.RECOMMEND:
            assert memory.table == before
        assert len(json.dumps(memory.to_status())) < 4096


@FEW
@given(st.floats(allow_nan=True, allow_infinity=True), windows())
def test_no_clock_raises(now: float, window: PodWindow) -> None:
    asked = policy()
    memory, decision = decide(Memory.fresh(initial_table(asked), NOW), Observation(NOW, {"a": window}), asked, now)
    assert decision.table == memory.table


@FEW
@given(st.sampled_from(list(Reason)), st.integers(1, 3))
def test_a_gap_never_acts(reason: Reason, count: int) -> None:
    loop = run(Plant())
    loop.play(20, 20)
    pods: Mapping[str, Gap] = {str(n): Gap(reason, "gone") for n in range(count)}
    memory, decision = decide(loop.memory, Observation(loop.now, pods), loop.policy, loop.now)
    assert (decision.valid, decision.changed, memory.table) == (False, False, loop.memory.table)


@FEW
@given(st.permutations(["a", "b", "c"]), st.permutations(["a", "b", "c"]))
def test_neither_order_nor_names_of_pods_matter(first: list[str], second: list[str]) -> None:
    plant = Plant()
    asked = policy()
    table = initial_table(asked)
    figures = [plant.window(table, batch, NOW) for batch in (3.0, 30.0, 90.0)]
    outcomes = [
        decide(Memory.fresh(table, NOW), Observation(NOW, dict(zip(names, figures, strict=True))), asked, NOW)
        for names in (first, second)
    ]
    (one, decision_one), (two, decision_two) = outcomes
    assert decision_one == decision_two
    assert replace(one, seen=()) == replace(two, seen=())


def test_the_same_input_gives_the_same_answer() -> None:
    loop = run(Plant())
    loop.play(*[20] * 4)
    window = loop.plant.window(loop.memory.table, 20, loop.now + 10)
    look = Observation(loop.now + 10, {"a": window})
    assert decide(loop.memory, look, loop.policy, loop.now) == decide(loop.memory, look, loop.policy, loop.now)


junk = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just("nan 1 2"), st.just("1")
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@FEW
@given(st.data(), policies())
def test_any_stored_memory_is_survived(data: st.DataObject, asked: Policy) -> None:
    loop = run(Plant())
    loop.play(20, 20, 20)
    stored: dict[str, Any] = loop.memory.to_status()
    for key in data.draw(st.lists(st.sampled_from(sorted(stored)), max_size=4)):
        stored[key] = data.draw(junk)
    memory = Memory.from_status(stored, asked)
    assert legal(memory.table, asked)
    window = loop.plant.window(memory.table, 20, loop.now)
    for _ in range(3):
        memory, decision = decide(memory, Observation(loop.now, {"a": window}), asked, loop.now)
        assert legal(decision.table, asked)
