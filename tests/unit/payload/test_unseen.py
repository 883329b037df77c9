"""What a speculator that rests has missed: which tokens of which requests, and what is computed when it returns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.payload.v2_runner import MOST, Engine, torch

from speculative_operator.payload import speculative_unseen as unseen


class World:
    """An engine, and what is known of the speculator in it."""

    def __init__(self, **given: Any) -> None:
        self.engine, self.room = Engine(**given), given.get("room", 1000)
        made = unseen.made(self.engine.runner, torch())
        assert made is not None
        self.unseen = made
        self.caught_up: list[list[tuple[str, int, int]]] = []
        """Parts of each pass that catches up."""

    def step(self, k: int, off: bool = False, seed: int = 0, catches_up: bool = True) -> None:
        """Drafts that are in flight are verified before a step is off."""
        engine, own = self.engine, self.unseen
        plan = engine.plan(k)
        own.learn(plan)
        if not plan.num_scheduled_tokens:
            return
        batch = engine.begin(seed)
        if off and not plan.scheduled_spec_decode_tokens:
            own.rest(batch)
            engine.rest()
        else:
            if k:
                self._catch_up(engine.arguments() if catches_up else None)
            engine.speculator.propose(batch, **engine.arguments(), num_speculative_tokens=k)
        engine.go_on()
        engine.check(own._holes)

    def _catch_up(self, given: Any) -> None:
        engine, own = self.engine, self.unseen
        before = set(own._holes)
        missed = own.missed(engine.batch, given)
        if missed is not None:
            own.compute(missed, engine.batch)
            tokens, parts = engine.speculator.passes[-1]
            assert tokens <= self.room
            assert [tuple(part) for part in parts] == [(part.name, part.begin, part.upto) for part in missed.parts]
            assert list(engine.gathered) == list(engine.batch.idx_mapping), "vLLM's own pass comes next"
            self.caught_up.append([(part.name, part.begin, part.upto) for part in parts])
            for part in missed.parts:
                assert (part.name not in own._holes) == part.whole
        engine.forgive(before.difference(own._holes).intersection(own._drafted))

    def drain(self) -> None:
        """Until nothing of those that run is missing, which must come."""
        for _ in range(300):
            self.step(MOST)
            if not self.unseen.requests:
                return
        raise AssertionError(self.unseen._holes)


def test_what_was_missed_is_computed_once_before_the_first_drafts() -> None:
    world = World()
    world.engine.add("a", 10)
    world.step(0)
    for _ in range(5):
        world.step(0, off=True)
    world.engine.add("b", 9, family=2)
    world.step(0, off=True)
    assert world.unseen.requests == 2
    assert not world.unseen.behind, "the speculator does not run"
    world.step(2)
    assert world.unseen.behind
    assert world.caught_up == [[("a", 10 - MOST, 16), ("b", 0, 9)]]
    assert world.unseen.requests == 0
    world.step(2)
    assert not world.unseen.behind
    assert len(world.caught_up) == 1


def test_a_block_that_is_copied_lacks_what_it_lacked() -> None:
    """Also where a request that still runs has it."""
    world = World()
    world.engine.partial = True
    world.engine.add("a", 9)
    world.step(0, off=True)
    world.engine.add("b", 7)
    plan = world.engine.plan(0)
    assert plan.kv_cache_block_copies
    assert plan.scheduled_new_reqs[0].num_computed_tokens == 6
    world.unseen.learn(plan)
    assert world.unseen._holes["b"] == 0
    assert len(world.unseen._stale) == 1


def test_a_prompt_of_one_token_is_not_forgotten() -> None:
    """A pass takes two tokens at least, and what lacks the first token is of no use."""
    world = World()
    world.engine.add("a", 1)
    world.step(0, off=True)
    world.step(2)
    assert not world.caught_up
    assert world.unseen.requests == 1
    for _ in range(3):
        world.step(2)
    assert world.unseen.requests == 0
    assert world.caught_up[0][0][:2] == ("a", 0)


def _joining(name: str, blocks: list[int], computed: int, **changes: Any) -> Any:
    new = SimpleNamespace(req_id=name, block_ids=(blocks,), num_computed_tokens=computed)
    plan: dict[str, Any] = {
        "scheduled_spec_decode_tokens": {}, "finished_req_ids": (), "preempted_req_ids": None,
        "kv_cache_block_copies": None, "scheduled_new_reqs": [new],
        "scheduled_cached_reqs": SimpleNamespace(req_ids=[], new_block_ids=[]),
    }  # fmt: skip
    return SimpleNamespace(**{**plan, **changes})


def test_a_block_that_is_used_again_for_a_copy_lacks_nothing() -> None:
    own = World().unseen
    own._stale.add(2)
    own.learn(_joining("a", [1, 2, 3], 6, kv_cache_block_copies=[(9, 2)]))
    assert not own.requests
    assert not own._stale


def test_what_is_missing_first_counts_where_others_compute_more_of_it() -> None:
    own = World().unseen
    own._stale.add(1)
    own.learn(_joining("a", [1, 2, 3], 8))
    own._blocks["b"] = [7, 2]
    own.rest(SimpleNamespace(req_ids=["a", "b"], num_computed_tokens_np=[8, 4]))
    assert own._holes == {"a": 0, "b": 4 - MOST}


class SlidingWindowSpec:
    block_size = 4


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kv_cache_config": SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=None)] * 2)}, "group"),
        (
            {"kv_cache_config": SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=SlidingWindowSpec())])},
            "gives blocks back",
        ),
        ({"model_config": SimpleNamespace(uses_mrope=True)}, "more than tokens"),
        ({"speculator": SimpleNamespace(supports_mm_inputs=True)}, "more than tokens"),
    ],
)
def test_where_it_cannot_be_done_prompts_are_always_seen(changes: dict[str, Any], why: str) -> None:
    runner = Engine().runner
    assert unseen.why_not(runner) == ""
    for name, value in changes.items():
        setattr(runner, name, value)
    assert why in unseen.why_not(runner)
    assert unseen.made(runner, torch()) is None


@pytest.mark.parametrize("lacking", ["kv_cache_config", "model_config", "speculator"])
def test_where_nobody_can_tell_it_is_not_done(lacking: str) -> None:
    runner = Engine().runner
    delattr(runner, lacking)
    assert unseen.made(runner, torch()) is None


events = st.lists(
    st.tuples(
        st.sampled_from([*["step"] * 6, "off", "off", "plain", "draft", "add", "add", "add", "end", "preempt", "ask"]),
        st.integers(0, 30), st.integers(1, 2),
    ),
    min_size=25, max_size=100,
)  # fmt: skip


OF_ANOTHER_IN_THIS_STEP: list[tuple[str, int, int]] = [
    *[("step", 0, 1)] * 2, ("add", 0, 1), ("add", 1, 2), ("preempt", 0, 1), ("step", 1, 1), ("off", 0, 1),
    *[("step", 0, 1)] * 8, ("add", 0, 1), ("add", 0, 2), ("end", 0, 1), *[("step", 0, 2)] * 3, ("step", 1, 1),
    *[("step", 1, 2)] * 2, ("draft", 0, 2), ("add", 27, 2), ("end", 0, 1), *[("step", 0, 1)] * 6, ("step", 1,
    1), ("step", 0, 1), ("add", 14, 1), ("end", 0, 1), *[("step", 0, 1)] * 8, ("add", 21, 2), ("add", 25, 2),
    ("add", 26, 2),
]  # fmt: skip
"""The last but one joins upon blocks that the one before it computes in the same step, and lacks one after them."""


@settings(max_examples=300, deadline=None)
@example(OF_ANOTHER_IN_THIS_STEP, False, True, False, 2, 28)
@given(events, st.booleans(), st.booleans(), st.booleans(), st.integers(2, 40), st.integers(1, 40))
def test_whatever_happens_drafts_are_made_of_all_tokens(
    story: list[tuple[str, int, int]], asynchronous: bool, eager: bool, partial: bool, room: int, budget: int
) -> None:
    world = World(asynchronous=asynchronous, eager=eager, room=room, budget=budget)
    world.engine.partial = partial
    k, off, asks = 2, False, True
    for number, (event, size, which) in enumerate(story):
        names = sorted(world.engine.requests)
        if event == "add":
            world.engine.add(f"r{number}", 1 + size, which)
        elif event == "end" and names:
            world.engine.end(names[size % len(names)])
        elif event == "preempt" and names:
            world.engine.preempt(names[size % len(names)])
        elif event in ("off", "plain", "draft"):
            k, off = 0 if event != "draft" else which, event == "off"
        elif event == "ask":
            asks = not asks
        else:
            world.step(k, off, size, asks)
    world.engine.budget = max(8, budget)
    world.drain()
    assert not world.unseen._holes
    assert len(set(world.engine.superfluous.values())) <= 1, "catching up with what lacks nothing must stay rare"
