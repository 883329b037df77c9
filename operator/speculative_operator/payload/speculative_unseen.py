"""What a draft model has not seen while it was left out, and how it catches up: from the tokens on the device.

Used by `speculative_worker`, in the worker's process, on vLLM's V2 model runner. A draft model needs nothing of the
verifier but its tokens, so it may be left out of every step that is off, prompts included: what is missing is computed
when drafts are wanted again, and only for requests that still run. Blocks of the KV cache that hold such tokens are
remembered, for the prefix cache hands them to later requests. Catching up is the speculator's own first pass. Positions
and blocks come from the scheduler's outputs, which all ranks get, so that nothing waits for the device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

MOST_TOKENS = 2048
"""Tokens of one catching up: as a piece of a prompt, so that who decodes meanwhile waits no longer than for that."""
_LEAVING = ("SlidingWindow", "ChunkedLocal")
"""Kinds of KV caches that give blocks back which a request no longer looks at: they may be another's by now."""


def why_not(runner: Any) -> str:
    """Why the draft model of `runner` cannot catch up; empty where it can."""
    groups = runner.kv_cache_config.kv_cache_groups
    specs = [group.kv_cache_spec for group in groups]
    specs += [joined for spec in specs for joined in getattr(spec, "kv_cache_specs", {}).values()]
    hindrances = (
        (any(type(spec).__name__.startswith(_LEAVING) for spec in specs), "its KV cache gives blocks back"),
        (runner.model_config.uses_mrope or runner.speculator.supports_mm_inputs, "it takes more than tokens"),
        (len(groups) != 1, "its KV cache is a group of its own"),
    )
    return next((why for hinders, why in hindrances if hinders), "")


class _Part(NamedTuple):
    """Tokens of one request that are computed: positions [begin, upto) of the runner's `row`."""

    name: str
    row: int
    begin: int
    upto: int
    whole: bool
    """Nothing of the request is missing after it."""


class Missed(NamedTuple):
    """A pass of the draft model that computes what it has missed."""

    parts: Sequence[_Part]
    said: int
    """A number that another rank has too where it computes the same tokens of the same rows."""
    batch: Any
    """The requests and tokens of the pass, in vLLM's form."""
    following: Any
    """The token after them, by the runner's rows."""
    sampling: Sequence[Any]
    """What the pass samples by, which nobody reads."""


class Unseen:
    """What the draft model has not seen of each request. Every method is called by the worker's thread."""

    def __init__(self, runner: Any, torch: Any) -> None:
        self._runner, self._torch = runner, torch
        self._size = int(runner.kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size)
        self._in_flight = int(runner.speculator.num_speculative_steps)
        """Drafts of the step before, of which vLLM may not know yet how many were rejected: positions that it tells of
        such a request are too high by so many at most."""
        self._holes: dict[str, int] = {}
        """Request -> the first position that is missing."""
        self._blocks: dict[str, list[int]] = {}
        """Request -> its blocks of the KV cache."""
        self._stale: set[int] = set()
        """Blocks in which something is missing and that no request with a hole holds."""
        self._joined: dict[str, int] = {}
        """Request that joins in the step that runs -> how many of its blocks the prefix cache gave it. vLLM gives them
        from when they are planned on: another request may compute them in the same step."""
        self._drafted: Iterable[str] = ()
        self._drafting: Iterable[str] = ()
        """Requests that verify drafts in the step before and in the one that runs."""
        self.behind = False
        """Whether the newest pass met requests of which something was missing."""

    @property
    def requests(self) -> int:
        """Requests of which something is missing."""
        return len(self._holes)

    def learn(self, plan: Any) -> None:
        """A step begins: which requests end and join, and which blocks they are given. Called before vLLM's own."""
        self.behind = False
        self._drafted, self._drafting = self._drafting, plan.scheduled_spec_decode_tokens
        for name in (*plan.finished_req_ids, *(plan.preempted_req_ids or ())):
            self._forget(name)
        copies, news, known = plan.kv_cache_block_copies, plan.scheduled_new_reqs, plan.scheduled_cached_reqs
        if copies:
            stale = self._lacking()
            self._stale.difference_update(copy for _, copy in copies)
            self._stale.update(copy for source, copy in copies if source in stale)
        for name, blocks in zip(known.req_ids, known.new_block_ids):  # noqa: B905  (Python 3.9 has no strict zip)
            if blocks:
                self._blocks[name].extend(blocks[0])
                self._stale.difference_update(blocks[0])
        self._joined.clear()
        for new in news:
            self._forget(new.req_id)
            self._blocks[new.req_id], cached = list(new.block_ids[0]), -(-int(new.num_computed_tokens) // self._size)
            self._stale.difference_update(self._blocks[new.req_id][cached:])
            self._joined[new.req_id] = cached
        if self._joined:
            self._meet(self._lacking())

    def _meet(self, stale: Collection[int]) -> None:
        """Requests that join in this step miss what is missing in the blocks that the prefix cache gave them."""
        for name, cached in self._joined.items() if stale else ():
            blocks = enumerate(self._blocks[name][:cached])
            first = next((place * self._size for place, block in blocks if block in stale), None)
            if first is not None:
                self._holes[name] = min(first, self._holes.get(name, first))

    def _forget(self, name: str) -> None:
        """The request is over or preempted; its blocks may stay in the prefix cache."""
        if name in self._holes:
            self._stale.update(self._missing(name))
            del self._holes[name]
        self._blocks.pop(name, None)

    def _missing(self, name: str) -> list[int]:
        """Blocks of a request in which something is missing."""
        return self._blocks[name][self._holes[name] // self._size :]

    def _lacking(self) -> set[int]:
        """Blocks in which something is missing."""
        return self._stale.union(*map(self._missing, self._holes))

    def rest(self, batch: Any) -> None:
        """The draft model does not run in the step of `batch`, vLLM's."""
        holes, starts = self._holes, batch.num_computed_tokens_np
        for place, name in enumerate(batch.req_ids):
            if name not in holes:
                holes[name] = max(0, int(starts[place]) - self._in_flight)
        self._meet(self._written(batch))  # joining maybe with blocks that another computes in this very step

    def _written(self, batch: Any) -> set[int]:
        """Blocks that requests compute in the step of `batch`; empty where none joins, who alone may have them too."""
        starts, rows = batch.num_computed_tokens_np, enumerate(batch.req_ids) if self._joined else ()
        return {block for place, name in rows for block in self._blocks[name][int(starts[place]) // self._size :]}

    def missed(self, batch: Any, given: Mapping[str, Any] | None) -> Missed | None:
        """vLLM's own pass over `batch` comes next: what is to be computed before it, if the plan wants that. `given`
        are the arguments of that pass then. Whatever may fail in one rank alone is done here."""
        places = [place for place, name in enumerate(batch.req_ids) if name in self._holes] if self._holes else []
        self.behind = bool(places)
        parts = list(self._parts(batch, places)) if given is not None else []
        if given is None or not parts:
            return None
        said = hash(tuple((part.row, part.begin, part.upto) for part in parts)) & (2**62 - 1)
        return Missed(parts, said, *self._inputs(parts, batch, given))

    def _parts(self, batch: Any, places: Sequence[int]) -> Iterator[_Part]:
        """What one pass has room for."""
        room, written = min(int(self._runner.speculator.max_num_tokens), MOST_TOKENS), self._written(batch)
        for place in places:
            name, end = batch.req_ids[place], int(batch.num_computed_tokens_np[place])
            if written.intersection(self._blocks[name][: self._joined.get(name, 0)]):
                continue  # what comes before the hole is computed after this pass, by another
            if name in self._drafted:
                end -= self._in_flight
            if end < 2:
                continue  # a pass takes tokens and the one after them: a later one will
            if end <= self._holes[name]:
                del self._holes[name]  # nothing lies before what this step computes
                continue
            begin = min(self._holes[name], end - 2)
            upto = min(end, begin + room)
            if upto - begin < 2:
                return
            room -= upto - begin
            yield _Part(name, int(batch.idx_mapping_np[place]), begin, upto, upto == end)

    def _inputs(self, parts: Sequence[_Part], batch: Any, given: Mapping[str, Any]) -> tuple[Any, Any, Sequence[Any]]:
        """Of a pass over tokens [begin, upto) of each request: the last is the one that vLLM's pass appends."""
        torch, device = self._torch, batch.input_ids.device
        known = self._runner.req_states.all_token_ids.gpu
        lengths = [part.upto - part.begin - 1 for part in parts]
        bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        rows, ends = torch.tensor([part.row for part in parts]), torch.tensor([part.upto - 1 for part in parts])
        places = torch.cat([torch.arange(part.begin, part.upto - 1) for part in parts]).to(device)
        of_tokens = torch.repeat_interleave(rows, torch.tensor(lengths)).to(device)
        mapping = rows.to(device=device, dtype=batch.idx_mapping.dtype)
        following = given["last_sampled"].clone()
        following.view(-1)[rows.to(device)] = known[rows.to(device), ends.to(device)].to(following.dtype)
        pass_over = dataclasses.replace(
            batch,
            req_ids=[part.name for part in parts],
            num_reqs=len(parts),
            num_reqs_after_padding=len(parts),
            idx_mapping=mapping,
            idx_mapping_np=rows.numpy(),
            num_scheduled_tokens=bounds.diff().numpy(),
            num_tokens=len(places),
            num_tokens_after_padding=len(places),
            input_ids=known[of_tokens, places].to(batch.input_ids.dtype),
            positions=places.to(batch.positions.dtype),
            query_start_loc=bounds.to(device),
            query_start_loc_np=bounds.numpy(),
            seq_lens=ends.to(device=device, dtype=torch.int32),
            seq_lens_cpu_upper_bound=(ends + 1).to(torch.int32),
        )
        return pass_over, following, (given["temperature"], given["seeds"])

    def compute(self, missed: Missed, batch: Any) -> None:
        """The pass, for the KV cache alone; vLLM's own over `batch` comes next."""
        tables, speculator, count = self._runner.block_tables, self._runner.speculator, len(missed.parts)
        accepted = self._torch.zeros(count, dtype=self._torch.int32, device=batch.input_ids.device)
        try:
            tables.gather_block_tables(missed.batch.idx_mapping, num_reqs_padded=count)
            speculator._copy_request_inputs(count, missed.batch.idx_mapping, *missed.sampling)
            speculator._prefill(missed.batch, accepted, missed.following, count, False, None)
        finally:
            tables.gather_block_tables(batch.idx_mapping, num_reqs_padded=batch.num_reqs_after_padding)
        for part in missed.parts:
            self._stale.difference_update(self._blocks[part.name][part.begin // self._size : part.upto // self._size])
            if part.whole:
                del self._holes[part.name]
            else:
                self._holes[part.name] = part.upto


def made(runner: Any, torch: Any) -> Unseen | None:
    """None where the draft model cannot catch up, or where that cannot be told."""
    with suppress(Exception):
        if not why_not(runner):
            return Unseen(runner, torch)
    return None
