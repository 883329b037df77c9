"""A scheduler, a V2 runner and a draft model in small: which positions of which blocks the draft model has seen.

Tokens are told by a request's family and the position, so that requests of a family share prefixes. What is written to
a block is right only where the token is the request's own and all positions before it were right at that time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

SIZE = 4
"""Positions of a block."""
MOST = 2
"""Drafts at the largest K."""
ROWS = 8
LONGEST = 36
"""Known tokens with which a request is over."""
NEED = -(-(LONGEST + 3 * MOST + 12) // SIZE)
"""Blocks that one request needs at most."""


class Tensor(np.ndarray[Any, Any]):
    """As much of torch's as is used here."""

    @property
    def device(self) -> Any:
        return "cpu"

    def to(self, *given: Any, device: Any = None, dtype: Any = None) -> Tensor:
        kinds = [one for one in (*given, dtype) if one is not None and not isinstance(one, str)]
        return self.astype(kinds[0]).view(Tensor) if kinds else self

    def clone(self) -> Tensor:
        return self.copy()

    def view(self, *given: Any, **named: Any) -> Any:
        return self.reshape(-1) if given == (-1,) else super().view(*given, **named)

    def diff(self) -> Tensor:
        return tensor(np.diff(self))

    def numpy(self) -> Any:
        return np.asarray(self)


def tensor(values: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return np.array(values, dtype=dtype).view(Tensor)


def torch(**more: Any) -> Any:
    """As much of the module as is used here."""
    return SimpleNamespace(
        tensor=tensor, int32=np.int32,
        cat=lambda parts: tensor(np.concatenate(parts)),
        arange=lambda begin, end: tensor(np.arange(begin, end)),
        repeat_interleave=lambda values, counts: tensor(np.repeat(values, counts)),
        zeros=lambda count, dtype, device: tensor(np.zeros(count, dtype=dtype)),
        **more,
    )  # fmt: skip


def config(**changes: Any) -> Any:
    """vLLM's configuration, as far as it is looked at."""
    parallel = {
        "pipeline_parallel_size": 1, "data_parallel_size": 1, "decode_context_parallel_size": 1,
        "tensor_parallel_size": 1, "world_size_across_dp": 1,
    }  # fmt: skip
    drafting = {"method": "draft_model", "draft_sample_method": "greedy"}
    return SimpleNamespace(
        speculative_config=SimpleNamespace(**{key: changes.get(key, value) for key, value in drafting.items()}),
        parallel_config=SimpleNamespace(**{key: changes.get(key, value) for key, value in parallel.items()}),
        kv_transfer_config=None, model_config=SimpleNamespace(is_hybrid=False),
    )  # fmt: skip


@dataclass
class Batch:
    """The fields of vLLM's `InputBatch` that are used."""

    req_ids: list[str]
    num_reqs: int
    num_reqs_after_padding: int
    idx_mapping: Tensor
    idx_mapping_np: Any
    num_scheduled_tokens: Any
    num_tokens: int
    num_tokens_after_padding: int
    query_start_loc: Tensor
    query_start_loc_np: Any
    seq_lens: Tensor
    seq_lens_cpu_upper_bound: Tensor
    num_computed_tokens_np: Any
    input_ids: Tensor
    positions: Tensor
    num_draft_tokens_per_req: Any = None


@dataclass
class Request:
    family: int
    known: int
    """Tokens: of its prompt, then one more than are computed."""
    row: int = -1
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    told: int = 0
    """What the scheduler tells of `computed`: too high by the drafts whose rejection it does not know yet."""
    drafts: int = 0
    count: int = 0
    """Tokens of the step that runs."""
    rejected: int = 0
    rested: bool = False

    def token(self, position: int) -> int:
        return self.family * 1000 + position


class Part(NamedTuple):
    name: str
    begin: int
    upto: int


class Speculator:
    """vLLM's standalone draft model, which notes what it computes of whom."""

    def __init__(self, engine: Engine, room: int) -> None:
        self._engine = engine
        self.num_speculative_steps, self.max_num_tokens, self.supports_mm_inputs = MOST, room, False
        self.draft_tokens = tensor(np.zeros((ROWS, MOST), dtype=int))
        self.passes: list[tuple[int, list[Part]]] = []
        """Of each call of `_prefill` the tokens, those that are appended included, and whose they are."""
        self.steps: list[int] = []
        """`num_speculative_steps` as each `propose` of vLLM's found it."""
        self.raises = self.own = False
        """Whether its own pass fails, and whether that runs."""

    def entered(self) -> None:
        """Its own pass begins."""

    def _copy_request_inputs(self, num_reqs: int, idx_mapping: Any, temperature: Any, seeds: Any) -> None:
        assert len(idx_mapping) == num_reqs

    def _prefill(
        self, batch: Batch, num_rejected: Any, last_sampled: Any, num_reqs: int, skip_attn: bool, across: Any
    ) -> None:
        engine, bounds, writes, parts = self._engine, batch.query_start_loc_np, [], []
        assert list(engine.gathered[:num_reqs]) == list(batch.idx_mapping), "attention looks at these requests' blocks"
        assert list(bounds) == list(batch.query_start_loc)
        assert bounds[-1] == batch.num_tokens == len(batch.input_ids) == len(batch.positions)
        for number in range(num_reqs):
            row, begin, end = int(batch.idx_mapping[number]), int(bounds[number]), int(bounds[number + 1])
            start, valid = int(batch.positions[begin]), end - begin - int(num_rejected[number])
            assert list(batch.positions[begin:end]) == list(range(start, start + end - begin))
            assert batch.num_scheduled_tokens[number] == end - begin
            assert batch.seq_lens[number] == start + end - begin <= batch.seq_lens_cpu_upper_bound[number]
            for place in range(end - begin + 1):
                token = int(batch.input_ids[begin + place]) if place < valid else 0
                writes.append((row, start + place, int(last_sampled.reshape(-1)[row]) if place == valid else token))
            parts.append(Part(batch.req_ids[number], start, start + valid + 1))
        self.passes.append((int(bounds[-1]) + num_reqs, parts))
        engine.write(writes)

    def propose(
        self, input_batch: Batch, attn_metadata: Any, num_rejected: Any, last_sampled: Any, temperature: Any,
        seeds: Any, dummy_run: bool = False, num_speculative_tokens: int | None = None,
    ) -> Any:  # fmt: skip
        self.steps.append(self.num_speculative_steps)
        self.entered()
        if self.raises:
            raise MemoryError
        if not dummy_run:
            self._copy_request_inputs(input_batch.num_reqs, input_batch.idx_mapping, temperature, seeds)
            self.own = True
            self._prefill(input_batch, num_rejected, last_sampled, input_batch.num_reqs, False, None)
            self.own = False
        for step in range(1, self.num_speculative_steps if not dummy_run else 0):
            one = [self._engine.requests[name] for name in input_batch.req_ids]
            self._engine.write([(each.row, each.computed + each.count - each.rejected + step, -1) for each in one])
        return self.draft_tokens[: input_batch.num_reqs, : self.num_speculative_steps]


class Engine:
    """Scheduler and runner. Of each step first `plan`, then `begin`, the speculator or not, then `go_on`."""

    def __init__(self, asynchronous: bool = False, room: int = 1000, budget: int = 100, eager: bool = False) -> None:
        self.asynchronous, self.budget, self.eager = asynchronous, budget, eager
        self.requests: dict[str, Request] = {}
        self.running: list[str] = []
        self.waiting: list[str] = []
        self.free = deque(range(1, ROWS * NEED + 1))
        self.users = dict.fromkeys(self.free, 0)
        self.cache: dict[tuple[int, int], int] = {}
        """(family, number of the block) -> block of the prefix cache."""
        self.right = {block: [False] * SIZE for block in self.free}
        self.touched: set[int] = set()
        """Blocks of which something was left out, since they were given out."""
        self.superfluous: dict[str, int] = {}
        """Request that is caught up with although it lacks nothing -> the block for which; several may share it."""
        self.names: list[str] = []
        """Requests of the step."""
        self.finished: set[str] = set()
        self.preempted: set[str] = set()
        self.gathered: Any = []
        self.copies: list[tuple[int, int]] = []
        self.partial = False
        """Whether a prefix may end within a block, which is copied then."""
        self.k = 0
        self._fresh: set[int] = set()
        self.speculator = Speculator(self, room)
        tables = SimpleNamespace(gather_block_tables=self._gather)
        self.tokens = tensor(np.full((ROWS, LONGEST + 100), -7))
        groups = [SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=SIZE))]
        self.runner = SimpleNamespace(
            speculator=self.speculator, block_tables=tables, model_config=SimpleNamespace(uses_mrope=False),
            req_states=SimpleNamespace(all_token_ids=SimpleNamespace(gpu=self.tokens)),
            kv_cache_config=SimpleNamespace(kv_cache_groups=groups),
        )  # fmt: skip

    def add(self, name: str, tokens: int, family: int = 1) -> None:
        if len(self.requests) < ROWS:
            self.requests[name] = Request(family, min(tokens, LONGEST))
            self.waiting.append(name)

    def end(self, name: str) -> None:
        if name in self.running:
            self._release(name)
            self.finished.add(name)
        else:
            self.waiting.remove(name)
        del self.requests[name]

    def preempt(self, name: str) -> None:
        """It goes on from what the prefix cache still holds of it."""
        if name in self.running:
            self._release(name)
            self.preempted.add(name)
            self.waiting.insert(0, name)
            one = self.requests[name]
            one.blocks, one.computed, one.told, one.drafts, one.row, one.rested = [], 0, 0, 0, -1, False

    def plan(self, k: int) -> Any:
        """The scheduler's output for the next step, which drafts `k`."""
        for name in [name for name in self.running if self.requests[name].known >= LONGEST]:
            self.end(name)
        budget, self.names, self._fresh, self.copies, given = self.budget, [], set(), [], []
        for name in list(self.running):
            one = self.requests[name]
            one.count = min(one.known - one.computed + one.drafts, budget)
            one.drafts = min(one.drafts, one.count - 1) if one.count else 0
            if one.count:
                budget -= one.count
                self.names.append(name)
                given.append(self._allocate(one))
        old, new = list(self.names), []
        while self.waiting and budget:
            one = self.requests[name := self.waiting.pop(0)]
            self._join(one)
            one.count = min(one.known - one.computed, budget)
            budget -= one.count
            self._allocate(one)
            self.running.append(name)
            self.names.append(name)
            new.append(SimpleNamespace(req_id=name, block_ids=(list(one.blocks),), num_computed_tokens=one.computed))
        counts = {name: self.requests[name].count for name in self.names}
        plan = SimpleNamespace(
            num_scheduled_tokens=counts, total_num_scheduled_tokens=sum(counts.values()),
            num_spec_tokens_to_schedule=k, scheduled_new_reqs=new, finished_req_ids=self.finished,
            preempted_req_ids=self.preempted, kv_cache_block_copies=self.copies,
            scheduled_spec_decode_tokens={
                name: [1] * self.requests[name].drafts for name in self.names if self.requests[name].drafts
            },
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=old, new_block_ids=[(blocks,) if blocks else None for blocks in given]
            ),
        )  # fmt: skip
        self.finished, self.preempted, self.k = set(), set(), k
        return plan

    def begin(self, seed: int = 0) -> Batch:
        """The verifier's pass; `seed` says how many drafts of whom it rejects."""
        for source, copy in self.copies:
            self.right[copy] = list(self.right[source])
            self.touched.update({copy} if source in self.touched else ())
            self._drop(source)
        of_step = [self.requests[name] for name in self.names]
        for number, one in enumerate(of_step):
            one.rejected = (seed + number) % (one.drafts + 1)
            known = max(one.known, one.computed + one.count - one.rejected + 1)
            self.tokens[one.row] = -7
            self.tokens[one.row, :known] = [one.token(position) for position in range(known)]
        counts = [one.count for one in of_step]
        bounds = tensor([0, *np.cumsum(counts)], dtype=np.int32)
        rows = tensor([one.row for one in of_step], dtype=int)
        self.gathered = rows
        spans = [range(one.computed, one.computed + one.count) for one in of_step]
        ids = [one.token(place) for one, span in zip(of_step, spans, strict=True) for place in span]
        places = [place for span in spans for place in span]
        self.batch = Batch(
            req_ids=list(self.names), num_reqs=len(counts), num_reqs_after_padding=len(counts), idx_mapping=rows,
            idx_mapping_np=rows.numpy(), num_scheduled_tokens=np.array(counts), num_tokens=len(places),
            num_tokens_after_padding=len(places), query_start_loc=bounds, query_start_loc_np=bounds.numpy(),
            seq_lens=tensor([one.computed + one.count for one in of_step]),
            seq_lens_cpu_upper_bound=tensor([one.told + one.count for one in of_step]),
            num_computed_tokens_np=np.array([one.told for one in of_step]), input_ids=tensor(ids, dtype=int),
            positions=tensor(places, dtype=int),
        )  # fmt: skip
        return self.batch

    def arguments(self) -> Mapping[str, Any]:
        """Those of vLLM's `propose`, after the batch."""
        last = tensor(np.full((ROWS, 1), -9))
        for one in (self.requests[name] for name in self.names):
            after = one.computed + one.count - one.rejected
            if after >= one.known:
                last[one.row] = one.token(after)
        rejected = tensor([self.requests[name].rejected for name in self.names])
        return {
            "attn_metadata": None, "num_rejected": rejected, "last_sampled": last, "temperature": (), "seeds": ()
        }  # fmt: skip

    def rest(self) -> None:
        """The speculator does not run in this step."""
        for one in (self.requests[name] for name in self.names):
            self.write([(one.row, place, -1) for place in range(one.computed, one.computed + one.count)])
            self.touched.update(one.blocks[max(0, one.told - MOST) // SIZE :])
            one.rested = True

    def go_on(self) -> None:
        """The step is over."""
        for one in (self.requests[name] for name in self.names):
            one.computed += one.count - one.rejected
            one.told = one.computed + (one.rejected if self.asynchronous else 0)
            one.drafts = self.k if one.computed >= one.known else 0
            one.known = max(one.known, one.computed + 1)
        for one in self.requests.values():
            if not one.count:  # it was not in the step: all is known of it by now
                one.told = one.computed
            one.count = one.rejected = 0

    def write(self, writes: list[tuple[int, int, int]]) -> None:
        """One pass: tokens at positions of rows. What a position looks at is written before it, also by others."""
        rows = {one.row: one for one in self.requests.values() if one.row >= 0}
        for row, place, _ in writes:
            self.right[rows[row].blocks[place // SIZE]][place % SIZE] = False
        for row, place, token in sorted(writes, key=lambda one: one[1]):
            one = rows[row]
            if token == one.token(place) and not self.lacking(one, place):
                self.right[one.blocks[place // SIZE]][place % SIZE] = True

    def lacking(self, one: Request, end: int) -> list[int]:
        """Positions before `end` that the draft model has not seen, or only upon others that it had not."""
        return [place for place in range(end) if not self.right[one.blocks[place // SIZE]][place % SIZE]]

    def forgive(self, names: Iterable[str]) -> None:
        """Of these the drafts in flight are no longer asked for: positions told may be too high by so many."""
        for one in map(self.requests.__getitem__, names):
            for place in range(max(0, one.told - MOST), one.computed):
                self.right[one.blocks[place // SIZE]][place % SIZE] = True

    def check(self, holes: Mapping[str, int]) -> None:
        """Between steps: whoever has no hole lacks nothing. Requests with a hole that never lacked anything are kept:
        catching up with them costs a pass, and nothing else."""
        for name in self.running:
            one = self.requests[name]
            if name not in holes:
                assert not self.lacking(one, one.computed), (name, one)
            elif not one.rested and not self.touched.intersection(one.blocks):
                self.superfluous.setdefault(name, one.blocks[holes[name] // SIZE])

    def _gather(self, idx_mapping: Any, num_reqs_padded: int) -> None:
        assert len(idx_mapping) == num_reqs_padded
        self.gathered = list(idx_mapping)

    def _join(self, one: Request) -> None:
        """A row, and what the prefix cache holds of it, blocks that others compute in this step included."""
        one.row = next(row for row in range(ROWS) if row not in {other.row for other in self.requests.values()})
        most, place = (one.known - 1) // SIZE, 0
        while place < most and (one.family, place) in self.cache:
            self._use(one, self.cache[one.family, place])
            place += 1
        one.computed = place * SIZE
        source = self.cache.get((one.family, place))
        if self.partial and source is not None and source not in self._fresh and one.computed + 1 < one.known:
            self._use(one, source)  # not given out while it is copied
            self._allocate(one, one.blocks.pop())
            one.computed += min(SIZE - 1, one.known - 1 - one.computed)
        one.told = one.computed

    def _allocate(self, one: Request, source: int | None = None) -> list[int]:
        """Blocks for the tokens of this step and the drafts after it; of those that are full others may have use."""
        given = []
        need = len(one.blocks) + 1 if source is not None else -(-(one.told + one.count + 2 * MOST + 1) // SIZE)
        while len(one.blocks) < need:
            block = self.free.popleft()
            for key in [key for key, cached in self.cache.items() if cached == block]:
                del self.cache[key]
            self.right[block] = [False] * SIZE
            self.touched.discard(block)
            self._fresh.add(block)
            self.users[block] = 1
            one.blocks.append(block)
            given.append(block)
        if source is not None:
            self.copies.append((source, one.blocks[-1]))
            return given
        for place in range((one.computed + one.count - one.drafts) // SIZE):
            self.cache.setdefault((one.family, place), one.blocks[place])
        self._fresh.update(one.blocks[one.computed // SIZE :])
        return given

    def _use(self, one: Request, block: int) -> None:
        if not self.users[block]:
            self.free.remove(block)
        self.users[block] += 1
        one.blocks.append(block)

    def _drop(self, block: int) -> None:
        self.users[block] -= 1
        if not self.users[block]:
            (self.free.appendleft if self.eager else self.free.append)(block)

    def _release(self, name: str) -> None:
        self.running.remove(name)
        for block in reversed(self.requests[name].blocks):
            self._drop(block)
