"""The arrays that the compiled loop works on: made, grown, and changed where a replica goes away or comes back.

Called by `deployment`. Rare events only; what happens in every step is in `kernel` and `step`, and needs numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speculative_lab.sim import layout
from speculative_lab.sim.drafts import draws
from speculative_lab.sim.plant import Plant
from speculative_lab.sim.workload import Workload

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Cells = NDArray[np.float64]
"""Of more than two dimensions."""
Records = np.recarray[Any, Any]
Record = Any
"""One entry of `Records`; fields in `layout`."""

_FIRST_ROWS = 1024
_ENDED_ROWS = 8192


class Physics(NamedTuple):
    """What a step costs, in seconds, tabulated from a `Plant`."""

    decoded: Floats
    """[2, tokens] fixed time and decoded tokens, staircases included; first index 0 with drafter, 1 without"""
    drafting: Floats
    """[decoding requests, K]"""
    by_k: Floats
    """[3, K] drafting per KV token of the decoding requests, per prompt token; factor on the whole step"""
    rates: Records
    """[1]"""
    limits: Records
    """[1]"""


class Source(NamedTuple):
    """The workload, one row per request (open loop) or per request to draw (closed loop)."""

    arrival: Floats
    lengths: Ints
    """[rows, 2] prompt and output tokens"""
    draws: Floats
    """[rows, 4] `layout.DRAWN`, the request's own random effect included"""


class State(NamedTuple):
    """All that changes while the deployment runs. R replicas, M seats."""

    whole: Records
    """[1]"""
    replicas: Records
    requests: Records
    counters: Floats
    """[R, counters]"""
    running: Ints
    """[R, M] rows of the running requests, in order of admission"""
    tables: Ints
    """[R, M + 1] K by scheduled requests"""
    ended: Records
    log: Floats
    """[R, ring, columns]"""
    cells: Floats
    """[R, K, bucket, figures of `layout`] what a payload counts of steps; no K where there is none"""
    drafts: Floats
    """[R, K, position, 2] the same of drafts: tried, accepted"""
    latencies: Floats
    """[R, TTFT or TPOT, bucket or sum] of requests"""


def new_state(
    plant: Plant, workload: Workload, replicas: int, log_steps: int, seed: int, *, telemetry: bool = False
) -> State:
    """Arrays of a deployment in which nothing runs yet; `log_steps`: steps that each replica's log holds;
    `telemetry`: whether steps are counted as a payload does."""
    seats, positions = plant.knobs.max_batch, plant.max_k + 1
    metered = positions if telemetry else 0
    whole = _records(1, layout.WHOLE, free=-1, head=-1, tail=-1, factor=1.0, pool_stop=len(workload.prompt))
    whole["random"] = np.random.default_rng([seed, 0]).integers(1, 2**64 - 1, dtype=np.uint64)
    whole[0].wanted = 0 if workload.closed else -1
    state = State(
        whole=whole,
        replicas=_records(replicas, layout.REPLICA, clock=np.inf, head=-1, tail=-1),
        requests=_records(0, layout.REQUEST),
        counters=np.zeros((replicas, layout.BY_ACCEPTED + positions)),
        running=np.zeros((replicas, seats), dtype=np.int64),
        tables=np.zeros((replicas, seats + 1), dtype=np.int64),
        ended=_records(_ENDED_ROWS + seats, layout.ENDED),
        log=np.zeros((replicas, log_steps, layout.LOG_BY_ACCEPTED + positions)),
        cells=np.zeros((replicas, metered, layout.BUCKETS, layout.CELL_FIGURES)),
        drafts=np.zeros((replicas, metered, plant.max_k, 2)),
        latencies=np.zeros((replicas, 2, layout.LATENCY_SUM + 1)),
    )
    return with_rows(state, max((count for _, count in workload.concurrency), default=_FIRST_ROWS) + 1)


def with_rows(state: State, more: int) -> State:
    """The same state with room for `more` requests in the system."""
    had, whole = len(state.requests), state.whole[0]
    added = _records(more, layout.REQUEST)
    added["next"] = np.arange(had + 1, had + more + 1)
    added[-1].next = whole.free
    whole.free = had
    grown = np.concatenate((state.requests, added)).view(np.recarray)
    return state._replace(requests=grown)


def physics_of(plant: Plant, code: str) -> Physics:
    """The plant's costs as tables. `code` is `kernel.CODE`."""
    most = min(plant.knobs.max_batch * (plant.max_k + 1), plant.max_batched_tokens)
    tokens = np.arange(most + 1)
    drafting, draft_kv, draft_prefill = plant.drafting()
    costs = plant.costs
    return Physics(
        decoded=np.stack([plant.decode_seconds(tokens, drafter=drafter) for drafter in (True, False)]),
        drafting=drafting,
        by_k=np.stack([draft_kv, draft_prefill, plant.factors()]),
        rates=_records(
            1,
            layout.RATES,
            token=costs.per_token,
            kv=costs.per_kv_token,
            experts=costs.expert_fixed,
            missed=1.0 - costs.expert_reach,
            sigma=np.sqrt(np.log1p(plant.noise**2)),
            crowded=plant.neighbour_factor,
            crowd=plant.neighbour_share,
            spell=plant.neighbour_seconds,
        ),
        limits=_records(
            1,
            np.dtype([*layout.LIMITS.descr, (code, "i8")]),
            seats=plant.knobs.max_batch,
            budget=plant.max_batched_tokens,
            block=plant.block_size,
            ahead=plant.max_k,
        ),
    )


def source_of(workload: Workload, rng: np.random.Generator) -> Source:
    """The workload as arrays; `rng` gives every request its own effect, the same whatever policy serves it."""
    effects = rng.standard_normal(len(workload.prompt))
    return Source(
        arrival=np.zeros(0) if workload.arrival is None else np.array(workload.arrival, dtype=float),
        lengths=np.stack((workload.prompt, workload.output), axis=1).astype(np.int64),
        draws=draws(workload.classes, workload.kind, effects),
    )


def boot(state: State, replica: int, plant: Plant, off: bool) -> None:
    """Let a replica serve: empty, counters at 0, with or without drafter."""
    tokens = plant.kv_tokens_without if off else plant.kv_tokens
    own = state.replicas[replica]
    own.ready, own.off, own.k, own.next_k = 1, off, 0, 0
    own.pool = max(tokens // plant.block_size, 1) * plant.block_size
    for counted in (state.counters, state.cells, state.drafts, state.latencies):
        counted[replica] = 0.0


def take_away(state: State, replica: int) -> None:
    """Stop a replica. Its requests start anew elsewhere: clients retry, and what they had been sent is lost."""
    own = state.replicas[replica]
    victims = [int(row) for row in state.running[replica, : own.active]]
    row = int(own.head)
    while row >= 0:
        victims.append(row)
        row = int(state.requests[row].next)
    own.ready = own.active = own.waiting = own.used = 0
    own.head = own.tail = -1
    own.clock = np.inf
    for victim in victims:
        _start_anew(state, victim)


def _start_anew(state: State, row: int) -> None:
    """Reset a request and hand it to the router, behind those that wait there."""
    request, whole = state.requests[row], state.whole[0]
    whole.lost += request.generated
    whole.tokens -= request.generated
    request.generated = request.context = request.drafts = request.held = request.grant = 0
    request.todo = request.prompt
    request.first = -1.0
    request.last = request.arrival
    request.next = -1
    if whole.head < 0:
        whole.head = row
    else:
        state.requests[whole.tail].next = row
    whole.tail = row


def _records(count: int, kind: np.dtype[np.void], **values: float) -> Records:
    found = np.zeros(count, dtype=kind).view(np.recarray)
    for name, value in values.items():
        found[name] = value
    return found
