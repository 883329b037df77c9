"""Off where several ranks share each layer: whatever fails in whichever of them, none does otherwise than the others.

A rank that runs the speculator alone, or catches up alone, waits for ever. Here ranks are threads that meet wherever
real ones exchange something.
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
from tests.unit.payload.v2_runner import MOST, Engine, Speculator, config, torch

from speculative_operator.payload import speculative_off, speculative_unseen, speculative_worker

HOOKS = ("why_not", "made", "none", "learn", "rest", "missed", "_inputs", "requests")
"""What may fail in one rank; with `none` it cannot tell what it has missed."""


class InjectedError(Exception):
    """What a hook raises that fails."""


class Meeting:
    """Where all ranks come, or those that came wait for ever: here for seconds."""

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks, timeout=10.0)
        self._brought: list[tuple[Any, Any]] = [(None, None)] * ranks
        self.wrong: list[str] = []
        """What went wrong, also where an error of it is caught."""

    def meet(self, rank: int, what: Any, value: Any = None) -> list[Any]:
        """What each rank has brought. All must have come for the same."""
        self._brought[rank] = (what, value)
        try:
            self._barrier.wait()
            brought = list(self._brought)
            self._barrier.wait()
        except threading.BrokenBarrierError:
            self.wrong.append(f"rank {rank} waits alone for {what}")
            raise
        if len({repr(one) for one, _ in brought}) > 1:
            self.wrong.append(f"ranks meet for {brought}")
        return [one for _, one in brought]


class Shared(Speculator):
    """One that every rank has a part of."""

    def __init__(self, rank: Rank, room: int) -> None:
        super().__init__(rank.engine, room)
        self._rank = rank
        self.drafts = self.draft_tokens.copy()

    def _prefill(self, batch: Any, *given: Any) -> None:
        rank = self._rank
        rank.meet(("own" if self.own else "catching up", list(batch.positions), list(batch.idx_mapping)))
        if not self.own:
            rank.done.append("catching up")
            rank.may_fail("compute")
        super()._prefill(batch, *given)

    def entered(self) -> None:
        self._rank.done.append(f"drafted {self.num_speculative_steps}")
        self._rank.forgive()


class Runner:
    """As much of vLLM's runner as is changed."""

    adaptive_verification: Any = None
    execute_model_state: Any = None

    def __init__(self, rank: Rank, method: str) -> None:
        self.__dict__.update(vars(rank.engine.runner))
        self.rank, self.speculator = rank, Shared(rank, rank.world.room)
        ranks = rank.world.ranks
        self.vllm_config = config(method=method, tensor_parallel_size=ranks, world_size_across_dp=ranks)
        self.dry = 0

    def execute_model(self, scheduler_output: Any, intermediate: Any = None, dummy_run: bool = False) -> None:
        if dummy_run:
            self.dry += 1
            return
        self.rank.meet("verifier")
        self.plan = scheduler_output
        self.rank.remember()

    def sample_tokens(self, grammar_output: Any) -> Any:
        batch = self.rank.engine.begin(self.rank.world.seed)
        k = self.plan.num_spec_tokens_to_schedule
        self.drafted = self.speculator.propose(batch, **self.rank.engine.arguments(), num_speculative_tokens=k)
        assert self.drafted.shape[0] == batch.num_reqs
        return SimpleNamespace(req_ids=list(batch.req_ids))


class Rank:
    """A worker with its own copy of the module."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.done: list[str] = []
        """What it did in the step that runs."""
        self.worker: Any = self._copy()
        self.engine = Engine(world.asynchronous, world.room, world.budget)
        changed = type("Changed", (Runner,), dict(Runner.__dict__))
        group = SimpleNamespace(world_size=world.ranks, cpu_group=self)
        self.worker.change(changed, self._torch(), lambda: group)
        self.runner = changed(self, world.method)

    def meet(self, what: Any, value: Any = None) -> list[Any]:
        return self.world.meeting.meet(self.number, what, value)

    def step(self, plan: Any) -> Any:
        self.done.clear()
        self.runner.execute_model(plan)
        if not plan.num_scheduled_tokens:
            return None
        output = self.runner.sample_tokens(None)
        if not any(one.startswith("drafted") for one in self.done):
            self.engine.rest()
        self.engine.go_on()
        if self.unseen is not None:
            self.engine.check(self.unseen._holes)
        return output

    @property
    def unseen(self) -> Any:
        """None where nobody asks it any more."""
        return None if self.worker.STATE.refused else self.worker.STATE.unseen

    def remember(self) -> None:
        self._before = set(self.unseen._holes) if self.unseen is not None else set()

    def forgive(self) -> None:
        if self.unseen is not None:
            self.engine.forgive(self._before.difference(self.unseen._holes).intersection(self.unseen._drafted))

    def may_fail(self, hook: str) -> None:
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
            def learn(self, plan: Any) -> None:
                rank.may_fail("learn")
                super().learn(plan)

            def rest(self, batch: Any) -> None:
                rank.may_fail("rest")
                super().rest(batch)

            def missed(self, batch: Any, given: Any) -> Any:
                rank.may_fail("missed")
                return super().missed(batch, given)

            def _inputs(self, *given: Any) -> Any:
                rank.may_fail("_inputs")
                return super()._inputs(*given)

            @property
            def requests(self) -> int:
                rank.may_fail("requests")
                return super().requests

        def asked(given: Any) -> Any:
            rank.may_fail("why_not")
            return why_not(given)

        def made(runner: Any, torch: Any) -> Any:
            rank.may_fail("made")
            return None if (rank.number, "none", rank.world.now) in rank.world.faults else Faulty(runner, torch)

        module.why_not, module._unseen = asked, SimpleNamespace(made=made)
        return module  # type: ignore[no-any-return]

    def _torch(self) -> Any:
        def all_reduce(values: Any, op: str, group: Any) -> None:
            assert (op, group) == ("least", self)
            values[:] = [min(of_ranks) for of_ranks in zip(*self.meet("agreement", list(values)), strict=True)]

        def all_gather_object(found: list[Any], value: Any, group: Any) -> None:
            found[:] = self.meet("reasons", value)

        least = SimpleNamespace(MIN="least")
        return torch(
            distributed=SimpleNamespace(all_reduce=all_reduce, all_gather_object=all_gather_object, ReduceOp=least)
        )


class World:
    """Ranks, and the scheduler that all of them follow."""

    def __init__(
        self, method: str, ranks: int, asynchronous: bool = False, room: int = 1000, budget: int = 100
    ) -> None:
        self.method, self.ranks, self.asynchronous, self.room, self.budget = method, ranks, asynchronous, room, budget
        self.meeting = Meeting(ranks)
        self.faults: set[tuple[int, str, int]] = set()
        self.now = self.seed = self.added = 0
        self.latch: speculative_off.Latch | None = speculative_off.Latch(2)
        self.told: list[Any] = [None] * asynchronous
        self.steps: list[list[str]] = []
        """What each rank did in each step."""
        self.members = [Rank(self, number) for number in range(ranks)]
        self.pool = ThreadPoolExecutor(ranks)

    def all(self, method: str, *given: Any) -> None:
        for one in self.members:
            getattr(one.engine, method)(*given)

    @property
    def first(self) -> Engine:
        return self.members[0].engine

    def step(self, k: int, seed: int = 0) -> None:
        plan, *_ = [one.engine.plan(k) for one in self.members]
        scheduled, self.seed = plan.num_scheduled_tokens, seed
        if self.latch is not None and scheduled:
            requests = {
                name: SimpleNamespace(num_computed_tokens=one.told, num_tokens=one.known, num_output_placeholders=0)
                for name, one in self.first.requests.items()
            }
            self.latch.step(k, k, scheduled, requests)
            self.latch.mark(plan, requests)
        self.now += 1
        outputs = [one.result() for one in [self.pool.submit(one.step, plan) for one in self.members]]
        assert not self.meeting.wrong
        ours = [one.done for one in self.members]
        assert ours == [ours[0]] * self.ranks
        if scheduled:
            self.steps.append(list(ours[0]))
            self.told.append((plan, outputs[0]))
            self._hear(self.told.pop(0))

    def _hear(self, told: Any) -> None:
        """As the scheduler does: of the first rank alone."""
        if told is not None and self.latch is not None:
            plan, output = told
            try:
                self.latch.hear(plan, output)
            except RuntimeError:
                self.latch = None

    def rests(self) -> bool:
        """Whether the speculator is left out, after drafts were wanted and now are not."""
        before, self.added = len(self.steps), self.added + 1
        self.all("add", f"rests{self.added}", 3, 9)
        for k in (2, 2, *[0] * 10):
            self.step(k)
        return [] in self.steps[before:]

    @property
    def refused(self) -> list[str]:
        return [one.worker.STATE.refused for one in self.members]


@contextmanager
def world(*given: Any) -> Iterator[World]:
    made = World(*given)
    try:
        yield made
    finally:
        made.pool.shutdown()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("method", ["draft_model", "eagle3", "ngram"])
def test_all_ranks_leave_the_speculator_out_of_the_same_steps(method: str, asynchronous: bool) -> None:
    with world(method, 3, asynchronous) as one:
        one.all("add", "a", 10)
        for _ in range(3):
            assert one.rests()
            one.step(2)
            assert (one.steps[-1] == ["catching up", "drafted 2"]) is (method == "draft_model")
        assert [member.worker.STATE.rested for member in one.members] == [one.steps.count([])] * 3
        one.step(2)
        one.step(2)
        assert one.steps[-1] == ["drafted 2"]
        assert one.refused == [""] * 3


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
def test_a_rank_that_fails_ends_it_for_all_and_its_reason_is_told(method: str, hook: str, rank: int) -> None:
    with world(method, 2) as one:
        one.faults = {(rank, hook, step) for step in range(1, 100)}
        one.all("add", "a", 10)
        one.rests()
        one.rests()
        # a first rank that cannot tell says so, and the scheduler never asks for what was missed
        asked = hook == "why_not" or (method == "draft_model" and (hook, rank) != ("none", 0))
        assert one.rests() is not asked
        assert (one.latch is None) is asked
        assert any(one.refused) is asked
        if asked and hook != "none":
            assert f"InjectedError('{hook}')" in one.refused[0]
        if asked:
            assert one.steps[-1][-1].startswith("drafted")


@pytest.mark.parametrize("hook", ["learn", "rest"])
def test_a_rank_that_failed_while_off_says_so_the_next_time(hook: str) -> None:
    with world("draft_model", 2) as one:
        assert one.rests()
        one.faults = {(1, hook, one.now + 1)}
        one.step(0)
        assert one.refused[1]
        assert not one.refused[0]
        one.step(0)
        assert one.steps[-2:] == [[], []], "that step leaves nothing to fail"
        one.step(2)
        assert one.steps[-1] == ["drafted 2"]
        assert "InjectedError" in one.refused[0]
        assert not one.rests()


def test_ranks_that_lack_other_tokens_do_not_catch_up() -> None:
    with world("draft_model", 2) as one:
        one.all("add", "a", 10)
        assert one.rests()
        one.members[1].worker.STATE.unseen._holes["a"] = 7
        one.step(2)
        assert one.steps[-1] == ["drafted 2"]
        assert one.latch is None
        assert one.refused == ["ranks have missed other tokens"] * 2
        assert not one.rests()


def test_a_pass_that_fails_in_all_ranks_ends_it_and_vllms_own_follows() -> None:
    with world("draft_model", 2) as one:
        one.all("add", "a", 10)
        assert one.rests()
        one.faults = {(rank, "compute", one.now + 1) for rank in range(2)}
        one.step(2)
        assert one.steps[-1] == ["catching up", "drafted 2"]
        assert one.latch is None
        assert not one.rests()


@pytest.mark.parametrize(("k", "passes"), [(2, 2), (1, 1), (0, 1)])
def test_a_draft_model_makes_k_passes(k: int, passes: int) -> None:
    with world("draft_model", 1) as one:
        one.latch = None
        one.all("add", "a", 5)
        one.step(k)
        speculator = one.members[0].runner.speculator
        assert speculator.steps == [passes]
        assert speculator.num_speculative_steps == MOST
        assert one.members[0].runner.drafted.shape == (1, MOST), "as wide as vLLM takes it"


@pytest.mark.parametrize("k", [0, 1])
def test_an_error_of_vllms_own_pass_is_vllms_and_leaves_its_steps(k: int) -> None:
    with world("draft_model", 1) as one:
        one.all("add", "a", 5)
        one.step(2)
        speculator = one.members[0].runner.speculator
        speculator.raises = True
        with pytest.raises(MemoryError):
            one.step(k)
        assert speculator.num_speculative_steps == MOST
        assert one.refused == [""]


def test_dummy_runs_pass_through() -> None:
    with world("draft_model", 1) as one:
        member = one.members[0]
        member.runner.execute_model(None, None, True)
        member.runner.execute_model(None, dummy_run=True)
        assert member.runner.dry == 2
        assert not hasattr(member.runner, "_speculative_prepared")
        one.all("add", "a", 5)
        one.step(1)
        speculator, given = member.runner.speculator, member.engine.arguments()
        member.worker.STATE.resting = True
        speculator.propose(input_batch=member.engine.batch, **given, dummy_run=True)
        speculator.propose(member.engine.batch, **given, dummy_run=True, num_speculative_tokens=1)
        assert speculator.steps == [1, MOST, MOST]


@pytest.mark.parametrize("method", ["draft_model", "eagle3", "ngram"])
def test_off_returns_what_vllm_fills_with_drafts(method: str) -> None:
    with world(method, 1) as one:
        one.all("add", "a", 5)
        one.all("add", "b", 5, 2)
        for k in (2, 2, 0, 0, 0, 0):
            one.step(k)
        runner = one.members[0].runner
        assert one.steps[-1] == []
        whole = runner.speculator.drafts if method == "ngram" else runner.speculator.draft_tokens
        assert runner.drafted.base is whole or runner.drafted.base is whole.base
        assert runner.drafted.shape == (2, MOST)


events = st.lists(
    st.tuples(
        st.sampled_from([*["step"] * 6, "off", "off", "draft", "draft", "add", "add", "end", "preempt"]),
        st.integers(0, 30), st.integers(1, 2),
    ),
    min_size=15, max_size=60,
)  # fmt: skip
faults = st.sets(st.tuples(st.integers(0, 2), st.sampled_from(HOOKS), st.integers(1, 30)), max_size=3)


@settings(max_examples=100, deadline=None)
@given(
    events, faults, st.sampled_from(["draft_model", "draft_model", "eagle3"]), st.booleans(),
    st.integers(3, 40), st.integers(2, 40), st.integers(1, 3),
)  # fmt: skip
def test_whatever_fails_wherever_no_rank_does_otherwise_than_the_others(
    story: list[tuple[str, int, int]],
    faults: set[tuple[int, str, int]],
    method: str,
    asynchronous: bool,
    room: int,
    budget: int,
    ranks: int,
) -> None:
    with world(method, ranks, asynchronous, room, budget) as one:
        one.faults = faults
        one.all("add", "r", 9)
        k = 2
        for number, (event, size, which) in enumerate(story):
            names = sorted(one.first.requests)
            if event == "add":
                one.all("add", f"r{number}", 1 + size, which)
            elif event in ("end", "preempt") and names:
                one.all(event, names[size % len(names)])
            elif event in ("off", "draft"):
                k = 0 if event == "off" else which
            else:
                one.step(k, size)
        one.faults = set()
        for name in sorted(one.first.requests):
            one.all("end", name)
        refused = any(one.refused)
        assert one.rests() is not refused
        one.step(2)
        assert (one.latch is None) is any(one.refused)
