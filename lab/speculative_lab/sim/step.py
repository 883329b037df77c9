"""One step of one replica: what is scheduled, how long it takes, what comes out of it. Compiled; called by `kernel`.

A step begins: running requests first, decoding ones before prompts, then waiting ones in order of arrival, as long as
tokens, seats and KV blocks last; K is looked up by the requests scheduled (`plugin` says how where a plug-in runs) and
holds for the drafts that the next step verifies. It ends a step time later: drafts are verified, tokens emitted,
counters moved.

Records are handed to the functions that loops call, never whole arrays: counting references to arrays for every request
took half of the time.
"""

from __future__ import annotations

import math

import numpy as np

from speculative_lab.sim import layout as at
from speculative_lab.sim.compiled import compiled
from speculative_lab.sim.latencies import observe, per_token
from speculative_lab.sim.plugin import Calls
from speculative_lab.sim.replica import Cells, Floats, Ints, Physics, Record, Records, State

_LONGEST_RUN = 1_000_000_000
_TICK = 1.0 / 2**53


@compiled
def _uniform(whole: Record) -> float:
    """A number in (0, 1]: Marsaglia's xorshift, 64 bits, shifts 13, 7, 17 (Journal of Statistical Software 8/14)."""
    x = whole.random
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    whole.random = x
    return (int(x >> np.uint64(11)) + 1) * _TICK


@compiled
def _normal(whole: Record) -> float:
    """A standard normal number (Box and Muller)."""
    return math.sqrt(-2.0 * math.log(_uniform(whole))) * math.cos(2.0 * math.pi * _uniform(whole))


@compiled
def run_length(request: Record, whole: Record) -> int:
    if whole.factor < 1.0 and _uniform(whole) > whole.factor:
        return 0
    inverse = request.long if _uniform(whole) <= request.mix else request.short
    if inverse == 0.0:
        return 0
    length = math.log(_uniform(whole)) * inverse
    return int(length) if length < _LONGEST_RUN else _LONGEST_RUN


@compiled
def _slots(tokens: int, own: Record, limits: Record) -> int:
    """KV tokens to reserve for that many and the drafts; at most the pool, so that one request always runs."""
    wanted = tokens if own.off else tokens + limits.ahead
    slots: int = min((wanted + limits.block - 1) // limits.block * limits.block, own.pool)
    return slots


@compiled
def count_alive(whole: Record, now: float, change: int) -> None:
    whole.alive_seconds += whole.alive * (now - whole.since)
    whole.since = now
    whole.alive += change


@compiled
def _grant(request: Record, own: Record, limits: Record, budget: int) -> int:
    """Give a running request its tokens of the step, and KV for them; how many."""
    decodes = request.todo == 0
    grant: int = min(1 + request.drafts if decodes else request.todo, budget)
    request.grant = grant
    if grant == 0:
        return 0
    own.scheduled += 1
    if decodes:
        own.decoding += 1
        own.tokens += grant
        own.attended += request.context
    else:
        own.prefill += grant
        own.ending += grant == request.todo
    if request.context + grant + limits.ahead > request.held:
        held = max(_slots(request.context + grant, own, limits), request.held)
        own.used += held - request.held
        request.held = held
    return grant


@compiled
def _preempt(request: Record, own: Record) -> None:
    """Take the KV of a running request and what it was granted; it must compute everything again."""
    if request.grant > 0:
        own.scheduled -= 1
        if request.todo == 0:
            own.decoding -= 1
            own.tokens -= request.grant
            own.attended -= request.context
        else:
            own.prefill -= request.grant
            own.ending -= request.grant == request.todo
    own.used -= request.held
    request.todo = request.prompt + request.generated
    request.context = 0
    request.drafts = 0
    request.held = 0
    request.grant = 0


@compiled
def _grant_running(own: Record, running: Ints, requests: Records, limits: Record) -> int:
    """Tokens for every running request, decoding ones first. The budget left, -1 when any had to be preempted."""
    budget: int = limits.budget
    prompts = 0
    for place in range(own.active):
        request = requests[running[place]]
        if request.todo == 0:
            budget -= _grant(request, own, limits, budget)
        else:
            prompts += 1
    if prompts:
        for place in range(own.active):
            request = requests[running[place]]
            if request.todo > 0:
                budget -= _grant(request, own, limits, budget)
    if own.used <= own.pool:
        return budget
    while own.used > own.pool and own.active > 1:
        own.active -= 1
        row = running[own.active]
        _preempt(requests[row], own)
        requests[row].next = own.head
        own.tail = row if own.head < 0 else own.tail
        own.head = row
        own.waiting += 1
    return -1


@compiled
def _admit(own: Record, running: Ints, requests: Records, limits: Record, budget: int) -> None:
    """Start waiting requests, in order, as long as seats, tokens and blocks last."""
    while own.head >= 0 and own.active < limits.seats and budget > 0:
        row = own.head
        request = requests[row]
        chunk = min(request.todo, budget)
        held = _slots(chunk, own, limits)
        if own.used + held > own.pool:
            return
        own.head = request.next
        own.waiting -= 1
        own.used += held
        request.held = held
        request.grant = chunk
        budget -= chunk
        own.scheduled += 1
        own.prefill += chunk
        own.ending += chunk == request.todo
        running[own.active] = row
        own.active += 1


@compiled
def _seconds(own: Record, physics: Physics) -> float:
    """Expected seconds of the step."""
    rates, k = physics.rates[0], own.next_k
    seconds: float = physics.decoded[own.off, own.tokens] + rates.token * own.prefill + rates.kv * own.attended
    if rates.experts > 0.0:
        seconds += rates.experts * (1.0 - rates.missed ** (own.tokens + own.prefill))
    if own.off == 0:
        seconds += physics.drafting[own.decoding, k]
        seconds += physics.by_k[0, k] * own.attended + physics.by_k[1, k] * own.prefill
        seconds *= physics.by_k[2, own.k]
    return seconds


@compiled
def _crowded(now: float, replica: int, rates: Record) -> bool:
    """Whether a neighbour is at work in the spell that holds `now`, the same for every policy: drawn by a hash of spell
    and replica, the fraction of a large sine."""
    drawn = math.sin(12.9898 * math.floor(now / rates.spell) + 78.233 * (replica + 1)) * 43758.5453
    busy: bool = drawn - math.floor(drawn) < rates.crowd
    return busy


@compiled
def _clear(own: Record) -> None:
    """Forget the step that ended."""
    own.scheduled = own.decoding = own.ending = own.tokens = own.attended = own.prefill = 0
    own.request_steps = own.first_tokens = own.prompts = own.generation = own.draft_tokens = own.finished = 0
    own.step_seconds = own.first_seconds = 0.0


@compiled
def begin(state: State, replica: int, physics: Physics, now: float, plugin: Calls) -> None:
    """Schedule a step and start it, if there is anything to run."""
    own, limits = state.replicas[replica], physics.limits[0]
    _clear(own)
    running, size = state.running[replica], own.active
    budget = _grant_running(own, running, state.requests, limits)
    state.counters[replica, at.PREEMPTIONS] += size - own.active
    if budget >= 0:
        _admit(own, running, state.requests, limits, budget)
    if own.scheduled == 0:
        return
    own.k = own.next_k
    if own.off:
        own.next_k = 0
    elif state.whole[0].plugged:
        own.next_k = plugin.k_for(replica, int(own.decoding + own.ending))
    else:
        own.next_k = state.tables[replica, own.scheduled]
    seconds, sigma = _seconds(own, physics), physics.rates[0].sigma
    if sigma > 0.0:
        seconds *= math.exp(sigma * _normal(state.whole[0]) - 0.5 * sigma * sigma)
    if physics.rates[0].crowd > 0.0 and _crowded(now, replica, physics.rates[0]):
        seconds *= physics.rates[0].crowded
    own.started = now
    own.clock = now + seconds


@compiled
def _verify(request: Record, own: Record, whole: Record) -> int:
    """Tokens that a decoding request gains, before its target cuts them."""
    drafts, left = request.grant - 1, request.run
    if drafts == 0 and request.share < 1.0:
        return 1  # nothing was looked up: the run of what a look-up would find goes on
    accepted: int = min(drafts, left)
    request.run = left - drafts - 1 if left > drafts else run_length(request, whole)
    if drafts > 0:
        own.draft_tokens += drafts
        request.accepted = accepted
    return 1 + accepted


@compiled
def _gain(request: Record, own: Record, whole: Record) -> int:
    """End a request's part of the step; tokens it gained."""
    gained: int = 1
    request.accepted = -1
    if request.todo == 0:
        gained = min(_verify(request, own, whole), request.target - request.generated)
        request.context += gained
    else:
        request.context += request.grant
        request.todo -= request.grant
        if request.todo > 0:
            return 0
    if request.first < 0.0:
        request.first = own.clock
        own.first_tokens += 1
        own.first_seconds += own.clock - request.queued
        own.prompts += request.prompt
    else:
        own.request_steps += 1
        own.step_seconds += own.clock - request.last
    request.last = own.clock
    request.generated += gained
    own.generation += gained
    return gained


@compiled
def _end_request(request: Record, own: Record, whole: Record, entry: Record) -> None:
    entry.end = own.clock
    entry.arrival = request.arrival
    entry.first = request.first
    entry.last = request.last
    entry.tokens = request.generated
    entry.row = request.row
    own.used -= request.held
    request.next = whole.free
    own.finished += 1
    count_alive(whole, own.clock, -1)


@compiled
def finish(state: State, replica: int, tally: Floats, plugin: Calls) -> None:
    """End the step under way. `tally` is scratch: request-steps by drafts accepted."""
    own, whole, requests = state.replicas[replica], state.whole[0], state.requests
    running, kept = state.running[replica], 0
    tally[:] = 0.0
    for place in range(own.active):
        row = running[place]
        request = requests[row]
        if request.grant > 0:
            waited = request.first < 0.0
            gained = _gain(request, own, whole)
            if waited and gained > 0:
                observe(state.latencies[replica, at.TTFT], at.TTFT_BOUNDS, own.clock - request.queued)
            request.grant = 0
            if request.accepted >= 0:
                tally[request.accepted] += 1
            if gained > 0 and request.generated >= request.target:
                observe(state.latencies[replica, at.TPOT], at.TPOT_BOUNDS, per_token(request))
                _end_request(request, own, whole, state.ended[whole.ended])
                whole.free = row
                whole.ended += 1
                continue
        drafts = request.todo == 0 and (request.share >= 1.0 or _uniform(whole) <= request.share)
        request.drafts = own.next_k if drafts else 0
        running[kept] = row
        kept += 1
    own.active = kept
    whole.tokens += own.generation
    drafted, accepted = _book(own, tally, state.counters[replica])
    if state.log.shape[1] > 0:
        _log(own, tally, drafted, accepted, state.log[replica, own.logged % state.log.shape[1]])
    if state.cells.shape[1] > 0 and own.generation > 0:
        _meter(own, tally, drafted, state.cells[replica], state.drafts[replica])
    busy = own.active > 0 or own.head >= 0
    if whole.plugged and own.generation > 0 and (whole.trying or not busy):
        _tell(own, replica, busy, plugin)
    own.clock = np.inf


@compiled
def _book(own: Record, tally: Floats, counters: Floats) -> tuple[float, float]:
    """Add the step to the counters; its requests that verified drafts, and their accepted drafts."""
    drafted, accepted = 0.0, 0.0
    for place in range(len(tally)):
        drafted += tally[place]
        accepted += place * tally[place]
        counters[at.BY_ACCEPTED + place] += tally[place]
    if own.generation > 0:
        counters[at.STEPS] += 1
        counters[at.STEP_TOKENS] += own.prompts + own.generation
    counters[at.REQUEST_STEPS] += own.request_steps
    counters[at.STEP_SECONDS] += own.step_seconds
    counters[at.FIRST_TOKENS] += own.first_tokens
    counters[at.FIRST_SECONDS] += own.first_seconds
    counters[at.GENERATION] += own.generation
    counters[at.PROMPTS] += own.prompts
    counters[at.FINISHED] += own.finished
    counters[at.DRAFTED] += drafted
    counters[at.DRAFT_TOKENS] += own.draft_tokens
    counters[at.ACCEPTED] += accepted
    counters[at.BUSY_SECONDS] += own.clock - own.started
    return drafted, accepted


@compiled
def _verified(own: Record) -> int:
    """K that a step counts for: that of the drafts which it verified, 0 where prompts alone ran."""
    k: int = own.k if own.decoding > 0 else 0
    return k


@compiled
def _tell(own: Record, replica: int, busy: bool, plugin: Calls) -> None:
    """Hand the step to the plug-in's blocks."""
    k, seconds = int(own.k), float(own.clock - own.started)
    counts = int(own.decoding + own.ending), int(own.scheduled), seconds, int(own.generation), int(own.prefill)
    plugin.count(replica, k, *counts, int(busy))


@compiled
def _meter(own: Record, tally: Floats, drafted: float, cells: Cells, drafts: Cells) -> None:
    """Add the step to what a payload in the engine counts: by the K verified, none where prompts alone ran."""
    k = _verified(own)
    bucket = 0
    while 1 << bucket < own.scheduled and bucket < at.BUCKETS - 1:
        bucket += 1
    cell = cells[k, bucket]
    cell[at.CELL_STEPS] += 1
    cell[at.CELL_SECONDS] += own.clock - own.started
    cell[at.CELL_REQUESTS] += own.scheduled
    cell[at.CELL_TOKENS] += own.generation
    cell[at.CELL_PREFILL] += own.prefill
    reached = drafted
    for position in range(k):
        drafts[k, position, 0] += drafted
        reached -= tally[position]
        drafts[k, position, 1] += reached


@compiled
def _log(own: Record, tally: Floats, drafted: float, accepted: float, entry: Floats) -> None:
    entry[at.LOG_END] = own.clock
    entry[at.LOG_SECONDS] = own.clock - own.started
    entry[at.LOG_BATCH] = own.decoding
    entry[at.LOG_SCHEDULED] = own.scheduled
    entry[at.LOG_K] = own.k
    entry[at.LOG_NEXT_K] = own.next_k
    entry[at.LOG_DRAFTED] = drafted
    entry[at.LOG_DRAFT_TOKENS] = own.draft_tokens
    entry[at.LOG_ACCEPTED] = accepted
    entry[at.LOG_EMITTED] = own.generation
    entry[at.LOG_CONTEXT] = own.attended
    entry[at.LOG_PREFILL] = own.prefill
    entry[at.LOG_WAITING] = own.waiting
    entry[at.LOG_SAMPLED] = own.decoding + own.ending
    for place in range(len(tally)):
        entry[at.LOG_BY_ACCEPTED + place] = tally[place]
    own.logged += 1
