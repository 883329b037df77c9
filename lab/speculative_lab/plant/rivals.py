"""Other laws than the tuner's, each inside every replica's engine: it sees all steps and sets K of each.

`SMART`: acceptance times a linear fit of steps that were timed beforehand, as SmartSpec does (arXiv 2406.14066).
`TIMED`: the same with a table of timed steps instead of the fit, and acceptance by position. `ADAPTIVE`: vLLM's
adaptive verification: all drafts are made, the likeliest are verified. The best constant K in hindsight is what
`oracle.search` finds. Called by `speculative simulate` and by dev/bench/tuner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from speculative_lab.emulator.budget import verified_drafts
from speculative_lab.plant import layout as at
from speculative_lab.plant import steptime as st
from speculative_lab.plant.compiled import compiled
from speculative_lab.plant.replica import IDLE, advance, find_work
from speculative_lab.plant.serving import Outcome, fresh, outcome, restart
from speculative_lab.plant.texts import survivals
from speculative_lab.plant.types import Floats, Ints, Machine, State
from speculative_lab.plant.world import Replica, World

SMART, TIMED, ADAPTIVE = "smartspec", "timed", "adaptive"
FIRST_CHANCE = 0.7
"""Acceptance of a draft before the first one was seen: an assumption."""
WEIGHT = 0.05
"""Of the newest step in the moving average of acceptance: an assumption."""
FITTED = tuple(2**i for i in range(7))
"""Batch sizes at which steps are timed for the fit, each at four K."""
TIMED_CONTEXT = 1000.0
"""Tokens of context of each request in the steps that are timed, in half of them a quarter of that."""
TIMING_ERROR = 0.01
"""Standard deviation of a timed step, in log: an assumption, for the mean of some steps of an idle machine."""
FORGET = 0.995
FIRST_DRAFTS = 5.0
"""What remains of counted drafts from step to step, and for how many drafts FIRST_CHANCE stands: assumptions."""
PROBE_STEPS, PROBE_PERIOD = 8, 300
"""While K is 0, this many steps of each period try drafts."""


class Rival(Protocol):
    """A law inside one engine."""

    def next_k(self, state: State) -> int:
        """K to draft in the planned step; called once before each step. May take back drafts that it would verify."""


class SmartSpec:
    """In each step the K of the most tokens per second, by one chance of acceptance for all drafts.

    The chance is a moving average that rests while K is 0. Seconds are linear in context, tokens and draft passes,
    fitted to 28 steps of the very machine without its noise; the context is that of the step before.
    """

    def __init__(self, machine: Machine, ks: tuple[int, ...]) -> None:
        self._ks, self._drafts = ks, np.array(ks, dtype=float)
        self._terms = linear_fit(machine, ks[-1])
        self._chance = FIRST_CHANCE
        self._before = np.zeros((2, ks[-1]))

    def next_k(self, state: State) -> int:
        self._learn(state.positions)
        work = state.work
        batch = max(float(state.now[at.DECODING] + state.now[at.HOLDING]), 1.0)
        context = float(work[st.W_CONTEXT] / work[st.W_DECODING]) if work[st.W_DECODING] else 0.0
        lengths = (1.0 - self._chance ** (self._drafts + 1.0)) / (1.0 - self._chance)
        seconds = features(np.full_like(self._drafts, batch), self._drafts, context) @ self._terms
        return self._ks[int(np.argmax(lengths / np.maximum(seconds, 1e-4)))]

    def _learn(self, positions: Floats) -> None:
        """What became of the drafts of the last step. One that follows a rejected draft tells nothing."""
        drafts, accepted = positions - self._before
        if drafts[0] > 0:
            told = drafts[0] + np.minimum(drafts[1:], accepted[:-1]).sum()
            self._chance = min(self._chance + WEIGHT * (float(accepted.sum() / told) - self._chance), 0.999)
        self._before = positions.copy()


class Timed:
    """In each step the K of the most tokens per second, by acceptance of each position and a table of timed steps.

    Steps of the very machine are timed at batch sizes 1, 2, 4, ... for every K at two contexts, with TIMING_ERROR;
    between them seconds are linear. Nothing that runs corrects the table.
    """

    def __init__(self, machine: Machine, ks: tuple[int, ...]) -> None:
        self._ks = ks
        seats = int(machine.par[at.SEATS])
        self._sizes = np.array(sorted({2**i for i in range(12) if 2**i < seats} | {seats}), dtype=float)
        contexts = (TIMED_CONTEXT / 4, TIMED_CONTEXT)
        quiet = np.array([[[timed_seconds(machine, b, k, c) for b in self._sizes] for c in contexts] for k in ks])
        self._seconds = quiet * np.exp(np.random.default_rng(seats).normal(0.0, TIMING_ERROR, quiet.shape))
        self._seen, self._before = np.zeros((2, ks[-1])), np.zeros((2, ks[-1]))
        self._at_zero = 0

    def next_k(self, state: State) -> int:
        work = state.work
        batch = max(float(state.now[at.DECODING] + state.now[at.HOLDING]), 1.0)
        context = float(work[st.W_CONTEXT] / work[st.W_DECODING]) if work[st.W_DECODING] else TIMED_CONTEXT / 4
        few, many = np.array([[np.interp(batch, self._sizes, one) for one in rows] for rows in self._seconds]).T
        seconds = few + (many - few) * (context / TIMED_CONTEXT - 0.25) / 0.75
        k = self._ks[int(np.argmax(self._lengths(state.positions) / np.maximum(seconds, 1e-5)))]
        self._at_zero = self._at_zero + 1 if k == 0 else 0
        return self._ks[min(2, len(self._ks) - 1)] if self._at_zero % PROBE_PERIOD >= PROBE_PERIOD - PROBE_STEPS else k

    def _lengths(self, positions: Floats) -> Floats:
        """Tokens of a step by K, after what became of the drafts of the last step."""
        drafts, accepted = positions - self._before
        self._before = positions.copy()
        if drafts[0] > 0:  # one that follows a rejected draft tells nothing
            told = np.append(drafts[:1], np.minimum(drafts[1:], accepted[:-1]))
            self._seen = FORGET * self._seen + np.array([told, np.minimum(accepted, told)])
        chances = (self._seen[1] + FIRST_DRAFTS * FIRST_CHANCE) / (self._seen[0] + FIRST_DRAFTS)
        return np.append(1.0, 1.0 + np.cumsum(np.cumprod(chances)))[list(self._ks)]


class Adaptive:
    """Always the largest K, of whose drafts those are verified that give the most tokens per second.

    How likely each draft is accepted is told without error, where vLLM estimates it; what a number of verified drafts
    costs is timed on the very machine without its noise, once for each batch size. So the real one does no better.
    """

    def __init__(self, machine: Machine, ks: tuple[int, ...]) -> None:
        self._machine, self._top = machine, ks[-1]
        self._curves: dict[int, Floats] = {}
        seats = int(machine.par[at.SEATS]) + 1
        self._chances, self._drafted = np.zeros((seats, ks[-1])), np.zeros(seats, dtype=np.int64)

    def next_k(self, state: State) -> int:
        count = tell(self._machine, state, self._chances, self._drafted)
        drafts = self._drafted[:count]
        if drafts.sum() > 0:
            kept = verified_drafts(self._chances[:count], drafts, count, self._curve(state, count))
            keep(state, kept)
        return self._top

    def _curve(self, state: State, count: int) -> Floats:
        """Seconds of a step of `count` requests by the number of drafts that it verifies."""
        if count not in self._curves:
            rows = state.running[: int(state.now[at.RUNNING])]
            context = float(state.req[rows, at.CONTEXT].mean())
            numbers = range(count * self._top + 1)
            work = [work_of(count, self._top, context, float(drafts)) for drafts in numbers]
            self._curves[count] = np.array([st.quiet_seconds(self._machine, one) for one in work])
        return self._curves[count]


RIVALS: dict[str, Callable[[Machine, tuple[int, ...]], Rival]] = {SMART: SmartSpec, TIMED: Timed, ADAPTIVE: Adaptive}


def run(world: World, name: str) -> Outcome:
    """The whole world under a rival."""
    states = [fresh(replica, world.top_k, world.seconds) for replica in world.replicas]
    for replica, state in zip(world.replicas, states, strict=True):
        gone = replica.restart
        if gone is not None:
            _serve(replica, state, RIVALS[name](replica.machine, world.policy.knobs.ks), gone[0])
            restart(state, gone[1], float(replica.machine.par[at.WARM]))
        _serve(replica, state, RIVALS[name](replica.machine, world.policy.knobs.ks), world.seconds)
    return outcome(world, states)


def _serve(replica: Replica, state: State, rival: Rival, until: float) -> None:
    machine, opened = replica.machine, replica.opened
    code = find_work(machine, state, opened, until)
    while code != IDLE and state.now[at.NOW] < until:
        k = rival.next_k(state)
        state.now[at.HELD] = state.now[at.HELD] + 1.0 if k == 0 else 0.0
        rests = state.now[at.HELD] >= machine.par[at.RESTS_AFTER]
        code = advance(machine, state, opened, st.OFF if rests else k, until)


def linear_fit(machine: Machine, top_k: int) -> Floats:
    """Least squares of relative errors over the steps that were timed."""
    ks = sorted({0, 1, (top_k + 1) // 2, top_k})
    cells = [(float(b), float(k)) for b in FITTED if b <= machine.par[at.SEATS] for k in ks]
    batch, k = np.array(cells).T
    context = np.where(np.arange(len(cells)) % 2, TIMED_CONTEXT, TIMED_CONTEXT / 4)
    seconds = np.array([timed_seconds(machine, b, d, c) for b, d, c in zip(batch, k, context, strict=True)])
    solution, *_ = np.linalg.lstsq(features(batch, k, context) / seconds[:, None], np.ones(len(cells)), rcond=None)
    return np.asarray(solution)


def timed_seconds(machine: Machine, batch: float, k: float, context: float) -> float:
    """Seconds of a step at a constant K, without noise; at K = 0 without the speculator where it can be left out."""
    work = work_of(batch, k, context, batch * k)
    if k == 0 and np.isfinite(machine.par[at.RESTS_AFTER]):
        work[st.W_DRAFT] = st.OFF
    return st.quiet_seconds(machine, work)


def features(batch: Floats, k: Floats, context: Floats | float) -> Floats:
    """Columns: constant, context tokens, tokens of the step, draft passes."""
    return np.stack([np.ones_like(batch), batch * context, batch * (k + 1.0), k], axis=1)


def work_of(batch: float, k: float, context: float, drafts: float) -> Floats:
    """A step of `batch` requests that verifies `drafts` drafts, at most `k` each, and drafts `k` anew."""
    work = np.zeros(st.WORK)
    work[[st.W_DECODING, st.W_VERIFIED, st.W_CONTEXT]] = batch, batch + drafts, batch * context
    work[[st.W_K, st.W_EMIT, st.W_DRAFT]] = k if drafts > 0 else 0.0, batch, k
    return work


@compiled
def tell(machine: Machine, state: State, chances: Floats, drafted: Ints) -> int:
    """Fill in drafts and their chances by decoding request of the planned step; returns their number."""
    count = 0
    for seat in range(int(state.now[at.RUNNING])):
        request = state.req[state.running[seat]]
        if request[at.LEFT] > 0:
            continue
        survivals(machine, request, state.now[at.NOW], chances[count])
        drafted[count] = int(request[at.DRAFTED])
        count += 1
    return count


@compiled
def keep(state: State, kept: Ints) -> None:
    """Leave `kept` drafts to each decoding request of the planned step."""
    count = 0
    for seat in range(int(state.now[at.RUNNING])):
        request = state.req[state.running[seat]]
        if request[at.LEFT] > 0:
            continue
        request[at.DRAFTED] = kept[count]
        request[at.DRAFT_K] = kept[count]
        count += 1
