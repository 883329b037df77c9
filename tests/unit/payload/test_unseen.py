"""What a drafter that rests has missed: which tokens of which requests, and what is computed when it returns."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.payload import speculative_unseen as unseen

SIZE = 4


class Tensor(list[Any]):
    """As much of torch's as is used here."""

    def __getitem__(self, rows: Any) -> Any:
        return (
            Tensor(list.__getitem__(self, row) for row in rows) if isinstance(rows, list) else super().__getitem__(rows)
        )

    def __add__(self, more: Any) -> Any:
        return Tensor(one + more for one in self)

    def to(self, _: object) -> Tensor:
        return self


TORCH = SimpleNamespace(tensor=lambda values, **_: Tensor(values), int32=0)


@dataclass
class Common:
    query_start_loc: Any = None
    query_start_loc_cpu: Any = None
    seq_lens: Any = None
    seq_lens_cpu_upper_bound: Any = None
    num_reqs: int = 0
    num_actual_tokens: int = 0
    max_query_len: int = 0
    max_seq_len: int = 0
    block_table_tensor: Any = None
    slot_mapping: Any = None
    causal: bool = True


class Engine:
    """Requests of a runner, each with its tokens and blocks, and a drafter that notes what it computes."""

    def __init__(self, asynchronous: bool = False, room: int = 1000) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.prompt: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.blocks: dict[str, list[int]] = {}
        self.next_block = 0
        self.seen: dict[int, list[int]] = {}
        """Block -> positions in it of which the drafter knows the token."""
        self.asynchronous = asynchronous
        self.fresh: set[str] = set()

        drafter = SimpleNamespace(
            max_num_tokens=room, propose=self.propose, net_num_new_slots_per_request=1, uses_mrope=False,
            supports_mm_inputs=False,
        )  # fmt: skip
        self.runner = SimpleNamespace(
            drafter=drafter, device="cpu", requests={}, speculative_config=SimpleNamespace(method="draft_model"),
            kv_cache_config=SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=None)]),
            vllm_config=SimpleNamespace(scheduler_config=SimpleNamespace(async_scheduling=asynchronous)),
        )  # fmt: skip
        made = unseen.made(self.runner, TORCH)
        assert made is not None
        self.unseen = made
        self.passes: list[list[tuple[str, int, int]]] = []

    def add(self, name: str, tokens: list[int], cached: list[int] | None = None) -> None:
        """A request with a prompt, its first blocks out of the prefix cache."""
        self.tokens[name], self.prompt[name] = list(tokens), len(tokens)
        self.blocks[name] = list(cached or [])
        self.done[name] = len(self.blocks[name]) * SIZE
        self.runner.requests[name] = object()

        self.fresh.add(name)

    def end(self, name: str) -> list[int]:
        """Its full blocks stay in the prefix cache."""
        full = self.blocks[name][: self.done[name] // SIZE]
        del self.tokens[name], self.runner.requests[name], self.done[name], self.blocks[name]
        return full

    def step(self, k: int, off: bool = False, verifying: bool = False) -> None:
        """Every request computes all it has; one more token of each is known afterwards."""
        plan = self.plan(k, verifying)
        if off:
            self.unseen.rest(plan)
        else:
            if k:
                plan.speculative_catches_up = True
            missed = self.unseen.before_pass(plan, self.common(), None)
            if missed is not None:
                self.propose(**missed.inputs)
                self.unseen.caught_up(missed)
            self.see()
        self.go_on()

    def plan(self, k: int, verifying: bool = False) -> Any:
        """The scheduler's output for the step that is next."""
        names = list(self.tokens)
        counts = {name: len(self.tokens[name]) - self.done[name] for name in names}
        for name in names:
            while len(self.blocks[name]) * SIZE < len(self.tokens[name]) + 1:
                self.blocks[name].append(self.next_block)
                self.seen[self.next_block] = []
                self.next_block += 1
        self._lay(names)
        fresh, self.fresh = self.fresh, set()
        plan = SimpleNamespace(
            num_scheduled_tokens=counts,
            total_num_scheduled_tokens=sum(counts.values()),
            num_spec_tokens_to_schedule=k,
            scheduled_spec_decode_tokens={name: [1] for name in names} if verifying else {},
            scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in fresh],
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
        )
        if self.asynchronous and k:
            plan.speculative_ids = {name: self.tokens[name][self.prompt[name] :] for name in names}
        return plan

    def common(self) -> Common:
        """Metadata of the attention, of the step that is planned."""
        return Common(block_table_tensor=Tensor(self.blocks[name] for name in self.names), slot_mapping=())

    def see(self) -> None:
        """The drafter's own pass of that step."""
        for name in self.names:
            self._see(name, range(self.done[name], len(self.tokens[name])))

    def go_on(self) -> None:
        """That step is over."""
        for name in self.names:
            self.done[name] = len(self.tokens[name])
            self.tokens[name].append(hash((name, len(self.tokens[name]))) % 997)

    def _lay(self, names: list[str]) -> None:
        """The runner's arrays for these rows."""
        longest = max([len(tokens) for tokens in self.tokens.values()], default=0)
        ids = np.full((len(names), longest + 1), -1)
        table = np.zeros((len(names), max([len(blocks) for blocks in self.blocks.values()], default=0)), dtype=int)
        for row, name in enumerate(names):
            known = self.prompt[name] if self.asynchronous else len(self.tokens[name])
            ids[row, :known] = self.tokens[name][:known]
            if self.asynchronous:
                ids[row, known:] = 5  # what another request left there
            table[row, : len(self.blocks[name])] = self.blocks[name]
        self.names = names
        self.runner.input_batch = SimpleNamespace(
            req_ids=names, token_ids_cpu=ids, num_prompt_tokens=[self.prompt[name] for name in names],
            num_computed_tokens_cpu=[self.done[name] for name in names],
            block_table=[SimpleNamespace(block_size=SIZE, block_table=SimpleNamespace(np=table))],
        )  # fmt: skip

    def _see(self, name: str, positions: Any) -> None:
        for position in positions:
            self.seen[self.blocks[name][position // SIZE]].append(position)

    def propose(self, **given: Any) -> None:
        common, ids = given["common_attn_metadata"], given["target_token_ids"]
        assert given["num_speculative_tokens"] == 0
        bounds, found = common.query_start_loc, []
        assert common.num_actual_tokens == len(ids) == len(given["target_positions"]) == bounds[-1]
        by_blocks = {tuple(self.blocks[name]): name for name in self.names}
        for number in range(common.num_reqs):
            name = by_blocks[tuple(common.block_table_tensor[number])]
            places = given["target_positions"][bounds[number] : bounds[number + 1]]
            whole = [*ids[bounds[number] : bounds[number + 1]], given["next_token_ids"][number]]
            assert list(places) == list(range(places[0], places[0] + len(places)))
            assert common.seq_lens[number] == places[-1] + 1
            assert whole == self.tokens[name][places[0] : places[-1] + 2], "these are the request's own tokens"
            self._see(name, range(places[0], places[-1] + 2))
            found.append((name, places[0], places[-1] + 2))
        assert bounds == sorted(bounds)
        self.passes.append(found)

    @property
    def whole(self) -> bool:
        """Whether the drafter has seen every token of every request that was computed."""
        return all(
            position in self.seen[self.blocks[name][position // SIZE]]
            for name in self.tokens
            for position in range(self.done[name])
        )


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_was_missed_is_computed_once_before_the_first_drafts(asynchronous: bool) -> None:
    engine = Engine(asynchronous)
    engine.add("a", list(range(10)))
    engine.step(2)
    for _ in range(5):
        engine.step(0, off=True)
    engine.add("b", list(range(20, 29)))
    engine.step(0, off=True)
    assert engine.unseen.requests == 2
    assert not engine.unseen.behind, "the drafter does not run"
    assert not engine.whole
    engine.step(2)
    assert engine.unseen.behind
    assert engine.whole
    assert engine.passes == [[("a", 10, 16), ("b", 0, 9)]]
    engine.step(2, verifying=True)
    assert not engine.unseen.behind
    assert len(engine.passes) == 1
    assert engine.unseen.requests == 0


def test_a_prefix_that_was_cached_while_off_is_computed_for_who_gets_it() -> None:
    engine = Engine()
    engine.add("a", list(range(10)))
    for _ in range(4):
        engine.step(0, off=True)
    cached = engine.end("a")
    engine.add("b", [*range(8), 40, 41], cached[:2])
    engine.step(3)
    assert engine.whole
    assert engine.passes == [[("b", 0, 8)]]
    engine.add("c", [*range(8), 50], cached[:2])
    engine.step(3)
    assert len(engine.passes) == 1, "now the block holds all"


def test_one_pass_takes_what_it_has_room_for_and_the_next_goes_on() -> None:
    engine = Engine(room=6)
    engine.add("a", list(range(10)))
    engine.step(0, off=True)
    engine.step(3)
    assert engine.passes == [[("a", 0, 6)]]
    assert engine.unseen.requests == 1
    engine.step(3, verifying=True)
    assert engine.passes[1:] == [[("a", 6, 11)]]
    assert engine.unseen.behind
    engine.step(3, verifying=True)
    assert not engine.unseen.behind
    assert engine.unseen.requests == 0


def test_a_request_that_ends_is_forgotten() -> None:
    engine = Engine()
    engine.add("a", [1, 2])
    engine.add("b", [3, 4])
    engine.step(0, off=True)
    engine.end("a")
    engine.step(0, off=True)
    assert engine.unseen.requests == 1


def test_what_nobody_knows_is_told() -> None:
    engine = Engine(asynchronous=True)
    engine.add("a", [1, 2, 3])
    for _ in range(3):
        engine.step(0, off=True)
    engine.asynchronous = False  # the scheduler sends nothing
    engine.runner.vllm_config.scheduler_config.async_scheduling = True
    engine.step(2)
    assert engine.passes == [[("a", 0, 3)]]
    engine.step(2)
    assert len(engine.passes) == 1
    assert engine.unseen.requests == 1


def test_blocks_that_are_used_again_leave_no_request_behind() -> None:
    """Ids of blocks come back for other requests, whose drafter sees all: a short trial costs no whole context."""
    engine = Engine()
    engine.add("a", list(range(40)))
    engine.step(0, off=True)
    engine.end("a")
    engine.next_block = 0
    engine.add("b", list(range(100, 140)))
    engine.step(2)
    engine.step(2, verifying=True)
    engine.step(0, off=True)
    engine.step(2)
    assert engine.passes == [[("b", 40, 42)]]
    assert engine.whole
    assert not engine.unseen._stale


def test_what_was_drafted_upon_a_hole_is_computed_again() -> None:
    engine = Engine(room=6)
    engine.add("a", list(range(10)))
    engine.add("b", list(range(20, 30)))
    engine.step(0, off=True)
    for _ in range(8):
        engine.step(2, verifying=True)
    assert engine.unseen.requests == 0
    covered = {name: max(upto for one in engine.passes for who, _, upto in one if who == name) for name in "ab"}
    assert covered["b"] > 10
    assert not engine.unseen._stale


def test_ids_that_are_no_tokens_are_never_given_to_the_drafter() -> None:
    engine = Engine(asynchronous=True)
    engine.add("a", [1, -1, 3])
    engine.step(0, off=True)
    engine.step(2)
    assert engine.passes == []
    assert engine.unseen.requests == 1
    engine.step(2)
    assert not engine.unseen.behind, "it drafts so until it ends, which nobody waits for"


@pytest.mark.parametrize(
    "changes",
    [
        {"speculative_config": SimpleNamespace(method="eagle3")},
        {"kv_cache_config": SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=None)] * 2)},
        {"drafter": SimpleNamespace(net_num_new_slots_per_request=4)},
        {"drafter": None},
    ],
)
def test_where_it_cannot_be_done_prompts_are_always_seen(changes: dict[str, Any]) -> None:
    runner = Engine().runner
    for name, value in changes.items():
        setattr(runner, name, value)
    assert unseen.made(runner, TORCH) is None


events = st.lists(
    st.tuples(st.sampled_from(["step", "step", "step", "turn", "add", "end", "again"]), st.integers(0, 5)), max_size=40
)


@given(events, st.booleans(), st.integers(3, 40))
def test_whatever_happens_drafts_are_made_of_all_tokens(
    story: list[tuple[str, int]], asynchronous: bool, room: int
) -> None:
    engine, off, number = Engine(asynchronous, room), False, 0
    cached: tuple[list[int], list[int]] = [], []
    for event, size in story:
        if event == "add":
            number += 1
            engine.add(f"r{number}", list(range(2 + size)))
        elif event == "end" and engine.tokens:
            name = sorted(engine.tokens)[size % len(engine.tokens)]
            cached = engine.tokens[name][: engine.done[name]], engine.end(name)
        elif event == "again" and cached[1]:
            number += 1
            engine.add(f"r{number}", [*cached[0][: len(cached[1]) * SIZE], 7, 8], cached[1])
        elif event == "turn":
            off = not off
        elif event == "step" and engine.tokens:
            engine.step(0 if off else 2, off)
    for _ in range(200):
        if not engine.tokens:
            return
        engine.step(2)
        if not engine.unseen.requests:
            break
    assert engine.whole
