"""Off where several ranks share each layer: whatever fails in whichever of them, none does otherwise than the others.

A rank that runs the drafter alone, or catches up alone, waits for ever. Here ranks are threads that meet wherever real
ones exchange something.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.payload.test_off import config
from tests.unit.payload.test_unseen import SIZE, Common, Engine, Tensor

from speculative_operator.payload import speculative_off, speculative_unseen, speculative_worker

HOOKS = ("why_not", "made", "empty", "is_tensor", "rest", "before_pass", "caught_up", "requests")
"""What may fail in one rank."""


class InjectedError(Exception):
    """What a hook raises that fails."""


class Meeting:
    """Where all ranks come, or those that came wait for ever: here for seconds."""

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks, timeout=20.0)
        self._brought: list[tuple[Any, Any]] = [(None, None)] * ranks

    def meet(self, rank: int, what: Any, value: Any = None) -> list[Any]:
        """What each rank has brought. All must have come for the same."""
        self._brought[rank] = (what, value)
        self._barrier.wait()
        brought = list(self._brought)
        self._barrier.wait()
        assert len({repr(one) for one, _ in brought}) == 1, brought
        return [one for _, one in brought]


class Drafts:
    """A tensor of drafts, as far as its shape is looked at."""

    def __init__(self, rows: int, columns: int) -> None:
        self.shape = (rows, columns)

    def __getitem__(self, rows: slice) -> Drafts:
        return Drafts(min(rows.stop, self.shape[0]), self.shape[1])


class Runner:
    """As much of vLLM's runner as is changed."""

    drafter: Any

    def __init__(self, rank: Rank, engine: Engine, method: str) -> None:
        self.__dict__.update(vars(engine.runner))
        self.rank, self.max_num_reqs = rank, 64
        ranks = rank.world.ranks
        self.vllm_config = config(method=method, tensor_parallel_size=ranks, world_size_across_dp=ranks)
        self.vllm_config.scheduler_config = engine.runner.vllm_config.scheduler_config
        self.prev_num_spec_tokens = 0
        self.drafter.propose = self.catch_up

    def catch_up(self, **given: Any) -> None:
        self.rank.meet(("catching up", given["target_positions"]))
        self.rank.done.append("catching up")
        self.rank.engine.propose(**given)

    def execute_model(self, plan: Any) -> None:
        self.rank.meet("verifier")
        self.plan = plan

    def _sample(self, logits: Any, verified: Any) -> None:
        self.rank.done.append("plain" if verified is None else "rejection")

    def propose_draft_token_ids(self, plan: Any, *args: Any) -> Drafts:
        self.rank.meet("drafter")
        self.rank.done.append("drafted")
        self.rank.engine.see()
        return Drafts(len(plan.num_scheduled_tokens), plan.num_spec_tokens_to_schedule)

    def _copy_draft_token_ids_to_cpu(self, plan: Any) -> None:
        self.prev_num_spec_tokens = self._draft_token_ids.shape[1]

    def sample_tokens(self, grammar: Any) -> Any:
        plan = self.plan
        counts = [len(plan.scheduled_spec_decode_tokens.get(name, ())) for name in plan.num_scheduled_tokens]
        self._sample(None, SimpleNamespace(num_draft_tokens=counts))
        common = self.rank.engine.common()
        self._draft_token_ids = self.propose_draft_token_ids(plan, *[None] * 6, common, None)
        self._copy_draft_token_ids_to_cpu(plan)
        return SimpleNamespace(req_ids=list(plan.num_scheduled_tokens))


class Rank:
    """A worker with its own copy of the module."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.done: list[str] = []
        """What it did in the step that runs."""
        self.worker = self._copy()
        self.engine = Engine(world.asynchronous, world.room)
        changed = type("Changed", (Runner,), dict(Runner.__dict__))
        group = SimpleNamespace(world_size=world.ranks, cpu_group=self)
        self.worker.change(changed, self._torch(), lambda: group)
        self.engine.runner = changed(self, self.engine, world.method)

    def meet(self, what: Any, value: Any = None) -> list[Any]:
        return self.world.meeting.meet(self.number, what, value)

    def step(self, plan: Any) -> Any:
        self.done.clear()
        self.engine.runner.execute_model(plan)
        output = self.engine.runner.sample_tokens(None)
        self.engine.go_on()
        return output

    def _may_fail(self, hook: str) -> None:
        if (self.number, hook, self.world.now) in self.world.faults:
            raise InjectedError(hook)

    def _copy(self) -> ModuleType:
        found = importlib.util.spec_from_file_location("speculative_operator.payload.rank", speculative_worker.__file__)
        assert found is not None
        assert found.loader is not None
        module: Any = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        module.STATE, why_not, rank = module._State(), module.why_not, self

        class Faulty(speculative_unseen.Unseen):
            def rest(self, plan: Any) -> None:
                rank._may_fail("rest")
                super().rest(plan)

            def before_pass(self, plan: Any, common: Common, sampling: Any) -> Any:
                rank._may_fail("before_pass")
                return super().before_pass(plan, common, sampling)

            def caught_up(self, missed: Any) -> None:
                rank._may_fail("caught_up")
                super().caught_up(missed)

            @property
            def requests(self) -> int:
                rank._may_fail("requests")
                return super().requests

        def asked(config: Any) -> Any:
            rank._may_fail("why_not")
            return why_not(config)

        def made(runner: Any, torch: Any) -> Any:
            rank._may_fail("made")
            return Faulty(runner, torch) if runner.vllm_config.speculative_config.method == "draft_model" else None

        module.why_not, module._unseen = asked, SimpleNamespace(made=made)
        return module  # type: ignore[no-any-return]

    def _torch(self) -> Any:
        def empty(rows: int, columns: int, **_: Any) -> Drafts:
            self._may_fail("empty")
            return Drafts(rows, columns)

        def is_tensor(one: Any) -> bool:
            self._may_fail("is_tensor")
            return isinstance(one, Drafts)

        def all_reduce(values: Any, op: str, group: Any) -> None:
            assert (op, group) == ("least", self)
            values[:] = map(min, *self.meet("agreement", list(values)))

        def all_gather_object(found: list[Any], value: Any, group: Any) -> None:
            found[:] = self.meet("reasons", value)

        return SimpleNamespace(
            empty=empty, is_tensor=is_tensor, tensor=lambda values, **_: Tensor(values), int32=0, int64=1,
            distributed=SimpleNamespace(
                all_reduce=all_reduce, all_gather_object=all_gather_object, ReduceOp=SimpleNamespace(MIN="least")
            ),
        )  # fmt: skip


class World:
    """Ranks, and the scheduler that all of them follow."""

    def __init__(self, method: str, ranks: int, asynchronous: bool, room: int = 1000) -> None:
        self.method, self.ranks, self.asynchronous, self.room = method, ranks, asynchronous, room
        self.meeting = Meeting(ranks)
        self.faults: set[tuple[int, str, int]] = set()
        self.now = 0
        self.latch: speculative_off.Latch | None = speculative_off.Latch(2)
        self.k = 2
        self.told: list[Any] = [None] * asynchronous
        self.steps: list[list[str]] = []
        """What each rank did in each step."""
        self.members = [Rank(self, number) for number in range(ranks)]
        self.pool = ThreadPoolExecutor(ranks)

    def add(self, name: str, tokens: list[int], cached: list[int] | None = None) -> None:
        for one in self.members:
            one.engine.add(name, tokens, cached)

    def end(self, name: str) -> list[int]:
        blocks, *_ = [one.engine.end(name) for one in self.members]
        return blocks

    @property
    def first(self) -> Engine:
        return self.members[0].engine

    def step(self, k: int) -> None:
        verifying, self.k = self.k > 0, k
        plan, *_ = [one.engine.plan(k, verifying) for one in self.members]
        scheduled = plan.num_scheduled_tokens
        vars(plan).pop("speculative_ids", None)
        if self.latch is not None:
            engine = self.first
            requests = {
                name: SimpleNamespace(
                    num_computed_tokens=engine.done[name], num_tokens=len(tokens), num_output_placeholders=0,
                    output_token_ids=tokens[engine.prompt[name] :],
                )
                for name, tokens in engine.tokens.items()
            }  # fmt: skip
            self.latch.step(k, k, scheduled, requests)
            self.latch.mark(plan, requests, self.asynchronous)
        self.now += 1
        outputs = [one.result() for one in [self.pool.submit(one.step, plan) for one in self.members]]
        ours = [one.done for one in self.members]
        assert ours == [ours[0]] * self.ranks, "they sample alike too: every rank for itself"
        self.steps.append(list(ours[0]))
        self.told.append(getattr(outputs[0], "speculative_off", None))
        self._hear(self.told.pop(0))

    def _hear(self, told: Any) -> None:
        """As the scheduler does: of the first rank alone."""
        if told is not None and self.latch is not None:
            _, refused, self.latch.missing, self.latch.behind = told
            if refused:
                self.latch = None

    def rests(self) -> bool:
        """Whether the drafter is left out, after drafts were wanted and now are not."""
        before = len(self.steps)
        for k in (2, 2, *[0] * 10):
            self.step(k)
        return ["plain"] in self.steps[before:]


@contextmanager
def world(*given: Any) -> Iterator[World]:
    made = World(*given)
    try:
        yield made
    finally:
        made.pool.shutdown()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
def test_all_ranks_leave_the_drafter_out_of_the_same_steps(method: str, asynchronous: bool) -> None:
    with world(method, 3, asynchronous) as one:
        one.add("a", list(range(10)))
        for _ in range(3):
            assert one.rests()
            one.step(2)
            assert (one.steps[-1][1:] == ["catching up", "drafted"]) is (method == "draft_model")
        assert [member.worker.STATE.rested for member in one.members] == [one.steps.count(["plain"])] * 3
        one.step(2)
        assert one.steps[-1] == ["rejection", "drafted"]
        assert method != "draft_model" or all(member.engine.whole for member in one.members)


def test_without_drafts_a_step_that_is_not_off_takes_vllms_sampler_on_several_ranks() -> None:
    """One that met an error would draw other random numbers than the rest."""
    for ranks, sampler in ((1, "plain"), (2, "rejection")):
        with world("eagle3", ranks, False) as one:
            one.add("a", [1, 2, 3])
            one.step(2)
            one.step(0)
            one.step(0)
            assert one.steps[1:] == [["rejection", "drafted"], ["plain"]]
            one.add("b", [1, 2, 3])
            one.step(0)
            assert one.steps[-1] == [sampler, "drafted"], "it has a prompt"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
def test_a_rank_that_fails_ends_it_for_all_and_its_reason_is_told(method: str, hook: str, rank: int) -> None:
    with world(method, 2, False) as one:
        one.faults = {(rank, hook, step) for step in range(1, 100)}
        one.add("a", list(range(10)))
        one.rests()
        one.rests()
        asked = method == "draft_model" or hook not in ("rest", "before_pass", "caught_up", "requests")
        assert one.rests() is not asked
        assert (one.latch is None) is asked
        assert not asked or f"InjectedError('{hook}')" in one.members[0].worker.STATE.refused
        assert not asked or one.steps[-1] == ["rejection", "drafted"]


def test_a_rank_that_failed_while_off_says_so_the_next_time() -> None:
    with world("eagle3", 2, False) as one:
        one.add("a", list(range(10)))
        assert one.rests()
        one.faults = {(1, "is_tensor", one.now + 1)}
        one.step(0)
        assert one.members[1].worker.STATE.refused
        one.step(0)
        assert one.steps[-1] == ["plain"], "that step leaves nothing to fail"
        assert not one.rests()


def test_ranks_that_lack_other_tokens_do_not_catch_up() -> None:
    with world("draft_model", 2, False) as one:
        one.add("a", list(range(10)))
        assert one.rests()
        one.members[1].worker.STATE.unseen._holes["a"] = (7, None)
        one.step(2)
        assert "catching up" not in one.steps[-1]
        assert one.latch is None
        assert one.members[0].worker.STATE.refused == "ranks have missed other tokens"
        assert not one.rests()


events = st.lists(
    st.tuples(st.sampled_from(["step", "step", "step", "turn", "add", "end", "again"]), st.integers(0, 5)),
    min_size=10, max_size=50,
)  # fmt: skip
faults = st.sets(st.tuples(st.integers(0, 2), st.sampled_from(HOOKS), st.integers(1, 30)), max_size=3)


@settings(max_examples=150, deadline=None)
@given(events, faults, st.sampled_from(["draft_model", "eagle3"]), st.booleans(), st.integers(3, 40), st.integers(1, 3))
def test_whatever_fails_wherever_no_rank_does_otherwise_than_the_others(
    story: list[tuple[str, int]],
    faults: set[tuple[int, str, int]],
    method: str,
    asynchronous: bool,
    room: int,
    ranks: int,
) -> None:
    with world(method, ranks, asynchronous, room) as one:
        one.faults = faults
        one.add("r", list(range(9)))
        k, number = 2, 0
        cached: tuple[list[int], list[int]] = [], []
        for event, size in story:
            tokens = one.first.tokens
            if event == "add":
                number += 1
                one.add(f"r{number}", list(range(2 + size)))
            elif event == "end" and tokens:
                name = sorted(tokens)[size % len(tokens)]
                cached = tokens[name][: one.first.done[name]], one.end(name)
            elif event == "again" and cached[1]:
                number += 1
                one.add(f"r{number}", [*cached[0][: len(cached[1]) * SIZE], 7, 8], cached[1])
            elif event == "turn":
                k = 2 - k
            elif event == "step" and tokens:
                one.step(k)
        one.faults = set()
        one.add("last", [1, 2])
        refused = any(member.worker.STATE.refused for member in one.members)
        assert one.rests() is not refused
        assert (one.latch is None) is refused
