"""A world under fixed tables or under the tuner: what happened, by minute and by request."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.replica import serve
from speculative_lab.plant.steptime import WORK
from speculative_lab.plant.types import Floats, Ints, State
from speculative_lab.plant.world import Replica, World

WINDOW = 5
"""Minutes over which a law is held against K = 0."""
LEAST_RESIDENCE = 30.0
"""Request-seconds of a window below which its speed is chance."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run of a world came to."""

    minutes: Floats
    """Tokens, request-seconds, steps and decoding request-steps by minute, all replicas together."""
    tpot: Floats
    """Seconds per token after the first, of each request that ended in counted time."""
    ttft: Floats
    writes: int = 0
    """Times that a table or what may be tried was written."""
    changes: int = 0
    """Of them those that changed the table."""
    cost: float = 0.0
    """Share of speed that exploring took, from the blocks themselves."""
    states: tuple[str, ...] = ()
    table: tuple[tuple[int, int, int], ...] = ()
    """In force at the end."""
    decide_ms: float = 0.0

    @property
    def speed(self) -> float:
        """Tokens per request-second of residence."""
        return self.between(0, len(self.minutes))

    def between(self, first: int, last: int) -> float:
        """The same of some minutes."""
        part = self.minutes[first:last]
        residence = float(part[:, at.M_RESIDENCE].sum())
        return float(part[:, at.M_TOKENS].sum()) / residence if residence else 0.0

    def p99(self, of: str) -> float:
        """99th percentile over requests; 0 where none ended."""
        values = self.tpot if of == "tpot" else self.ttft
        return float(np.quantile(values, 0.99)) if len(values) else 0.0


def fresh(replica: Replica, top_k: int, seconds: float) -> State:
    """A replica before its first request."""
    req = replica.requests.copy()
    now = np.zeros(at.STATE)
    due = replica.returns.copy()
    now[at.DUE] = due.min() if len(due) else math.inf
    seats = int(replica.machine.par[at.SEATS])
    return State(
        req=req,
        running=np.zeros(seats + 1, dtype=np.int64),
        queue=np.zeros(len(req) + 2, dtype=np.int64),
        due=due,
        current=replica.users.copy(),
        now=now,
        counters=np.zeros(at.COUNTERS),
        cells=np.zeros((top_k + 1, at.SIZES, at.CELL_FIELDS)),
        positions=np.zeros((2, top_k)),
        minutes=np.zeros((int(seconds / 60) + 2, at.MINUTE_FIELDS)),
        ended=np.zeros(len(req) + 1, dtype=np.int64),
        first=np.zeros(len(req) + 1, dtype=np.int64),
        step=np.zeros(at.STEP_FIELDS),
        work=np.zeros(WORK),
    )


def restart(state: State, back: float, warm: float) -> None:
    """Lose the process: what ran goes back to the queue with nothing computed, and counters begin anew."""
    now, req = state.now, state.req
    for seat in range(int(now[at.RUNNING]) - 1, -1, -1):
        row = int(state.running[seat])
        req[row, at.LEFT] += req[row, at.CONTEXT]
        req[row, [at.CONTEXT, at.DRAFTED, at.DRAFT_K, at.CHUNK, at.GAPPED]] = 0.0
        now[at.HEAD] -= 1
        state.queue[int(now[at.HEAD]) % len(state.queue)] = row
    waiting = float(now[at.TAIL] - now[at.HEAD])
    for minute in range(len(state.minutes)):
        begin, end = max(now[at.NOW], 60.0 * minute, warm), min(back, 60.0 * minute + 60.0)
        state.minutes[minute, at.M_RESIDENCE] += waiting * max(end - begin, 0.0)
    now[[at.RUNNING, at.KV, at.PLANNED, at.DRIFT, at.ALONE, at.HELD]] = 0.0
    now[at.NOW] = max(back, float(now[at.NOW]))
    now[at.BEGAN] = now[at.NOW]
    state.counters[:] = 0.0
    state.cells[:] = 0.0
    state.positions[:] = 0.0


def until(state: State, replica: Replica, table: Ints, moment: float) -> None:
    """Serve under a fixed table until `moment`, restarts included."""
    gone = replica.restart
    if gone is not None and state.now[at.NOW] < gone[0] <= moment:
        serve(replica.machine, state, replica.opened, table, gone[0])
        restart(state, gone[1], float(replica.machine.par[at.WARM]))
    serve(replica.machine, state, replica.opened, table, moment)


def with_table(world: World, table: Ints) -> Outcome:
    """The whole world under one table; `table[n]` is K at n decoding requests."""
    states = [fresh(replica, world.top_k, world.seconds) for replica in world.replicas]
    for replica, state in zip(world.replicas, states, strict=True):
        until(state, replica, table, world.seconds)
    return outcome(world, states)


def constant(world: World, k: int) -> Ints:
    """The table of one K."""
    return np.full(world.policy.knobs.max_batch + 1, k, dtype=np.int64)


def outcome(world: World, states: list[State]) -> Outcome:
    """What the replicas' states add up to."""
    minutes = np.sum([state.minutes for state in states], axis=0)[: int(world.seconds / 60)]
    tpot, ttft = [], []
    warm = float(world.replicas[0].machine.par[at.WARM])
    for state in states:
        req = state.req[state.ended[: int(state.now[at.ENDS])]]
        req = req[req[:, at.ENDED] > warm]
        long = req[req[:, at.OUT] > 1]
        tpot.append((long[:, at.ENDED] - long[:, at.FIRST]) / (long[:, at.OUT] - 1))
        ttft.append(req[:, at.FIRST] - req[:, at.CAME])
    return Outcome(minutes, np.concatenate(tpot), np.concatenate(ttft))


def unsafe(world: World, run: Outcome, never: Outcome) -> list[float]:
    """By 5-minute window, percent slower than K = 0; windows of restarts and of hardly any load left out."""
    found = []
    for first in range(1, len(run.minutes) - WINDOW + 1, WINDOW):
        last = first + WINDOW
        busy = min(part[first:last, at.M_RESIDENCE].sum() for part in (run.minutes, never.minutes))
        if busy < LEAST_RESIDENCE or any(_restarting(r.restart, first, last) for r in world.replicas):
            continue
        found.append(round(100.0 * (1.0 - run.between(first, last) / never.between(first, last)), 2))
    return found


def _restarting(gone: tuple[float, float] | None, first: int, last: int) -> bool:
    return gone is not None and gone[0] < 60.0 * last and gone[1] + 120.0 > 60.0 * first
