"""Whatever is observed: never an exception, never a table outside the knobs, never an action on a gap."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.tuner.plant import FACTS, KNOBS, TICK, Plant, policy, run, same

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.observation import Gap, Observation, PodWindow, StepCell
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, OffPolicy, Workload
from speculative_operator.domain.table import Actuator, KnobSpace, KTable
from speculative_operator.tuner import Memory, decide, initial_table
from speculative_operator.tuner.persistence import from_status, to_status

NOW = 1_700_000_000.0
FEW = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

figure = st.one_of(
    st.sampled_from([0.0, -1.0, 1.0, math.nan, math.inf, -math.inf, 5e-324, 1e-300, 1e308]),
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
        chosen["drafted_per_position"] = tuple(draw(st.lists(figure, max_size=8)))
    chosen["table_version"] = draw(st.sampled_from([None, None, None, -1, 1, 2, 10**9]))
    if draw(st.integers(0, 9)) == 0:
        cell = st.builds(StepCell, st.integers(-1, 9), figure, figure, figure, figure)
        chosen["cells"] = tuple(draw(st.lists(cell, min_size=1, max_size=3)))
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
        drafts_blocks=draw(st.booleans()),
        draft_free=draw(st.booleans()),
        can_skip=draw(st.booleans()),
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
        assert len(json.dumps(to_status(memory))) < 4096


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


Fault = Callable[[dict[str, PodWindow]], dict[str, PodWindow]]


def lying(name: str, factor: float) -> Fault:
    """One pod whose counter `name` is off by a factor."""

    def told(pods: dict[str, PodWindow]) -> dict[str, PodWindow]:
        return pods | {"b": replace(pods["b"], **{name: factor * getattr(pods["b"], name)})}

    return told


FAULTS: dict[str, Fault] = {
    "none": lambda pods: pods,
    "empty": lambda pods: {},
    "reset within the window": lambda pods: pods | {"a": replace(pods["a"], steps=-pods["a"].steps)},
    "nothing served": lambda pods: pods | {"a": replace(pods["a"], steps=0.0, decode_request_steps=0.0)},
    "K above the largest": lying("draft_tokens", 9.0),
    "absurd step times": lying("step_seconds", 1e6),
    "steps that take no time": lying("step_seconds", 1e-9),
    "fast by ten": lying("step_seconds", 0.1),
    "slow by ten": lying("step_seconds", 10.0),
    "few steps": lying("steps", 0.1),
    "many prompts": lying("prompt_tokens", 1e4),
    "accepts all": lying("accepted_tokens", 1.5),
    "clock of a pod an hour ahead": lambda pods: (
        pods | {"b": replace(pods["b"], start=pods["b"].start + 3600, end=pods["b"].end + 3600)}
    ),
    "window of ages": lambda pods: pods | {"b": replace(pods["b"], start=pods["b"].start - 1e6)},
    "window that ends before it starts": lambda pods: pods | {"b": replace(pods["b"], start=pods["b"].end + 1)},
}


@settings(FEW, max_examples=25)
@given(
    st.integers(0, 5),
    st.lists(
        st.tuples(
            st.sampled_from(sorted(FAULTS)), st.floats(1, 256), st.sampled_from([0.0, 1.0, TICK, 300.0, -3600.0])
        ),
        min_size=5,
        max_size=25,
    ),
)
def test_a_faulty_scrape_holds_or_stays_within_the_knobs(seed: int, course: list[tuple[str, float, float]]) -> None:
    """Duplicates and reordered windows are those of steps of time of 0 and below."""
    loop = run(Plant(seed=seed), policy(off_policy=OffPolicy.REMOVE))
    loop.play(*[20] * 5)
    for fault, batch, step in course:
        before = loop.memory
        loop.now += step
        pods = FAULTS[fault]({name: loop.window(batch) for name in "abc"})
        decision = loop.see(Observation(loop.now, pods))
        assert legal(decision.table, loop.policy)
        assert legal(loop.memory.table, loop.policy)
        assert decision.valid or not decision.changed
        assert decision.removed == loop.memory.removed
        if not decision.valid:
            assert decision.table == loop.memory.table == before.table
            assert loop.memory.removed == before.removed
        assert all(math.isfinite(value) for value in loop.memory.costs.mean)


@pytest.mark.parametrize("fault", [name for name in FAULTS if name not in ("none", "nothing served")])
def test_one_bad_pod_never_leads_away_from_a_good_table(fault: str) -> None:
    """Nine good ticks, one bad, five times: the table stays about as good as without."""
    loop = run(Plant(noise=0.02))
    loop.play(*[20] * 20)
    best = loop.plant.best_speed(20)
    for n in range(50):
        loop.now += TICK
        pods = {name: loop.window(20) for name in "abc"}
        loop.see(Observation(loop.now, FAULTS[fault](pods) if n % 10 == 9 else pods))
    assert loop.plant.speed(20, loop.memory.table.k_at(20)) > 0.93 * best


@FEW
@given(st.permutations(["a", "b", "c"]), st.permutations(["x", "b", "y"]))
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
    assert same(replace(one, seen=()), replace(two, seen=()))


def test_the_same_input_gives_the_same_answer() -> None:
    loop = run(Plant())
    loop.play(*[20] * 4)
    window = loop.plant.window(loop.memory.table, 20, loop.now + 10)
    look = Observation(loop.now + 10, {"a": window})
    one, two = (decide(loop.memory, look, loop.policy, loop.now) for _ in range(2))
    assert same(one[0], two[0])
    assert one[1] == two[1]


def held_bytes(value: object, known: set[int] | None = None) -> int:
    """Bytes of `value` and all that it holds, each object once."""
    known = known if known is not None else set()
    if id(value) in known or isinstance(value, Enum | type):
        return 0
    known.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, np.ndarray):
        return size + (held_bytes(value.base, known) if value.base is not None else 0)
    if is_dataclass(value):
        parts: list[object] = [getattr(value, part.name) for part in fields(value)]
        size += sys.getsizeof(value.__dict__) if hasattr(value, "__dict__") else 0
    elif isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    else:
        parts = list(value) if isinstance(value, tuple | list | set | frozenset) else []
    return size + sum(held_bytes(part, known) for part in parts)


def test_thousands_of_windows_leave_a_small_memory() -> None:
    knobs = replace(KNOBS, ks=tuple(range(9)), max_batch=512)
    loop = run(Plant(knobs=knobs, conditional=(0.7,) * 8), policy(knobs=knobs))
    random = np.random.default_rng(2)
    largest = 0
    for n in range(500):
        loop.now += TICK
        batch = float(np.exp(random.uniform(0, np.log(500))))
        pods = {f"pod-{replica}": loop.window(batch * (1 + 0.1 * replica)) for replica in range(1 + 3 * (n % 2))}
        pods = {f"{name}-{n // 100}": window for name, window in pods.items()}  # pods come and go
        assert legal(loop.see(Observation(loop.now, pods)).table, loop.policy)
        largest = max(largest, held_bytes(loop.memory)) if n % 25 == 0 else largest
        assert len(loop.memory.seen) <= 4
    assert max(largest, held_bytes(loop.memory)) <= 20_000
    assert len(json.dumps(to_status(loop.memory))) < 4096
    assert all(math.isfinite(value) for value in loop.memory.costs.mean)
    assert np.linalg.eigvalsh(loop.memory.costs.precision).min() > -1e-6 * np.abs(loop.memory.costs.precision).max()


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
    stored: dict[str, Any] = to_status(loop.memory)
    for key in data.draw(st.lists(st.sampled_from(sorted(stored)), max_size=4)):
        stored[key] = data.draw(junk)
    memory = from_status(stored, asked)
    assert legal(memory.table, asked)
    window = loop.plant.window(memory.table, 20, loop.now)
    for _ in range(3):
        memory, decision = decide(memory, Observation(loop.now, {"a": window}), asked, loop.now)
        assert legal(decision.table, asked)
