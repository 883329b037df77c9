"""The tuner in a world: windows every ten seconds, tables that take their way to the pods, K from the plug-in.

`PLUG_IN`: cells, positions and compared blocks; K of each step comes from the class that runs in real engines.
`COUNTERS`: the engine's own counters; the table is looked up live, nothing is tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.comparing import lost_request_seconds
from speculative_lab.plant.replica import IDLE, WOKE, advance, find_work
from speculative_lab.plant.serving import Outcome, fresh, outcome, restart, until
from speculative_lab.plant.steptime import OFF
from speculative_lab.plant.types import Floats, Ints, State
from speculative_lab.plant.windows import Scrape, scrape, window
from speculative_lab.plant.world import Replica, World
from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.observation import BlockTotals, Comparison, Gap, Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import BLOCK_STEPS, KTable, Trial
from speculative_operator.payload.speculative_blocks import Blocks
from speculative_operator.payload.speculative_off import Latch
from speculative_operator.tuner import Memory, decide, initial_table, initial_trials
from speculative_operator.tuner.allowed import fit_trials

PLUG_IN, COUNTERS = "plug-in", "counters"
TICK = 10.0
EPOCH = 1_700_000_000.0
STARTING = 180.0
"""Seconds in which the tuner may still know nothing."""


@dataclass(slots=True)
class Order:
    """A table on its way."""

    version: int
    table: KTable
    trials: tuple[Trial, ...]
    arrives: float


@dataclass(slots=True)
class Pod:
    """One replica and what runs beside its engine."""

    name: str
    replica: Replica
    state: State
    dense: Ints
    before: Scrape
    version: int = 1
    blocks: Any = None
    latch: Any = None
    """The plug-in's own, where it leaves the speculator out."""
    orders: list[Order] = field(default_factory=list)
    current: Order | None = None
    away: bool = False
    generation: int = 0
    done: list[Comparison] = field(default_factory=list)
    """Comparisons of processes that are gone."""
    watch: Callable[[Pod, int], None] | None = None
    """Told of each step that ended, and of the K that was asked of its speculator (OFF: the speculator is left out)."""


def dense(table: KTable) -> Ints:
    """K by number of requests; at 0 as at 1."""
    ks = table.dense()
    return np.array([ks[0], *ks], dtype=np.int64)


@dataclass(slots=True)
class Run:
    """What the law did in a world."""

    outcome: Outcome
    decisions: list[tuple[float, KTable, Decision]]
    quiet_cost: float = 0.0
    """Cost of exploring in the second half."""
    every: list[tuple[float, Decision]] = field(default_factory=list)
    """All decisions with their moments, of which `decisions` are those that changed something."""
    states: list[State] = field(default_factory=list)
    """Of the replicas at the end."""
    early: list[Floats] = field(default_factory=list)
    """Cells of the replicas after STARTING."""


class Tuner:
    """What the operator does of an object: it looks at the pods, decides, and sends tables."""

    def __init__(self, policy: Policy, form: str, clock: Callable[[], float] = lambda: 0.0) -> None:
        """`clock` times decisions, in seconds."""
        self.policy = replace(policy, trials=form == PLUG_IN and policy.trials)
        self.form, self._clock = form, clock
        self.table = initial_table(self.policy)
        self.trials = initial_trials(self.policy)
        self.memory = Memory(table=self.table, since=EPOCH, trials=self.trials)
        self.version, self.writes, self.changes = 1, 0, 0
        self.log: list[tuple[float, KTable, Decision]] = []
        self.every: list[tuple[float, Decision]] = []
        self.spent: list[float] = []

    @property
    def order(self) -> Order:
        """The newest table."""
        return Order(self.version, self.table, self.trials, 0.0)

    def look(self, pods: list[Pod], delays: tuple[float, ...], moment: float, newcomers: frozenset[str]) -> Decision:
        """One decision, and what follows from it for the pods."""
        windows = _windows(pods, moment, self.form)
        seen = Observation(EPOCH + moment, windows, None, self.version, newcomers)
        began = self._clock()
        self.memory, decision = decide(self.memory, seen, self.policy, EPOCH + moment)
        self.spent.append(self._clock() - began)
        self.every.append((moment, decision))
        plugged = self.form == PLUG_IN
        decided = fit_trials(decision.trials, decision.table, self.policy) if plugged else ()
        if decision.table != self.table or decided != self.trials:
            self.writes += 1
            self.changes += decision.table != self.table
            self.version += 1
            self.table, self.trials = decision.table, decided
            self.log.append((moment, self.table, decision))
            _send(pods, delays, self.order, moment)
        return decision


def run(
    world: World,
    policy: Policy,
    form: str,
    watch: Callable[[Pod, int], None] | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Run:
    """The whole world under the tuner; with the plug-in, `watch` is told of each step of each pod."""
    tuner = Tuner(replace(policy, trials=True), form, clock)
    pods = [pod_of(f"pod-{n}", replica, world, tuner.order, form) for n, replica in enumerate(world.replicas)]
    for pod in pods:
        pod.watch = watch
    half: list[Comparison] = []
    began: list[Floats] = []
    moment = 0.0
    while moment + TICK <= world.seconds:
        moment += TICK
        for pod in pods:
            serve(pod, moment)
        tuner.look(pods, world.delays, moment, _newcomers(pods, moment))
        if moment <= STARTING:
            began = [pod.state.cells.copy() for pod in pods]
        if moment <= world.seconds / 2 < moment + TICK:
            half = _all_comparisons(pods)
    found = replace(
        outcome(world, [pod.state for pod in pods]),
        writes=tuner.writes,
        changes=tuner.changes,
        table=tuple((b.first, b.last, b.k) for b in tuner.table),
        decide_ms=1000 * float(np.quantile(tuner.spent, 0.5)),
    )
    ended = _all_comparisons(pods)
    residence = found.minutes[:, at.M_RESIDENCE]
    lost, early = lost_request_seconds(ended), lost_request_seconds(half)
    late = float(residence[len(residence) // 2 :].sum())
    found = replace(found, cost=lost / max(float(residence.sum()), 1.0))
    return Run(found, tuner.log, (lost - early) / max(late, 1.0), tuner.every, [pod.state for pod in pods], began)


def pod_of(name: str, replica: Replica, world: World, order: Order, form: str, moment: float = 0.0) -> Pod:
    """A pod that starts to serve at that moment."""
    state = fresh(replica, world.top_k, world.seconds)
    state.now[[at.NOW, at.BEGAN]] = moment
    pod = Pod(name, replica, state, dense(order.table), scrape(state, EPOCH + moment))
    _start(pod, order, form)
    return pod


def _start(pod: Pod, order: Order, form: str) -> None:
    """A new process with a table."""
    after = float(pod.replica.machine.par[at.RESTS_AFTER])
    pod.blocks = Blocks() if form == PLUG_IN else None
    pod.latch = Latch(int(after)) if pod.blocks is not None and after < math.inf else None
    _activate(pod, order)


def _activate(pod: Pod, order: Order) -> None:
    pod.dense, pod.version, pod.current = dense(order.table), order.version, order
    if pod.blocks is not None:
        rows = [(t.first, t.last, tuple(t.ks), t.share) for t in order.trials]
        pod.blocks.put_in_force([tuple(row) for row in order.table.rows()], rows or None, BLOCK_STEPS)


def _send(pods: list[Pod], delays: tuple[float, ...], order: Order, moment: float) -> None:
    for number, pod in enumerate(pods):
        delay = delays[(order.version + 5 * number) % len(delays)]
        pod.orders.append(replace(order, arrives=moment + delay))


def serve(pod: Pod, moment: float) -> None:
    """Serve until `moment`; tables come into force as they arrive."""
    for order in [o for o in pod.orders if o.arrives <= moment]:
        _serve_on(pod, order.arrives)
        _activate(pod, order)
        pod.orders.remove(order)
    _serve_on(pod, moment)


def _serve_on(pod: Pod, moment: float) -> None:
    gone = pod.replica.restart
    if gone is None or not pod.state.now[at.NOW] < gone[0] <= moment:
        _steps(pod, moment)
        return
    _steps(pod, gone[0])
    pod.done += list(comparisons_of(pod).values())
    restart(pod.state, gone[1], float(pod.replica.machine.par[at.WARM]))
    pod.generation += 1
    assert pod.current is not None
    _start(pod, pod.current, PLUG_IN if pod.blocks is not None else COUNTERS)
    _steps(pod, moment)


def _steps(pod: Pod, moment: float) -> None:
    """Step by step where the plug-in gives K, at once where a table does."""
    blocks, machine, state, opened = pod.blocks, pod.replica.machine, pod.state, pod.replica.opened
    if blocks is None:
        until(state, replace(pod.replica, restart=None), pod.dense, moment)
        return
    now, step = state.now, state.step
    if now[at.NOW] >= moment:
        return
    code = find_work(machine, state, opened, moment)
    while code != IDLE:
        if code == WOKE:
            blocks.idle()
        if now[at.NOW] >= moment:
            return
        k = blocks.k_for(int(now[at.DECODING] + now[at.HOLDING]))
        if pod.latch is not None:
            k = OFF if pod.latch.step(k, blocks.k_in_force, (), ()) else k
            blocks.resting = pod.latch.lasted
        code = advance(machine, state, opened, k, moment)
        if pod.watch is not None:
            pod.watch(pod, k)
        k, decoding, requests, seconds, tokens, prompt, _, behind = step.tolist()
        if tokens > 0:
            blocks.count(int(k), int(decoding), int(requests), seconds, int(tokens), int(prompt), behind > 0)
    blocks.idle()


def comparisons_of(pod: Pod) -> dict[tuple[int, int, int, int], Comparison]:
    """What the plug-in has compared since its process began."""
    if pod.blocks is None:
        return {}
    found = {}
    for key, (blocks, tried, beside, seconds, tokens) in pod.blocks.comparisons.items():
        k, against, first, last = key
        sums = BlockTotals(*tried), BlockTotals(*beside)
        found[key] = Comparison(k, against, first, last, blocks, *sums, seconds, tokens)
    return found


def _all_comparisons(pods: list[Pod]) -> list[Comparison]:
    return [item for pod in pods for item in (*pod.done, *comparisons_of(pod).values())]


def _windows(pods: list[Pod], moment: float, form: str) -> dict[str, PodWindow | Gap]:
    """Windows of the pods that are there."""
    seen: dict[str, PodWindow | Gap] = {}
    for pod in pods:
        gone = pod.replica.restart
        if gone is not None and gone[0] <= moment < gone[1]:
            continue
        name = f"{pod.name}-{pod.generation}"
        after = scrape(pod.state, EPOCH + moment, comparisons_of(pod))
        reborn = gone is not None and pod.before.time < EPOCH + gone[0] <= EPOCH + moment
        if reborn:
            seen[name] = Gap(Reason.STARTING, "only one scrape so far")
        else:
            told = pod.version if form == PLUG_IN else None
            seen[name] = window(pod.state, pod.before, after, float(pod.replica.machine.par[at.KV_CAPACITY]), told)
        pod.before = after
    return seen


def _newcomers(pods: list[Pod], moment: float) -> frozenset[str]:
    young = [p for p in pods if p.replica.restart is not None and 0 <= moment - p.replica.restart[1] < 3 * TICK]
    return frozenset(f"{pod.name}-{pod.generation}" for pod in young)
