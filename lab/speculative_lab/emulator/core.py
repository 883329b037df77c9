"""The engine core: admits, schedules, drafts, verifies and finishes, one discrete step at a time.

`EngineCore.step(now)` does no I/O and reads no clock: the asyncio `driver` waits for the seconds it returns, tests and
accelerated runs do not. One step does what vLLM's scheduler does: running requests first, then waiting ones in order
of arrival, as long as tokens, seats and KV blocks last; K is looked up by the requests scheduled in this step and holds
for the drafts that the *next* step verifies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from speculative_lab.emulator.acceptance import AcceptanceTable, accepted
from speculative_lab.emulator.batch import Batch, Floats, Ints
from speculative_lab.emulator.budget import verified_drafts
from speculative_lab.emulator.kv import KvPool
from speculative_lab.emulator.requests import Finished, Request
from speculative_lab.emulator.timing import StepTimer

CATCH_UP_TOKENS = 2048
"""That a drafter which was left out computes in one pass of those it has missed (`speculative_unseen`)."""
DraftLengths: TypeAlias = Callable[[int, int], int]
"""K for the next step, where so many requests had tokens in this one, and so many will decode in the next."""
_NO_INTS = np.zeros(0, dtype=np.int64)
_NO_FLOATS = np.zeros(0)


@dataclass(slots=True)
class StepResult:
    """What one step did; counts unless said. Empty steps (nothing to run) have 0 seconds."""

    seconds: float = 0.0
    end: float = 0.0
    """Engine-clock time at which its outputs exist."""
    scheduled: int = 0
    """Requests given tokens."""
    decoded: int = 0
    """Of them those that decoded."""
    complete: int = 0
    """Of them those that leave the step with a token of their own: all but prompts that are not at their end."""
    k: int = 0
    """Drafts per request for the next step."""
    prefill_tokens: int = 0
    context_tokens: int = 0
    """KV tokens read by the decoding requests."""
    inter_token: Floats = field(default_factory=lambda: _NO_FLOATS)
    """Seconds since the newest token, one for each request that gained tokens beyond its first."""
    gained: Ints = field(default_factory=lambda: _NO_INTS)
    """Tokens of each of these requests."""
    streamed: Ints = field(default_factory=lambda: _NO_INTS)
    """1 for those of these requests whose tokens someone reads one by one."""
    first: list[Request] = field(default_factory=list)
    """Requests that got their first token, in the order of `time_to_first`."""
    time_to_first: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    """Prompt tokens of the requests that got their first token."""
    generated_tokens: int = 0
    accepted: Ints = field(default_factory=lambda: _NO_INTS)
    """Accepted drafts of each request that had at least one."""
    offered: Ints = field(default_factory=lambda: _NO_INTS)
    """Drafts scheduled for each decoding request, which vLLM counts as drafted whether it verifies them or not."""
    draft_tokens: int = 0
    """Their sum."""
    verified_tokens: int = 0
    """Of them those that the verifier computed: all, unless it verifies adaptively."""
    behind: bool = False
    """Whether the drafter caught up with what it had missed."""
    preempted: int = 0
    queried_tokens: int = 0
    """Prompt tokens looked up at admission in the prefix cache, which here never hits."""
    finished: list[Finished] = field(default_factory=list)
    progressed: list[tuple[Request, int]] = field(default_factory=list)
    """Streaming requests with the tokens they have now."""

    @property
    def has_output(self) -> bool:
        return self.generated_tokens > 0


@dataclass(frozen=True, slots=True)
class CoreLimits:
    """Capacity and behaviour that do not change while the process lives."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_k: int = 0
    catches_up: bool = False
    """A drafter that is left out need not see prompts either: it computes later what it has missed."""
    keeps_drafts: bool = False
    """Each request keeps what it drafted and had accepted."""
    verifies_adaptively: bool = False
    """Only drafts worth their time are verified (`budget`)."""


class EngineCore:
    """State of one engine. Not thread-safe; time is given by the caller and must not run backwards."""

    def __init__(
        self,
        limits: CoreLimits,
        pool: KvPool,
        timer: StepTimer,
        acceptance: AcceptanceTable,
        lengths: DraftLengths,
        rng: np.random.Generator,
    ) -> None:
        self.lengths = lengths
        """Decides K; may be replaced between steps."""
        self.off = False
        """Whether the step that is planned is off: no drafter runs, unless drafts are verified, or prompts computed
        where it does not catch up."""
        self.rested = 0
        """Steps without a drafter's pass."""
        self.waiting: deque[Request] = deque()
        self.steps = 0
        self.under_way = StepResult()
        """The step that is being computed, or was last."""
        self._limits = limits
        self._pool = pool
        self._timer = timer
        self._acceptance = acceptance
        self._rng = rng
        self._batch = Batch(limits.max_num_seqs)

    @property
    def behind(self) -> int | None:
        """Running requests of which the drafter has missed something; None where it does not catch up."""
        return int(np.count_nonzero(self._batch.unseen)) if self._limits.catches_up else None

    @property
    def running(self) -> int:
        return self._batch.size

    @property
    def busy(self) -> bool:
        return bool(self._batch.size or self.waiting)

    @property
    def kv_usage(self) -> float:
        """Share of KV blocks in use, 0..1."""
        return float(self._batch.blocks.sum()) / self._pool.blocks

    def add(self, request: Request) -> None:
        """Queue a request; it may be scheduled from the next step on."""
        self._acceptance.prepare(request.workload)
        self.waiting.append(request)

    def abort(self, request: Request) -> bool:
        """Take a request out at once, waiting or running; False when it had ended before."""
        if request.done:
            return False
        request.done = True
        if request in self.waiting:
            self.waiting.remove(request)
        else:
            self._batch.remove([self._batch.requests.index(request)])
        return True

    def step(self, now: float) -> StepResult:
        """Run one step that starts at `now`."""
        result = self.under_way = StepResult(end=now)
        if not self.busy:
            return result
        need = self._make_room(result)
        grant = self._schedule(now, need, result)
        self._compute(now, grant, result)
        self.steps += 1
        return result

    def _make_room(self, result: StepResult) -> Ints:
        """Tokens each running request may have in this step; preempts from the tail while KV blocks do not suffice."""
        batch = self._batch
        grant = np.where(batch.todo > 0, batch.todo, 1 + batch.drafts)
        budget = self._limits.max_num_batched_tokens
        if grant.sum() > budget:
            grant = np.clip(budget - (grant.cumsum() - grant), 0, grant)
        held = np.maximum(batch.blocks, self._blocks(batch.context + grant))
        if held.sum() > self._pool.blocks:
            kept = int(held.cumsum().searchsorted(self._pool.blocks, side="right"))
            self._preempt(kept, result)
            grant, held = grant[:kept], held[:kept]
        batch.blocks[:] = held
        return grant

    def _preempt(self, kept: int, result: StepResult) -> None:
        """Send all but the oldest `kept` requests back to the head of the queue; their KV is lost."""
        victims = self._batch.pop_tail(kept)
        for victim in reversed(victims):
            victim.preemptions += 1
            self.waiting.appendleft(victim)
        result.preempted = len(victims)

    def _schedule(self, now: float, grant: Ints, result: StepResult) -> Ints:
        """Admit waiting requests into what is left of seats, tokens and blocks; tokens granted per row."""
        batch, limits = self._batch, self._limits
        budget = limits.max_num_batched_tokens - int(grant.sum())
        free = self._pool.blocks - int(batch.blocks.sum())
        admitted: list[int] = []
        while self.waiting and not result.preempted and batch.size < limits.max_num_seqs and budget > 0:
            request = self.waiting[0]
            chunk = min(request.prompt_tokens + request.generated, budget)
            blocks = int(self._blocks(np.int64(chunk)))
            if blocks > free:
                break
            self.waiting.popleft()
            batch.append(request, blocks)
            if request.scheduled is None:
                request.scheduled = now
                result.queried_tokens += request.prompt_tokens
            budget -= chunk
            free -= blocks
            admitted.append(chunk)
        return np.concatenate((grant, np.array(admitted, dtype=np.int64))) if admitted else grant

    def _compute(self, now: float, grant: Ints, result: StepResult) -> None:
        batch = self._batch
        decodes = ((batch.todo == 0) & (grant > 0)).nonzero()[0]
        offered = grant[decodes] - 1
        prefill = np.where(batch.todo > 0, grant, 0)
        result.scheduled, result.decoded = int(np.count_nonzero(grant)), len(decodes)
        result.prefill_tokens = int(prefill.sum())
        result.complete = result.decoded + int(np.count_nonzero((prefill > 0) & (batch.todo == prefill)))
        tokens = np.zeros(batch.size, dtype=np.int64)
        result.offered, result.draft_tokens = offered, int(offered.sum())
        result.context_tokens = int(batch.context[decodes].sum())
        gained = self._verify(decodes, result)
        tokens[decodes] = gained
        further = (batch.todo == prefill) & (batch.generated + tokens + (prefill > 0) < batch.target)
        result.k = self.lengths(result.scheduled, int(np.count_nonzero(further)))
        context = result.context_tokens / max(len(decodes), 1)
        catches_up = self._limits.catches_up
        prompts = result.prefill_tokens and not catches_up
        rests = self.off and not (result.k or result.draft_tokens or prompts)
        self.rested += rests
        seconds = self._timer.seconds(
            len(decodes), result.k, result.verified_tokens, context, result.prefill_tokens, drafter=not rests
        )
        if rests:
            batch.unseen[decodes] += gained
            batch.unseen += prefill
        elif catches_up and result.k and batch.unseen.any():
            result.behind = True
            seconds += self._catch_up()
        result.seconds = self._timer.noisy(seconds, self._rng)
        result.end = now + result.seconds
        result.inter_token, result.gained = result.end - batch.last_token[decodes], gained
        result.streamed = batch.streams[decodes]
        batch.context[decodes] += gained
        batch.steps[decodes] += 1
        batch.context += prefill
        batch.todo -= prefill
        if result.prefill_tokens:
            self._first_tokens(((prefill > 0) & (batch.todo == 0)).nonzero()[0], tokens, result)
        self._emit(tokens, result)
        self._draft(result.k)

    def _catch_up(self) -> float:
        """The drafter computes what it has missed, as much as one such pass takes; seconds of that pass."""
        batch = self._batch
        before = np.cumsum(batch.unseen) - batch.unseen
        most = min(self._limits.max_num_batched_tokens, CATCH_UP_TOKENS)
        caught = np.clip(most - before, 0, batch.unseen)
        batch.unseen -= caught
        return self._timer.pass_seconds(int(caught.sum()), int(batch.context[caught > 0].sum()))

    def _verify(self, decodes: Ints, result: StepResult) -> Ints:
        """Tokens each decoding request gains: its accepted drafts and one more, cut at its target."""
        batch, offered = self._batch, result.offered
        gained = np.zeros(len(decodes), dtype=np.int64)
        drafted = (offered > 0).nonzero()[0]
        if len(drafted):
            rows = decodes[drafted]
            survival = self._acceptance.survival(
                batch.workload[rows],
                batch.tendency[rows],
                offered[drafted],
                batch.unseen[rows] / np.maximum(batch.context[rows], 1),
            )
            verified = self._within_budget(survival, offered[drafted], result)
            result.accepted = gained[drafted] = np.minimum(accepted(survival, self._rng), verified)
            result.verified_tokens = int(verified.sum())
            if self._limits.keeps_drafts:
                steps = zip(rows.tolist(), offered[drafted].tolist(), result.accepted.tolist(), strict=True)
                for row, drafts, kept in steps:
                    batch.requests[row].drafts.append((drafts, kept))
        return np.asarray(np.minimum(1 + gained, batch.target[decodes] - batch.generated[decodes]))

    def _within_budget(self, survival: Floats, drafts: Ints, result: StepResult) -> Ints:
        """Of `drafts` of each request with drafts, those that are verified."""
        if not self._limits.verifies_adaptively:
            return drafts
        context = result.context_tokens / max(result.decoded, 1)
        budgets = np.arange(result.draft_tokens + 1)
        # Drafting has one price for all budgets: vLLM measured it at the largest K.
        seconds = self._timer.curve(result.decoded, self._limits.max_k, budgets, context, result.prefill_tokens)
        return verified_drafts(survival, drafts, result.complete, seconds)

    def _first_tokens(self, rows: Ints, tokens: Ints, result: StepResult) -> None:
        """Requests whose prefill ended in this step: one token each, the first unless they had been preempted."""
        tokens[rows] = 1
        resumed, streamed = [], []
        for row in rows.tolist():
            request = self._batch.requests[row]
            if request.first_token is None:
                request.first_token = result.end
                result.time_to_first.append(result.end - request.arrival)
                result.first.append(request)
                result.prompt_tokens += request.prompt_tokens
            else:
                resumed.append(result.end - float(self._batch.last_token[row]))
                streamed.append(int(request.streams))
        if resumed:
            result.inter_token = np.concatenate((result.inter_token, np.array(resumed)))
            result.gained = np.concatenate((result.gained, np.ones(len(resumed), dtype=np.int64)))
            result.streamed = np.concatenate((result.streamed, np.array(streamed, dtype=np.int64)))

    def _emit(self, tokens: Ints, result: StepResult) -> None:
        """Book the tokens, tell streams, take out what has ended."""
        batch = self._batch
        gained = tokens > 0
        batch.generated += tokens
        batch.last_token[gained] = result.end
        result.generated_tokens = int(tokens.sum())
        streams = ((batch.streams > 0) & gained).nonzero()[0]
        result.progressed = [(batch.requests[row], int(batch.generated[row])) for row in streams.tolist()]
        ended = (gained & (batch.generated >= batch.target)).nonzero()[0].tolist()
        if ended:
            taken = batch.remove(ended)
            for request in taken:
                request.done = True
            result.finished = [Finished(request, request.reason) for request in taken]

    def _draft(self, k: int) -> None:
        """Drafts made at the end of this step, for every request that decodes in the next."""
        batch = self._batch
        if self._limits.max_k:
            batch.drafts[:] = np.where(batch.todo == 0, self._acceptance.drafted(batch.workload, k, self._rng), 0)

    def _blocks(self, tokens: Ints | np.int64) -> Ints:
        """Blocks for that many tokens and the drafting look-ahead, which is the largest K at every K.

        Never more than the pool has: one request of full length always runs.
        """
        size = self._pool.block_size
        return np.minimum((tokens + self._limits.max_k + size - 1) // size, self._pool.blocks)
