"""The kernel's arrays: made, grown, and changed where a replica goes away or comes back. Called by `deployment`.

Rare events only; what happens in every step is in `kernel`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from speculative_operator.sim import kernel
from speculative_operator.sim import layout as at
from speculative_operator.sim.drafts import draws
from speculative_operator.sim.plant import Plant
from speculative_operator.sim.workload import Workload

_FIRST_ROWS = 1024
_ENDED_ROWS = 8192


def new_state(plant: Plant, workload: Workload, replicas: int, log_steps: int) -> kernel.State:
    """Arrays of a deployment in which nothing runs yet. `log_steps`: steps that each replica's log holds."""
    seats, positions = plant.knobs.max_batch, plant.max_k + 1
    rows = max((count for _, count in workload.concurrency), default=_FIRST_ROWS) + 1
    replica_floats = np.zeros((replicas, at.REPLICA_FLOATS))
    replica_floats[:, at.CLOCK] = np.inf
    state = kernel.State(
        whole_ints=np.zeros(at.WHOLE_INTS, dtype=np.int64),
        whole_floats=np.zeros(at.WHOLE_FLOATS),
        replica_ints=np.zeros((replicas, at.REPLICA_INTS), dtype=np.int64),
        replica_floats=replica_floats,
        counters=np.zeros((replicas, at.BY_ACCEPTED + positions)),
        running=np.zeros((replicas, seats), dtype=np.int64),
        request_ints=np.zeros((0, at.REQUEST_INTS), dtype=np.int64),
        request_floats=np.zeros((0, at.REQUEST_FLOATS)),
        tables=np.zeros((replicas, seats + 1), dtype=np.int64),
        ended=np.zeros((_ENDED_ROWS + seats, at.END_COLUMNS)),
        log=np.zeros((replicas, log_steps, at.LOG_BY_ACCEPTED + positions)),
    )
    state.whole_ints[[at.FREE, at.ROUTER_HEAD, at.ROUTER_TAIL]] = -1
    state.whole_ints[at.WANTED] = 0 if workload.closed else -1
    state.whole_ints[at.POOL_STOP] = len(workload.prompt)
    state.whole_floats[at.FACTOR] = 1.0
    state.replica_ints[:, [at.HEAD, at.TAIL]] = -1
    return with_rows(state, rows)


def with_rows(state: kernel.State, more: int) -> kernel.State:
    """The same state with room for `more` requests in the system."""
    had = len(state.request_ints)
    ints = np.zeros((more, at.REQUEST_INTS), dtype=np.int64)
    ints[:, at.NEXT] = np.arange(had + 1, had + more + 1)
    ints[-1, at.NEXT] = state.whole_ints[at.FREE]
    state.whole_ints[at.FREE] = had
    return state._replace(
        request_ints=np.concatenate((state.request_ints, ints)),
        request_floats=np.concatenate((state.request_floats, np.zeros((more, at.REQUEST_FLOATS)))),
    )


def physics_of(plant: Plant) -> kernel.Physics:
    """The plant's costs as tables."""
    most = min(plant.knobs.max_batch * (plant.max_k + 1), plant.max_batched_tokens)
    tokens = np.arange(most + 1)
    drafting, draft_kv, draft_prefill = plant.drafting()
    costs = plant.costs
    return kernel.Physics(
        decoded=np.stack([plant.decode_seconds(tokens, drafter=drafter) for drafter in (True, False)]),
        drafting=drafting,
        draft_kv=draft_kv,
        draft_prefill=draft_prefill,
        factor=plant.factors(),
        rates=np.array(
            [
                costs.per_token,
                costs.per_kv_token,
                costs.expert_fixed,
                1.0 - costs.expert_reach,
                np.sqrt(np.log1p(plant.noise**2)),
            ]
        ),
    )


def limits_of(plant: Plant) -> NDArray[np.int64]:
    """Seats, token budget, block size and look-ahead."""
    return np.array([plant.knobs.max_batch, plant.max_batched_tokens, plant.block_size, plant.max_k], dtype=np.int64)


def source_of(workload: Workload, rng: np.random.Generator) -> kernel.Source:
    """The workload as arrays; `rng` gives every request its own effect, the same whatever policy serves it."""
    effects = rng.standard_normal(len(workload.prompt))
    return kernel.Source(
        arrival=np.zeros(0) if workload.arrival is None else np.ascontiguousarray(workload.arrival, dtype=float),
        prompt=np.ascontiguousarray(workload.prompt, dtype=np.int64),
        output=np.ascontiguousarray(workload.output, dtype=np.int64),
        draws=draws(workload.classes, workload.kind, effects),
    )


def boot(state: kernel.State, replica: int, plant: Plant, off: bool) -> None:
    """Let a replica serve: empty, counters at 0, with or without drafter."""
    tokens = plant.kv_tokens_without if off else plant.kv_tokens
    own = state.replica_ints[replica]
    logged = own[at.LOGGED]
    own[:] = 0
    own[[at.HEAD, at.TAIL]] = -1
    own[at.READY], own[at.OFF], own[at.LOGGED] = 1, off, logged
    own[at.POOL] = max(tokens // plant.block_size, 1) * plant.block_size
    state.counters[replica] = 0.0


def take_away(state: kernel.State, replica: int) -> None:
    """Stop a replica. Its requests start anew elsewhere: clients retry, and what they had been sent is lost."""
    own = state.replica_ints[replica]
    victims = [int(row) for row in state.running[replica, : own[at.SIZE]]]
    row = int(own[at.HEAD])
    while row >= 0:
        victims.append(row)
        row = int(state.request_ints[row, at.NEXT])
    own[[at.READY, at.SIZE, at.WAITING, at.USED]] = 0
    own[[at.HEAD, at.TAIL]] = -1
    state.replica_floats[replica, at.CLOCK] = np.inf
    for victim in victims:
        _start_anew(state, victim)


def _start_anew(state: kernel.State, row: int) -> None:
    """Reset a request and hand it to the router, behind those that wait there."""
    ints, floats, whole = state.request_ints[row], state.request_floats[row], state.whole_ints
    state.whole_floats[at.LOST] += ints[at.GENERATED]
    state.whole_floats[at.TOKENS] -= ints[at.GENERATED]
    ints[[at.GENERATED, at.CONTEXT, at.DRAFTS, at.HELD, at.GRANT]] = 0
    ints[at.TODO] = ints[at.PROMPT]
    ints[at.NEXT] = -1
    floats[at.FIRST] = -1.0
    floats[at.LAST] = floats[at.ARRIVAL]
    if whole[at.ROUTER_HEAD] < 0:
        whole[at.ROUTER_HEAD] = row
    else:
        state.request_ints[whole[at.ROUTER_TAIL], at.NEXT] = row
    whole[at.ROUTER_TAIL] = row
