"""The compiled step loop of the simulator: everything that happens once a step or once a request of a step.

Called by `deployment`, the only one that may import this module (it needs numba). The functions are plain Python, too:
with NUMBA_DISABLE_JIT=1 the same seed gives the same run. Compiled code is cached beside this file or, where that
cannot be written, in the user's cache folder; the cache looks at this file alone, so touch it after editing `layout`.

A step begins (`_begin`): running requests first, decoding ones before prompts, then waiting ones in order of arrival,
as long as tokens, seats and KV blocks last; K is looked up by the requests scheduled and holds for the drafts that the
next step verifies. It ends (`_finish`) a step time later: drafts are verified, tokens emitted, counters moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from speculative_operator.sim import layout as at

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_RUN = 1 << 30


def _compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Compile on first use, cached on disk; where no folder can be written, for this process only."""
    try:
        jitted: Callable[P, T] = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:
        jitted = numba.njit(error_model="numpy")(function)
    return jitted


class Physics(NamedTuple):
    """What a step costs, in seconds, tabulated from a `Plant`. First index: 0 with drafter, 1 without."""

    decoded: Floats
    """[2, tokens]: fixed time and decoded tokens, staircases included."""
    drafting: Floats
    """[decoding requests, K]"""
    draft_kv: Floats
    """[K] per KV token of the decoding requests"""
    draft_prefill: Floats
    """[K] per prompt token"""
    factor: Floats
    """[K] on the whole step; K of the drafts that it verifies"""
    rates: Floats
    """per prompt token, per KV token, all experts, share of experts that one token misses, log-sd of the noise"""


class State(NamedTuple):
    """All that changes while the deployment runs; places in `layout`. R replicas, M seats, Q request rows."""

    whole_ints: Ints
    whole_floats: Floats
    replica_ints: Ints
    replica_floats: Floats
    counters: Floats
    running: Ints
    """[R, M] rows of the running requests, in order of admission"""
    request_ints: Ints
    request_floats: Floats
    tables: Ints
    """[R, M + 1] K by scheduled requests"""
    ended: Floats
    log: Floats
    """[R, ring, columns]"""


class Source(NamedTuple):
    """The workload as arrays, one row per request (open loop) or per request to draw (closed loop)."""

    arrival: Floats
    prompt: Ints
    output: Ints
    draws: Floats
    """[rows, 4] SHARE, MIX, LONG, SHORT of `layout`, the request's own random effect included"""


@_compiled
def _run_length(rng: np.random.Generator, request: Floats, factor: float) -> int:
    if factor < 1.0 and rng.random() >= factor:
        return 0
    inverse = request[at.LONG] if rng.random() < request[at.MIX] else request[at.SHORT]
    if inverse == 0.0:
        return 0
    length = math.log(1.0 - rng.random()) * inverse
    return int(length) if length < _LONGEST_RUN else _LONGEST_RUN


@_compiled
def _push(state: State, replica: int, row: int) -> None:
    """Queue a request at the end of a replica's line."""
    line = state.replica_ints[replica]
    state.request_ints[row, at.NEXT] = -1
    if line[at.HEAD] < 0:
        line[at.HEAD] = row
    else:
        state.request_ints[line[at.TAIL], at.NEXT] = row
    line[at.TAIL] = row
    line[at.WAITING] += 1


@_compiled
def _route(state: State, row: int) -> None:
    """Hand a request to a ready replica: the one with the fewest requests, or the next in turn; else to the router."""
    whole, replicas = state.whole_ints, state.replica_ints
    count, best, fewest = replicas.shape[0], -1, 0
    for offset in range(count):
        replica = (whole[at.TURN] + offset) % count
        if replicas[replica, at.READY]:
            load = 0 if whole[at.ROUND_ROBIN] else replicas[replica, at.SIZE] + replicas[replica, at.WAITING]
            if best < 0 or load < fewest:
                best, fewest = replica, load
    if best >= 0:
        whole[at.TURN] = (best + 1) % count
        _push(state, best, row)
        return
    state.request_ints[row, at.NEXT] = -1
    if whole[at.ROUTER_HEAD] < 0:
        whole[at.ROUTER_HEAD] = row
    else:
        state.request_ints[whole[at.ROUTER_TAIL], at.NEXT] = row
    whole[at.ROUTER_TAIL] = row


@_compiled
def _flush_router(state: State) -> None:
    whole = state.whole_ints
    row = whole[at.ROUTER_HEAD]
    if row < 0 or not state.replica_ints[:, at.READY].any():
        return
    whole[at.ROUTER_HEAD] = -1
    while row >= 0:
        behind = state.request_ints[row, at.NEXT]
        _route(state, row)
        row = behind


@_compiled
def _count_alive(state: State, now: float, change: int) -> None:
    floats, whole = state.whole_floats, state.whole_ints
    floats[at.ALIVE_SECONDS] += whole[at.ALIVE] * (now - floats[at.SINCE])
    floats[at.SINCE] = now
    whole[at.ALIVE] += change


@_compiled
def _issue(state: State, source: Source, rng: np.random.Generator, origin: int, now: float) -> None:
    """A new request made from row `origin` of the workload; a free request row must be there."""
    row = state.whole_ints[at.FREE]
    ints, floats = state.request_ints[row], state.request_floats[row]
    state.whole_ints[at.FREE] = ints[at.NEXT]
    ints[at.PROMPT] = source.prompt[origin]
    ints[at.TARGET] = source.output[origin]
    ints[at.GENERATED] = 0
    ints[at.TODO] = source.prompt[origin]
    ints[at.CONTEXT] = 0
    ints[at.DRAFTS] = 0
    ints[at.HELD] = 0
    ints[at.GRANT] = 0
    ints[at.ROW] = origin
    floats[at.ARRIVAL] = now
    floats[at.FIRST] = -1.0
    floats[at.LAST] = now
    for place in range(4):
        floats[at.SHARE + place] = source.draws[origin, place]
    ints[at.RUN] = _run_length(rng, floats, state.whole_floats[at.FACTOR])
    _count_alive(state, now, 1)
    _route(state, row)


@_compiled
def _refill(state: State, source: Source, rng: np.random.Generator, now: float) -> None:
    """Closed loop: new requests until there are as many as wanted."""
    whole = state.whole_ints
    while whole[at.ALIVE] < whole[at.WANTED]:
        origin = whole[at.POOL_NEXT]
        whole[at.POOL_NEXT] = origin + 1 if origin + 1 < whole[at.POOL_STOP] else whole[at.POOL_FIRST]
        _issue(state, source, rng, origin, now)


@_compiled
def _reserve(state: State, own: Ints, ints: Ints, tokens: int, limits: Ints) -> None:
    """Reserve KV for that many tokens and the drafts' slots; at most the pool, so that one request always runs."""
    slots = tokens + (0 if own[at.OFF] else limits[at.LOOKAHEAD])
    if slots > ints[at.HELD]:
        block = limits[at.BLOCK]
        held = min((slots + block - 1) // block * block, own[at.POOL])
        own[at.USED] += held - ints[at.HELD]
        ints[at.HELD] = held


@_compiled
def _preempt(state: State, replica: int) -> None:
    """Send the youngest running request back to the head of the queue; its KV is lost."""
    own = state.replica_ints[replica]
    own[at.SIZE] -= 1
    row = state.running[replica, own[at.SIZE]]
    ints = state.request_ints[row]
    grant = ints[at.GRANT]
    if grant > 0:
        own[at.SCHEDULED] -= 1
        if ints[at.TODO] == 0:
            own[at.DECODING] -= 1
            own[at.ATTENDED] -= ints[at.CONTEXT]
        else:
            own[at.PREFILL] -= grant
    own[at.USED] -= ints[at.HELD]
    ints[at.TODO] = ints[at.PROMPT] + ints[at.GENERATED]
    ints[at.CONTEXT] = 0
    ints[at.DRAFTS] = 0
    ints[at.HELD] = 0
    ints[at.GRANT] = 0
    ints[at.NEXT] = own[at.HEAD]
    if own[at.HEAD] < 0:
        own[at.TAIL] = row
    own[at.HEAD] = row
    own[at.WAITING] += 1
    state.counters[replica, at.PREEMPTIONS] += 1


@_compiled
def _grant_running(state: State, replica: int, limits: Ints) -> int:
    """Tokens for every running request, decoding ones first. Returns the budget left, -1 when any was preempted."""
    own, prompts = state.replica_ints[replica], False
    budget: int = limits[at.BUDGET]
    for place in range(own[at.SIZE]):
        ints = state.request_ints[state.running[replica, place]]
        if ints[at.TODO] > 0:
            prompts = True
            continue
        grant = min(1 + ints[at.DRAFTS], budget)
        budget -= grant
        ints[at.GRANT] = grant
        if grant > 0:
            own[at.SCHEDULED] += 1
            own[at.DECODING] += 1
            own[at.ATTENDED] += ints[at.CONTEXT]
            _reserve(state, own, ints, ints[at.CONTEXT] + grant, limits)
    if prompts:
        for place in range(own[at.SIZE]):
            ints = state.request_ints[state.running[replica, place]]
            if ints[at.TODO] > 0:
                grant = min(ints[at.TODO], budget)
                budget -= grant
                ints[at.GRANT] = grant
                if grant > 0:
                    own[at.SCHEDULED] += 1
                    own[at.PREFILL] += grant
                    _reserve(state, own, ints, ints[at.CONTEXT] + grant, limits)
    if own[at.USED] <= own[at.POOL]:
        return budget
    while own[at.USED] > own[at.POOL] and own[at.SIZE] > 1:
        _preempt(state, replica)
    return -1


@_compiled
def _admit(state: State, replica: int, budget: int, limits: Ints) -> None:
    own = state.replica_ints[replica]
    while own[at.HEAD] >= 0 and own[at.SIZE] < limits[at.SEATS] and budget > 0:
        row = own[at.HEAD]
        ints = state.request_ints[row]
        chunk = min(ints[at.TODO], budget)
        slots = chunk + (0 if own[at.OFF] else limits[at.LOOKAHEAD])
        block = limits[at.BLOCK]
        need = min((slots + block - 1) // block * block, own[at.POOL])
        if own[at.USED] + need > own[at.POOL]:
            return
        own[at.HEAD] = ints[at.NEXT]
        own[at.WAITING] -= 1
        own[at.USED] += need
        ints[at.HELD] = need
        ints[at.GRANT] = chunk
        budget -= chunk
        own[at.SCHEDULED] += 1
        own[at.PREFILL] += chunk
        state.running[replica, own[at.SIZE]] = row
        own[at.SIZE] += 1


@_compiled
def _seconds(own: Ints, physics: Physics, tokens: int) -> float:
    """Expected seconds of the step; `tokens` are decoded in it."""
    off, batch, k = own[at.OFF], own[at.DECODING], own[at.NEXT_K]
    prefill, attended, rates = own[at.PREFILL], own[at.ATTENDED], physics.rates
    seconds: float = physics.decoded[off, tokens] + rates[0] * prefill + rates[1] * attended
    if rates[2] > 0.0:
        seconds += rates[2] * (1.0 - rates[3] ** (tokens + prefill))
    if off:
        return seconds
    seconds += physics.drafting[batch, k] + physics.draft_kv[k] * attended + physics.draft_prefill[k] * prefill
    seconds *= physics.factor[own[at.VERIFIED_K]]
    return seconds


@_compiled
def _begin(state: State, replica: int, physics: Physics, limits: Ints, rng: np.random.Generator, now: float) -> None:
    """Schedule a step and start it, if there is anything to run."""
    own = state.replica_ints[replica]
    own[at.SCHEDULED] = 0
    own[at.DECODING] = 0
    own[at.PREFILL] = 0
    own[at.ATTENDED] = 0
    budget = _grant_running(state, replica, limits)
    if budget >= 0:
        _admit(state, replica, budget, limits)
    if own[at.SCHEDULED] == 0:
        state.replica_floats[replica, at.CLOCK] = np.inf
        return
    own[at.VERIFIED_K] = own[at.NEXT_K]
    own[at.NEXT_K] = 0 if own[at.OFF] else state.tables[replica, own[at.SCHEDULED]]
    tokens = 0
    for place in range(own[at.SIZE]):
        ints = state.request_ints[state.running[replica, place]]
        if ints[at.TODO] == 0:
            tokens += ints[at.GRANT]
    seconds = _seconds(own, physics, tokens)
    sigma = physics.rates[4]
    if sigma > 0.0:
        seconds *= math.exp(sigma * rng.standard_normal() - 0.5 * sigma * sigma)
    state.replica_floats[replica, at.STARTED] = now
    state.replica_floats[replica, at.CLOCK] = now + seconds


@_compiled
def _verify(ints: Ints, floats: Floats, tally: Floats, rng: np.random.Generator, factor: float) -> int:
    """Tokens that a decoding request gains, before its target cuts them."""
    drafts, left = ints[at.GRANT] - 1, ints[at.RUN]
    if drafts == 0 and floats[at.SHARE] < 1.0:
        return 1  # nothing was looked up: the run of what a look-up would find goes on
    accepted: int = min(drafts, left)
    if left > drafts:
        ints[at.RUN] = left - drafts - 1
    else:
        ints[at.RUN] = _run_length(rng, floats, factor)
    if drafts > 0:
        tally[at.DRAFT_TOKENS] += drafts
        tally[at.BY_ACCEPTED + accepted] += 1
    return 1 + accepted


@_compiled
def _gain(state: State, replica: int, row: int, tally: Floats, rng: np.random.Generator) -> int:
    """End a request's part of the step; tokens it gained."""
    ints, floats = state.request_ints[row], state.request_floats[row]
    grant, now = ints[at.GRANT], state.replica_floats[replica, at.CLOCK]
    gained: int
    if ints[at.TODO] == 0:
        gained = min(
            _verify(ints, floats, tally, rng, state.whole_floats[at.FACTOR]), ints[at.TARGET] - ints[at.GENERATED]
        )
        ints[at.CONTEXT] += gained
    else:
        ints[at.CONTEXT] += grant
        ints[at.TODO] -= grant
        if ints[at.TODO] > 0:
            return 0
        gained = 1
    if floats[at.FIRST] < 0.0:
        floats[at.FIRST] = now
        tally[at.FIRST_TOKENS] += 1
        tally[at.FIRST_SECONDS] += now - floats[at.ARRIVAL]
        tally[at.PROMPTS] += ints[at.PROMPT]
    else:
        tally[at.REQUEST_STEPS] += 1
        tally[at.STEP_SECONDS] += now - floats[at.LAST]
    floats[at.LAST] = now
    ints[at.GENERATED] += gained
    return gained


@_compiled
def _end_request(state: State, replica: int, row: int, tally: Floats) -> None:
    ints, floats = state.request_ints[row], state.request_floats[row]
    now = state.replica_floats[replica, at.CLOCK]
    entry = state.ended[state.whole_ints[at.ENDED]]
    entry[at.END_TIME] = now
    entry[at.END_ARRIVAL] = floats[at.ARRIVAL]
    entry[at.END_FIRST] = floats[at.FIRST]
    entry[at.END_LAST] = floats[at.LAST]
    entry[at.END_TOKENS] = ints[at.GENERATED]
    entry[at.END_ROW] = ints[at.ROW]
    state.whole_ints[at.ENDED] += 1
    tally[at.FINISHED] += 1
    state.replica_ints[replica, at.USED] -= ints[at.HELD]
    ints[at.NEXT] = state.whole_ints[at.FREE]
    state.whole_ints[at.FREE] = row
    _count_alive(state, now, -1)


@_compiled
def _finish(state: State, replica: int, tally: Floats, rng: np.random.Generator) -> None:
    """End the step under way. `tally` is scratch for what this step counts."""
    own = state.replica_ints[replica]
    tally[:] = 0.0
    k, kept = own[at.NEXT_K], 0
    for place in range(own[at.SIZE]):
        row = state.running[replica, place]
        ints = state.request_ints[row]
        if ints[at.GRANT] > 0:
            gained = _gain(state, replica, row, tally, rng)
            tally[at.GENERATION] += gained
            ints[at.GRANT] = 0
            if gained > 0 and ints[at.GENERATED] >= ints[at.TARGET]:
                _end_request(state, replica, row, tally)
                continue
            share = state.request_floats[row, at.SHARE]
            drafts = ints[at.TODO] == 0 and (share >= 1.0 or rng.random() < share)
            ints[at.DRAFTS] = k if drafts else 0
        state.running[replica, kept] = row
        kept += 1
    own[at.SIZE] = kept
    _book(state, replica, tally)


@_compiled
def _book(state: State, replica: int, tally: Floats) -> None:
    """Add a step to the counters and to the step log."""
    for accepted in range(tally.shape[0] - at.BY_ACCEPTED):
        tally[at.DRAFTED] += tally[at.BY_ACCEPTED + accepted]
        tally[at.ACCEPTED] += accepted * tally[at.BY_ACCEPTED + accepted]
    if tally[at.GENERATION] > 0:
        tally[at.STEPS] = 1
        tally[at.STEP_TOKENS] = tally[at.PROMPTS] + tally[at.GENERATION]
    floats = state.replica_floats[replica]
    tally[at.BUSY_SECONDS] = floats[at.CLOCK] - floats[at.STARTED]
    counters = state.counters[replica]
    for place in range(tally.shape[0]):
        counters[place] += tally[place]
    state.whole_floats[at.TOKENS] += tally[at.GENERATION]
    if state.log.shape[1] > 0:
        _log(state, replica, tally)


@_compiled
def _log(state: State, replica: int, tally: Floats) -> None:
    own = state.replica_ints[replica]
    entry = state.log[replica, own[at.LOGGED] % state.log.shape[1]]
    entry[at.LOG_END] = state.replica_floats[replica, at.CLOCK]
    entry[at.LOG_SECONDS] = tally[at.BUSY_SECONDS]
    entry[at.LOG_BATCH] = own[at.DECODING]
    entry[at.LOG_SCHEDULED] = own[at.SCHEDULED]
    entry[at.LOG_K] = own[at.VERIFIED_K]
    entry[at.LOG_NEXT_K] = own[at.NEXT_K]
    entry[at.LOG_DRAFTED] = tally[at.DRAFTED]
    entry[at.LOG_DRAFT_TOKENS] = tally[at.DRAFT_TOKENS]
    entry[at.LOG_ACCEPTED] = tally[at.ACCEPTED]
    entry[at.LOG_EMITTED] = tally[at.GENERATION]
    entry[at.LOG_CONTEXT] = own[at.ATTENDED]
    entry[at.LOG_PREFILL] = own[at.PREFILL]
    entry[at.LOG_WAITING] = own[at.WAITING]
    for place in range(tally.shape[0] - at.BY_ACCEPTED):
        entry[at.LOG_BY_ACCEPTED + place] = tally[at.BY_ACCEPTED + place]
    own[at.LOGGED] += 1


@_compiled
def _wake(state: State, physics: Physics, limits: Ints, rng: np.random.Generator, now: float) -> None:
    """Start a step on every ready replica that is idle and has work."""
    for replica in range(state.replica_ints.shape[0]):
        own = state.replica_ints[replica]
        idle = state.replica_floats[replica, at.CLOCK] == np.inf
        if idle and own[at.READY] and (own[at.SIZE] > 0 or own[at.HEAD] >= 0):
            _begin(state, replica, physics, limits, rng, now)


@_compiled
def _next_to_end(state: State) -> int:
    """The replica whose step ends first."""
    clocks, first = state.replica_floats, 0
    for replica in range(1, clocks.shape[0]):
        if clocks[replica, at.CLOCK] < clocks[first, at.CLOCK]:
            first = replica
    return first


@_compiled
def _next_arrival(state: State, source: Source) -> float:
    """Time of the next request of an open loop; infinite when there is none."""
    number = state.whole_ints[at.NEXT_ARRIVAL]
    open_loop = state.whole_ints[at.WANTED] < 0 and number < source.arrival.shape[0]
    return source.arrival[number] if open_loop else np.inf


@_compiled
def run(
    state: State,
    source: Source,
    physics: Physics,
    limits: Ints,
    rng: np.random.Generator,
    tally: Floats,
    until: float,
) -> int:
    """Run every event up to and with `until` (seconds); DONE, or which array is full (make room, then call again).

    Replicas, tables, drift and the wanted number of requests do not change within a call: the caller cuts time there.
    """
    closed = state.whole_ints[at.WANTED] >= 0
    _flush_router(state)
    if closed:
        _refill(state, source, rng, state.whole_floats[at.SINCE])
    _wake(state, physics, limits, rng, state.whole_floats[at.SINCE])
    while True:
        replica, arriving = _next_to_end(state), _next_arrival(state, source)
        ending = state.replica_floats[replica, at.CLOCK]
        if min(ending, arriving) > until:
            _count_alive(state, until, 0)
            return at.DONE
        if arriving <= ending:
            if state.whole_ints[at.FREE] < 0:
                return at.REQUESTS_FULL
            _issue(state, source, rng, state.whole_ints[at.NEXT_ARRIVAL], arriving)
            state.whole_ints[at.NEXT_ARRIVAL] += 1
            _wake(state, physics, limits, rng, arriving)
            continue
        if state.whole_ints[at.ENDED] + state.running.shape[1] > state.ended.shape[0]:
            return at.ENDED_FULL
        _finish(state, replica, tally, rng)
        state.replica_floats[replica, at.CLOCK] = np.inf
        if closed:
            _refill(state, source, rng, ending)
        _wake(state, physics, limits, rng, ending)
