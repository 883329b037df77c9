"""The compiled event loop of the simulator: arrivals, routing, and whose step ends next. Called by `deployment`.

Importing it needs numba. The functions are plain Python, too: with NUMBA_DISABLE_JIT=1 the same seed gives the same
run.
"""

from __future__ import annotations

import numpy as np

from speculative_lab.sim import latencies, step
from speculative_lab.sim import layout as at
from speculative_lab.sim.compiled import cached, compiled, fingerprint
from speculative_lab.sim.plugin import Calls
from speculative_lab.sim.replica import Floats, Physics, Record, Records, Source, State
from speculative_lab.sim.step import begin, count_alive, finish, run_length

CODE = fingerprint((at, step, latencies))
"""Name of the field that `Physics.limits` must have, so that the compiled loop is not older than what it calls."""


@compiled
def _push(queue: Record, requests: Records, row: int) -> None:
    """Put a request at the end of a queue: a replica's or the router's."""
    requests[row].next = -1
    if queue.head < 0:
        queue.head = row
    else:
        requests[queue.tail].next = row
    queue.tail = row


@compiled
def _route(whole: Record, replicas: Records, requests: Records, row: int) -> None:
    """Hand a request to a ready replica: the one with the fewest requests, or the next in turn; else to the router."""
    best, fewest = -1, 0
    for offset in range(len(replicas)):
        place = (whole.turn + offset) % len(replicas)
        own = replicas[place]
        load = 0 if whole.in_turn else own.active + own.waiting
        if own.ready and (best < 0 or load < fewest):
            best, fewest = place, load
    if best < 0:
        _push(whole, requests, row)
        return
    whole.turn = (best + 1) % len(replicas)
    _push(replicas[best], requests, row)
    replicas[best].waiting += 1
    requests[row].queued = whole.since


@compiled
def _flush_router(state: State) -> None:
    """Hand on what waits in the router, once a replica is ready."""
    whole = state.whole[0]
    ready = 0
    for place in range(len(state.replicas)):
        ready += state.replicas[place].ready
    if not ready:
        return
    row = whole.head
    whole.head = -1
    while row >= 0:
        behind = state.requests[row].next
        _route(whole, state.replicas, state.requests, row)
        row = behind


@compiled
def _issue(state: State, source: Source, origin: int, now: float) -> None:
    """A new request made from row `origin` of the workload; a free request row must be there."""
    whole = state.whole[0]
    row = whole.free
    request = state.requests[row]
    whole.free = request.next
    request.prompt = source.lengths[origin, 0]
    request.target = source.lengths[origin, 1]
    request.todo = request.prompt
    request.generated = 0
    request.context = 0
    request.drafts = 0
    request.held = 0
    request.grant = 0
    request.row = origin
    request.arrival = now
    request.first = -1.0
    request.last = now
    request.share = source.draws[origin, 0]
    request.mix = source.draws[origin, 1]
    request.long = source.draws[origin, 2]
    request.short = source.draws[origin, 3]
    request.run = run_length(request, whole)
    count_alive(whole, now, 1)
    _route(whole, state.replicas, state.requests, row)


@compiled
def _refill(state: State, source: Source, now: float) -> None:
    """Closed loop: new requests until there are as many as wanted."""
    whole = state.whole[0]
    while whole.alive < whole.wanted:
        origin = whole.pool_next
        whole.pool_next = origin + 1 if origin + 1 < whole.pool_stop else whole.pool_first
        _issue(state, source, origin, now)


@compiled
def _wake(state: State, physics: Physics, now: float, plugin: Calls) -> None:
    """Start a step on every ready replica that is idle and has work."""
    for replica in range(len(state.replicas)):
        own = state.replicas[replica]
        if own.clock == np.inf and own.ready and (own.active > 0 or own.head >= 0):
            begin(state, replica, physics, now, plugin)


@compiled
def _next_to_end(replicas: Records) -> int:
    """The replica whose step ends first."""
    first = 0
    for replica in range(1, len(replicas)):
        if replicas[replica].clock < replicas[first].clock:
            first = replica
    return first


@compiled
def _next_arrival(whole: Record, arrival: Floats) -> float:
    """Time of the next request of an open loop; infinite when there is none."""
    if whole.wanted >= 0 or whole.next_arrival >= len(arrival):
        return np.inf
    time: float = arrival[whole.next_arrival]
    return time


@cached
def run(state: State, source: Source, physics: Physics, tally: Floats, until: float, plugin: Calls) -> int:
    """Run every event up to and with `until` (seconds); DONE, or which array is full (make room, then call again).

    Replicas, tables, drift and the wanted number of requests do not change within a call: the caller cuts time there.
    """
    whole, replicas = state.whole[0], state.replicas
    _flush_router(state)
    _refill(state, source, whole.since)
    _wake(state, physics, whole.since, plugin)
    while True:
        replica, arriving = _next_to_end(replicas), _next_arrival(whole, source.arrival)
        ending = replicas[replica].clock
        if min(ending, arriving) > until:
            count_alive(whole, until, 0)
            return at.DONE
        if arriving <= ending:
            if whole.free < 0:
                return at.REQUESTS_FULL
            _issue(state, source, whole.next_arrival, arriving)
            whole.next_arrival += 1
            _wake(state, physics, arriving, plugin)
            continue
        if whole.ended + state.running.shape[1] > len(state.ended):
            return at.ENDED_FULL
        finish(state, replica, tally, plugin)
        _refill(state, source, ending)
        _wake(state, physics, ending, plugin)
