"""What a draft model has not seen while it rested, and how it catches up: from the requests' tokens, in few passes.

Used by `speculative_worker`, in the worker's process. A draft model needs nothing of the verifier but its tokens, so it
may be left out of every step that is off, prompts included: what is missing is computed when drafts are wanted again,
and only for requests that still run. Blocks of the KV cache that hold such tokens are remembered, for the prefix cache
hands them to later requests. Catching up is the drafter's own first pass, as vLLM runs it at K = 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

MOST_TOKENS = 2048
"""Tokens of one catching up: as a piece of a prompt, so that who decodes meanwhile waits no longer than for that."""
_LEAVING = ("SlidingWindow", "ChunkedLocal")
"""Kinds of KV caches that give blocks back which a request no longer looks at: they may be another's by now."""


def why_not(runner: Any) -> str:
    """Why the drafter of `runner` cannot catch up; empty where it can."""
    drafter, groups = runner.drafter, runner.kv_cache_config.kv_cache_groups
    kinds = [spec for group in groups for spec in _kinds(group.kv_cache_spec)]
    hindrances = (
        (runner.speculative_config.method != "draft_model", "it needs the verifier's hidden states"),
        (drafter.net_num_new_slots_per_request != 1, "its first pass takes other inputs"),
        (any(kind.startswith(_LEAVING) for kind in kinds), "its KV cache gives blocks back"),
        (drafter.uses_mrope or drafter.supports_mm_inputs, "it takes more than tokens"),
        (len(groups) != 1, "its KV cache is a group of its own"),
    )
    return next((why for hinders, why in hindrances if hinders), "")


def _kinds(spec: Any) -> list[str]:
    """Class names of a group's KV cache, and of those that it joins."""
    return [type(one).__name__ for one in (spec, *getattr(spec, "kv_cache_specs", {}).values())]


class _Part(NamedTuple):
    """Tokens of one row that are computed: positions [begin, upto)."""

    row: int
    name: str
    begin: int
    upto: int
    ids: list[int]
    whole: bool
    """Nothing of the request is missing after it."""


class Missed(NamedTuple):
    """A pass of the drafter that computes what it has missed."""

    inputs: Mapping[str, Any]
    """Of the drafter's `propose`."""
    said: int
    """A number that another rank has too where it computes the same tokens of the same rows."""
    parts: Sequence[_Part]
    rows: Sequence[tuple[int, str, int, int]]
    """All rows of the step of which something is missing: row, request, first and end of what the step computes."""


class Unseen:
    """Tokens of each request that the drafter has not seen. Every method is called before a pass of `runner`."""

    def __init__(self, runner: Any, torch: Any) -> None:
        self._runner, self._torch = runner, torch
        self._asynchronous = bool(runner.vllm_config.scheduler_config.async_scheduling)
        self._holes: dict[str, tuple[int, int | None]] = {}
        """Request -> first position that is missing, and the first after it that is not; None while off."""
        self._stale: set[int] = set()
        """Blocks of the KV cache in which something is missing."""
        self._sent: dict[str, Sequence[int]] = {}
        """Generated tokens of requests, where the scheduler had to send them."""
        self._lost: set[str] = set()
        """Requests whose missing tokens nobody knows."""
        self.behind = False
        """Whether the newest pass met requests of which something was missing that can be computed."""

    @property
    def requests(self) -> int:
        """Requests of which something is missing."""
        return len(self._holes.keys() | self._lost)

    def rest(self, plan: Any) -> None:
        """The drafter does not run in this step."""
        self.behind = False
        self._forget_ended()
        table, starts, fresh = self._table, self._starts, self._fresh(plan)
        size = table.block_size
        for row, name in enumerate(self._runner.input_batch.req_ids):
            begin, count = int(starts[row]), plan.num_scheduled_tokens[name]
            hole = self._holes.get(name)
            if name in fresh or name in self._lost:
                hole = (self._first_stale(row, begin), None)
            elif hole is None:
                hole = (begin, None)
            elif begin % size and count == 1:
                if hole[1] is not None:
                    self._holes[name] = (hole[0], None)
                    self._stale.add(int(table.block_table.np[row, begin // size]))
                continue
            self._holes[name] = (hole[0], None)
            self._stale.update(self._blocks(row, begin, begin + count))

    def before_pass(self, plan: Any, common: Any, sampling: Any) -> Missed | None:
        """vLLM's own pass of the drafter comes next: what is to be computed before it, where the plan has it catch up.
        Whoever computes that tells `caught_up`."""
        self.behind = False
        self._forget_ended()
        if not self._holes and not self._stale:
            return None
        self._sent.update(getattr(plan, "speculative_ids", None) or {})
        fresh, starts, size, rows = self._fresh(plan), self._starts, self._table.block_size, []
        for row, name in enumerate(self._runner.input_batch.req_ids):
            hole, begin, count = self._holes.get(name), int(starts[row]), plan.num_scheduled_tokens[name]
            if name in fresh:
                first = self._first_stale(row, begin)
                hole = (first, begin) if first < begin else None
            if hole is None:
                self._holes.pop(name, None)
                if name not in self._lost and (count > 1 or begin % size == 0):
                    # Written anew by a drafter that has seen all before it.
                    self._stale.difference_update(self._blocks(row, begin, begin + count))
                continue
            self._holes[name] = hole = (hole[0], max(hole[1] or 0, self._known(row, name, begin)))
            rows.append((row, name, begin, begin + count))
        self.behind = bool(rows)
        parts = self._parts(rows) if getattr(plan, "speculative_catches_up", False) else []
        if parts:
            said = hash(tuple((part.row, part.begin, part.upto) for part in parts)) & (2**62 - 1)
            return Missed(self._inputs(parts, common, sampling), said, parts, rows)
        self._compute_upon_holes(rows)
        return None

    def caught_up(self, missed: Missed) -> None:
        """That pass is over."""
        for part in missed.parts:
            rest = 0 if part.whole else part.upto % self._table.block_size
            self._stale.difference_update(self._blocks(part.row, part.begin, part.upto - rest))
            if part.whole:
                self._holes.pop(part.name)
                self._sent.pop(part.name, None)
                self._lost.discard(part.name)
            else:
                self._holes[part.name] = (part.upto, self._holes[part.name][1])
        self._compute_upon_holes(missed.rows)

    def _compute_upon_holes(self, rows: Sequence[tuple[int, str, int, int]]) -> None:
        """What vLLM's pass computes now of requests that still lack something rests on that."""
        for row, name, begin, end in rows:
            if name in self._holes or name in self._lost:
                self._stale.update(self._blocks(row, begin, end))

    def _known(self, row: int, name: str, begin: int) -> int:
        """Tokens of a row that may be computed: those before this step's whose ids are there."""
        if not self._asynchronous:
            return begin
        return min(begin, int(self._runner.input_batch.num_prompt_tokens[row]) + len(self._sent.get(name, ())))

    def _parts(self, rows: Sequence[tuple[int, str, int, int]]) -> list[_Part]:
        """What one pass has room for, the shortest first, as backends want rows."""
        room = min(int(self._runner.drafter.max_num_tokens), MOST_TOKENS)
        parts: list[_Part] = []
        for row, name, computed, _ in rows:
            first, end = self._holes[name]
            if end is None or end <= first or end < 2:
                self._holes.pop(name)
                self._lost.add(name)
                continue
            begin = min(first, end - 2)  # a pass takes a token and the one after it
            upto = min(end, begin + room)
            if upto - begin < 2:
                break
            ids = self._tokens(row, name, begin, upto)
            if ids is None:
                self._holes.pop(name)
                self._lost.add(name)
                continue
            room -= upto - begin
            parts.append(_Part(row, name, begin, upto, ids, upto == computed))
        return sorted(parts, key=lambda part: len(part.ids))

    def _inputs(self, parts: Sequence[_Part], common: Any, sampling: Any) -> Mapping[str, Any]:
        """Of a pass of the drafter over tokens [begin, upto) of each request, for its KV cache alone."""
        torch, device = self._torch, self._runner.device
        # The pass appends the token that follows to each request's: the last of ours.
        ends = [part.upto - 1 for part in parts]
        lengths = [len(part.ids) - 1 for part in parts]
        bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        ids = [one for part in parts for one in part.ids[:-1]]
        following = [part.ids[-1] for part in parts]
        positions = [place for part in parts for place in range(part.begin, part.upto - 1)]
        rows = torch.tensor([part.row for part in parts], device=device)
        lasting = torch.tensor(ends, dtype=torch.int32)
        attention = type(common)(
            query_start_loc=bounds.to(device),
            query_start_loc_cpu=bounds,
            seq_lens=lasting.to(device),
            seq_lens_cpu_upper_bound=lasting + 1,
            num_reqs=len(parts),
            num_actual_tokens=len(ids),
            max_query_len=max(lengths),
            max_seq_len=max(ends),
            block_table_tensor=common.block_table_tensor[rows],
            slot_mapping=common.slot_mapping,  # the pass makes its own
            causal=True,
        )
        return {
            "num_speculative_tokens": 0,
            "target_token_ids": torch.tensor(ids, dtype=torch.int32, device=device),
            "target_positions": torch.tensor(positions, device=device),
            "target_hidden_states": None,
            "next_token_ids": torch.tensor(following, dtype=torch.int32, device=device),
            "token_indices_to_sample": None,
            "sampling_metadata": sampling,
            "common_attn_metadata": attention,
        }

    def _tokens(self, row: int, name: str, begin: int, end: int) -> list[int] | None:
        """Token ids at these positions; None where one is not known. With asynchronous scheduling the runner has those
        of the prompt alone: what stands behind it may be another request's."""
        batch = self._runner.input_batch
        prompt = int(batch.num_prompt_tokens[row]) if self._asynchronous else end
        sent = self._sent.get(name, ())
        if end > prompt + len(sent):
            return None
        given: list[int] = batch.token_ids_cpu[row, begin : max(begin, min(end, prompt))].tolist()
        known = [*given, *sent[max(0, begin - prompt) : max(0, end - prompt)]]
        return known if min(known) >= 0 else None  # a prompt may have come as embeddings

    def _fresh(self, plan: Any) -> set[str]:
        """Requests that join, of whose blocks some may come out of the prefix cache: looked at while some are stale."""
        if not self._stale:
            return set()
        return {new.req_id for new in plan.scheduled_new_reqs} | set(plan.scheduled_cached_reqs.resumed_req_ids)

    def _first_stale(self, row: int, end: int) -> int:
        """First position below `end` in a block in which something is missing; `end` where there is none."""
        if not self._stale:
            return end
        places: Iterator[int] = (n for n, block in enumerate(self._blocks(row, 0, end)) if block in self._stale)
        return min(end, next(places, end) * int(self._table.block_size))

    def _blocks(self, row: int, begin: int, end: int) -> list[int]:
        """Blocks that hold positions [begin, end) of a row."""
        size = self._table.block_size
        blocks: list[int] = self._table.block_table.np[row, begin // size : -(-end // size)].tolist()
        return blocks

    def _forget_ended(self) -> None:
        """Not by the plan's own list of them: vLLM tells some with steps that compute nothing."""
        alive = self._runner.requests
        for known in (self._holes, self._sent):
            for name in [name for name in known if name not in alive]:
                del known[name]
        self._lost.intersection_update(alive)

    @property
    def _table(self) -> Any:
        return self._runner.input_batch.block_table[0]

    @property
    def _starts(self) -> Any:
        """Tokens of each row that were computed before this step."""
        return self._runner.input_batch.num_computed_tokens_cpu


def made(runner: Any, torch: Any) -> Unseen | None:
    """None where the drafter cannot catch up, or where that cannot be told."""
    with suppress(Exception):
        if not why_not(runner):
            return Unseen(runner, torch)
    return None
