"""One simulated deployment: replicas, their table, restarts and scrapes. What policies and the tuner act on.

Called by scenarios and the bench. The truth (`totals`, `steps`) is for scores, oracles and the rivals that live in the
engine; the tuner is given `exposition` alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from speculative_lab.sim import layout as at
from speculative_lab.sim import replica as replica_arrays
from speculative_lab.sim.exposition import exposition
from speculative_lab.sim.plant import Plant
from speculative_lab.sim.plugin import Plugins
from speculative_lab.sim.telemetry import telemetry as telemetry_text
from speculative_lab.sim.workload import Pool, Workload
from speculative_operator.domain.table import Actuator, KTable, Trial

Array = NDArray[np.float64]
Config = tuple[bool, tuple[int, ...]]
"""What only a restart changes: off or not, and, unless tables are live, the dense table."""


class MissingCompilerError(ImportError):
    """numba is not installed."""


@dataclass(frozen=True, slots=True, eq=False)
class StepLog:
    """Steps of one replica as arrays of one length, oldest first. Counts unless said."""

    end: Array
    """Seconds."""
    seconds: Array
    batch: Array
    """Decoding requests."""
    scheduled: Array
    """Requests given tokens: the key of the engine's look-up."""
    k: Array
    """K of the drafts that the step verified."""
    next_k: Array
    drafted: Array
    """Requests that verified drafts."""
    draft_tokens: Array
    accepted: Array
    """Accepted drafts."""
    emitted: Array
    """Output tokens."""
    context: Array
    """KV tokens that the decoding requests held."""
    prefill: Array
    waiting: Array
    sampled: Array
    """Requests that got a token: the key of the plug-in's look-up."""
    by_accepted: Array
    """[steps, 1 + largest K]: requests with 0, 1, 2, ... drafts accepted."""

    @property
    def accepted_mean(self) -> Array:
        """Accepted drafts per request that verified any; 0 in steps without."""
        return self.accepted / np.maximum(self.drafted, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Truth for scores. Sums run from the start; arrays hold the requests that ended since the last call."""

    now: float
    tokens: float
    """Output tokens delivered. An answer cut off by a restart counts for nothing."""
    lost_tokens: float
    request_seconds: float
    """Time that requests spent in the system, queue included."""
    finished: int
    alive: int
    end: Array
    ttft: Array
    """Seconds to the first token."""
    tpot: Array
    """Seconds per token after the first; NaN for answers of one token."""
    output: Array
    """Tokens."""
    row: NDArray[np.int64]
    """Row of the workload."""


@dataclass(order=True, slots=True)
class _Event:
    time: float
    order: int
    what: Literal["concurrency", "drift", "pool", "table", "boot"]
    value: object


class Deployment:
    """Replicas of one plant under one workload. Same arguments and calls, same run.

    Raises MissingCompilerError where numba is not installed.
    """

    def __init__(  # noqa: PLR0913 - a deployment, its load, and what is kept of it
        self,
        plant: Plant,
        workload: Workload,
        replicas: int = 1,
        seed: int = 0,
        table: KTable | None = None,
        *,
        off: bool = False,
        routing: Literal["least-loaded", "round-robin"] = "least-loaded",
        log_steps: int = 0,
        telemetry: bool = False,
    ) -> None:
        """`table`: in force from the start, None for the largest K at any load; `off`: start without drafter.

        `log_steps`: steps that `steps()` can give back for each replica; older ones are lost. `telemetry`: pods export
        steps by K and batch, drafts by position, compared blocks and the version of their table, as the plug-in in
        the engine does; where tables are live, K is then looked up as it does, and it tries what it is told to.
        """
        self._kernel = _compiled_loop()
        self.now = 0.0
        self.plant, self.workload = plant, workload
        self._state = replica_arrays.new_state(plant, workload, replicas, log_steps, seed, telemetry=telemetry)
        self._state.whole[0].in_turn = routing == "round-robin"
        self._physics = replica_arrays.physics_of(plant, self._kernel.CODE)
        self._source = replica_arrays.source_of(workload, np.random.default_rng([seed, 1]))
        self._telemetry, self._version = telemetry, 0
        self._state.whole[0].plugged = telemetry and plant.knobs.actuator is Actuator.LIVE
        self._tally = np.zeros(plant.max_k + 1)
        self._events: list[_Event] = []
        self._order = 0
        self._ended: list[Array] = []
        self._finished = 0
        first = table or KTable.constant(plant.max_k, plant.knobs.max_batch)
        self._wanted: Config = self._config(off, first)
        self._serving = [self._wanted] * replicas
        self._generation, self._born = [0] * replicas, [0.0] * replicas
        self._rolling: int | None = None
        self._coming: dict[int, float] = {}
        self._state.tables[:] = plant.dense(first)
        self._plugins = Plugins(replicas, plant.rows(first))
        for replica in range(replicas):
            replica_arrays.boot(self._state, replica, plant, off)
        self._plan_workload()

    @property
    def replicas(self) -> int:
        return len(self._serving)

    def advance(self, until: float) -> None:
        """Run all replicas to `until` (simulated seconds); steps that end later are under way."""
        if not until >= self.now:
            raise ValueError(f"time runs forward: it is {self.now} s, {until} s is past")
        while self._events and self._events[0].time <= until:
            event = heapq.heappop(self._events)
            self._run(event.time)
            self._apply(event)
        self._run(until)

    @property
    def rolling(self) -> bool:
        """Whether replicas are being replaced."""
        return any(serving != self._wanted for serving in self._serving) or self._rolling is not None

    def set_table(self, table: KTable, delay: float = 0.5, version: int = 0, trials: tuple[Trial, ...] = ()) -> None:
        """Bring a table into force: after `delay` s where tables are live, else by a rolling restart.

        `version` is what telemetry then tells; `trials` is what the plug-in may try, where there is one. As in the
        engine, K looked up in a step counts for the drafts that the next one verifies.
        """
        if self.plant.knobs.actuator is Actuator.LIVE:
            self._at(self.now + delay, "table", (table, version, trials))
            return
        self._wanted = self._config(self._wanted[0], table)
        if self.now == 0.0:  # pods have not served yet: they start with it
            self._serving = [self._wanted] * self.replicas
            self._state.tables[:] = self.plant.dense(table)
        self._roll()

    def removed(self, off: bool) -> None:
        """Replace replicas one at a time by such without (True) or with drafter; each is away for `restart_seconds`."""
        self._wanted = (off, self._wanted[1])
        self._roll()

    def restart(self, replica: int) -> None:
        """A crash: the replica comes back under its name after `restart_seconds`, its counters at 0."""
        if self._state.replicas[replica].ready:
            self._stop(replica)

    def scale(self, count: int) -> None:
        """How many of the replicas it was made with there are to be. The last ones go at once, and their requests start
        anew elsewhere; those that come serve after `restart_seconds`, at 0 s at once."""
        for replica in range(self.replicas):
            ready = self._state.replicas[replica].ready
            if replica >= count:
                self._coming.pop(replica, None)
                if ready:
                    replica_arrays.take_away(self._state, replica)
            elif not ready and replica not in self._coming:
                self._generation[replica] += 1
                self._come(replica, self.plant.restart_seconds if self.now else 0.0)

    def is_off(self, replica: int) -> bool:
        """Whether the replica runs, or last ran, without drafter."""
        return self._serving[replica][0]

    def pods(self) -> Mapping[str, int]:
        """Name -> replica of those that serve. A rolled replica has a new name, a restarted one its old."""
        ready = self._state.replicas.ready
        return {f"sim-{self._generation[r]}-{r}": r for r in range(self.replicas) if ready[r]}

    def exposition(self, *, created: bool = False) -> dict[str, str]:
        """What a scrape of each pod reads now; `created` adds the `_created` twins."""
        state, block = self._state, self.plant.block_size
        texts = {
            pod: exposition(
                state.replicas[r], state.counters[r], state.latencies[r], block, self._born[r] if created else None
            )
            for pod, r in self.pods().items()
        }
        if self._telemetry:
            for pod, r in self.pods().items():
                texts[pod] += telemetry_text(state.cells[r], state.drafts[r], self._version, self._plugins.blocks[r])
        return texts

    def load(self, replica: int) -> tuple[int, int]:
        """(running, waiting) requests now."""
        own = self._state.replicas[replica]
        return int(own.active), int(own.waiting)

    def counters(self, replica: int) -> Array:
        """A copy of the replica's counters; places in `layout`."""
        return np.array(self._state.counters[replica])

    def steps(self, replica: int) -> StepLog:
        """Steps since the last call, as far as the log reaches; raises ValueError when none is kept."""
        ring = self._state.log[replica]
        if not len(ring):
            raise ValueError("no step log is kept: make the Deployment with log_steps")
        own = self._state.replicas[replica]
        count = int(own.logged)
        order = np.arange(max(count - len(ring), 0), count) % len(ring)
        entries = ring[order]
        own.logged = 0
        columns = [entries[:, place] for place in range(at.LOG_BY_ACCEPTED)]
        return StepLog(*[*columns, entries[:, at.LOG_BY_ACCEPTED :]])

    def totals(self) -> Totals:
        """Truth so far, and the requests that ended since the last call."""
        self._drain()
        whole, rows = self._state.whole[0], np.concatenate([self._state.ended[:0], *self._ended])
        self._ended.clear()
        output = rows["tokens"].astype(float)
        after_first = np.where(output > 1, output - 1.0, np.nan)
        return Totals(
            now=self.now,
            tokens=float(whole.tokens),
            lost_tokens=float(whole.lost),
            request_seconds=float(whole.alive_seconds),
            finished=self._finished,
            alive=int(whole.alive),
            end=rows["end"],
            ttft=rows["first"] - rows["arrival"],
            tpot=(rows["last"] - rows["first"]) / after_first,
            output=output,
            row=rows["row"],
        )

    def _run(self, until: float) -> None:
        while True:
            arrays = (self._state, self._source, self._physics, self._tally)
            why = self._kernel.run(*arrays, float(until), self._plugins.calls)
            self._plugins.check()
            if why == at.DONE:
                break
            if why == at.REQUESTS_FULL:
                self._state = replica_arrays.with_rows(self._state, len(self._state.requests))
            else:
                self._drain()
        self.now = until

    def _drain(self) -> None:
        count = int(self._state.whole[0].ended)
        if count:
            self._ended.append(self._state.ended[:count].copy())
            self._finished += count
            self._state.whole[0].ended = 0

    def _at(self, time: float, what: Literal["concurrency", "drift", "pool", "table", "boot"], value: object) -> None:
        heapq.heappush(self._events, _Event(time, self._order, what, value))
        self._order += 1

    def _plan_workload(self) -> None:
        for time, factor in self.workload.drift:
            self._at(time, "drift", factor)
        for pool in self.workload.pools:
            self._at(pool.start, "pool", pool)
        for time, count in self.workload.concurrency:
            self._at(time, "concurrency", count)

    def _apply(self, event: _Event) -> None:
        whole, value = self._state.whole[0], event.value
        match event.what:
            case "table" if isinstance(value, tuple):
                self._activate(*value)
            case "boot" if isinstance(value, int):
                self._boot(value)
            case "drift" if isinstance(value, float | int):
                whole.factor = value
            case "concurrency" if isinstance(value, int):
                whole.wanted = value
            case "pool" if isinstance(value, Pool):
                whole.pool_first = whole.pool_next = value.first
                whole.pool_stop = value.stop

    def _activate(self, table: KTable, version: int, trials: tuple[Trial, ...]) -> None:
        self._state.tables[:], self._version = self.plant.dense(table), version
        self._plugins.activate(self.plant.rows(table), trials)
        self._state.whole[0].trying = bool(trials)

    def _config(self, off: bool, table: KTable) -> Config:
        live = self.plant.knobs.actuator is Actuator.LIVE
        return (off, () if live else tuple(self.plant.dense(table)))

    def _roll(self) -> None:
        """Take the next outdated replica away, unless one that was rolled is still coming."""
        if self._rolling is not None:
            return
        for replica, serving in enumerate(self._serving):
            if serving != self._wanted and self._state.replicas[replica].ready:
                self._rolling = replica
                self._serving[replica] = self._wanted
                self._generation[replica] += 1
                self._stop(replica)
                return

    def _stop(self, replica: int) -> None:
        replica_arrays.take_away(self._state, replica)
        self._come(replica, self.plant.restart_seconds)

    def _come(self, replica: int, delay: float) -> None:
        self._coming[replica] = self.now + delay
        self._at(self._coming[replica], "boot", replica)

    def _boot(self, replica: int) -> None:
        if self._coming.get(replica) != self.now:
            return  # scaled away since, or also restarted
        del self._coming[replica]
        off, dense = self._serving[replica]
        replica_arrays.boot(self._state, replica, self.plant, off)
        self._born[replica] = self.now
        self._plugins.boot(replica)
        if dense:
            self._state.tables[replica] = dense
        if self._rolling == replica:
            self._rolling = None
        self._roll()


def _compiled_loop() -> ModuleType:
    """The module that needs numba; not imported before a deployment is made."""
    try:
        return import_module("speculative_lab.sim.kernel")
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] not in {"numba", "llvmlite"}:
            raise
        raise MissingCompilerError(
            "the simulator needs numba: install it from a checkout with pip install . './lab[sim]'"
        ) from missing
