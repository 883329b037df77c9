"""Trying another K for some seconds, because evidence about it is worth more than the trial costs.

Called by decide(). A K that the model prices wrongly, and is therefore not in force, would never be found out: its cost
is measured only while it runs. What knowing is worth is the expected improvement: with a gain d over the K in force,
believed with standard deviation s, `s phi(d/s) + d Phi(d/s)`. Probes are few, short, near the best, and only where the
load has been steady, so that what they cost stays below half a per cent of what is served.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.grid import edges, nearest
from speculative_operator.tuner.judge import NEAR, incumbent_of, lift_of
from speculative_operator.tuner.memory import FIRST_RETRY_SECONDS, Memory, Probe
from speculative_operator.tuner.outlook import INFEASIBLE, Outlook
from speculative_operator.tuner.prior import Array

SECONDS = 15.0
"""Length of the trial of one K: three windows, hundreds of steps."""
GRACE_SECONDS = 60.0
"""After which pods end a trial that nobody has ended: a table may be taken late, and figures come in windows."""
FEW = 8.0
"""Requests below which a trial takes longer."""
ARMS = 2
"""K tried one after the other, so that one return serves both."""
AGAIN_SECONDS = 3600.0
AGAIN_WORTH = 0.02
"""So long after a trial, another one at a like load must promise this much: what was learned there lasts."""
BETWEEN_SECONDS = 300.0
"""Least time between trials at one load."""
MOST_TRIALS = 5
"""In that time, over all loads."""
LONGEST_RETRY_SECONDS = 1800.0
STEADY_SECONDS = 20.0
SAME_LOAD = 1.8
"""Trials need a load that has stayed within this factor for so long, and a table that has."""
OTHER_LOAD = 2.5
"""From this factor on a load is another one, at which K may be tried again."""
BUDGET = 0.004
"""Share of what is served that trials may cost, over the time between them."""
WORST = -0.30
"""Log speed below which a K is not tried, whatever knowing is worth."""
MOST_TOKENS = 512.0
"""Verified tokens of a step above which no larger K is tried: there the price of a token is steepest and a model that
has not seen such steps errs most, so that a trial of seconds fills the queue for minutes."""


def watch_load(memory: Memory, scheduled: float, now: float) -> Memory:
    """Memory that knows since when the load has been as it is, and forgets trials of long ago."""
    trials = tuple(trial for trial in memory.trials if 0.0 <= now - trial[0] < AGAIN_SECONDS)
    since, load = memory.steady
    steady = (since, load) if load > 0 and _apart(scheduled, load) <= SAME_LOAD and since <= now else (now, scheduled)
    if (steady, trials) == (memory.steady, memory.trials):
        return memory
    return replace(memory, steady=steady, trials=trials)


def worth_probing(memory: Memory, view: Outlook, loads: Sequence[float], now: float) -> Probe | None:
    """The trial to begin now, or None."""
    arms = min(memory.pace.trials, ARMS)
    if not arms or not _may(memory, view, now):
        return None
    here = [nearest(load, view.policy.knobs.max_batch) for load in loads]
    incumbent = incumbent_of(view, memory.table)
    rows = np.arange(len(view.points))
    gain = (view.speed - view.speed[rows, incumbent][:, None])[here].mean(axis=0)
    spread = view.against(incumbent).deviation[here].mean(axis=0)
    worth = expected_improvement(gain, spread) * float(lift_of(view, incumbent)[here].mean())
    # Whether the K in force is slow or everything is, only its neighbours can tell: they are tried once in any case.
    survey = (np.abs(np.arange(len(view.ks)) - incumbent[here[0]]) == 1) & (not memory.surveyed)
    affordable = -gain * SECONDS <= BUDGET * AGAIN_SECONDS / MOST_TRIALS / ARMS
    # What a trial may cost in any case is bounded by the hour: those that were made have used up their part.
    left = BUDGET * AGAIN_SECONDS * max(1.0 - len(memory.trials) / MOST_TRIALS, 0.0)
    if _quiet(memory, now):  # nothing tells whether drafts would be accepted again but a few of them
        survey |= view.columns == min((k for k in view.ks if k > 0), default=0)
    survey &= -gain * _length(memory) * arms <= left
    possible = (affordable | survey) & (gain > WORST) & np.all(view.speed[here] > INFEASIBLE / 2, axis=0)
    possible[incumbent[here]] = False
    tokens = NEAR * float(view.points[here].max()) * (view.columns + 1.0)
    possible &= (tokens <= MOST_TOKENS) | (np.arange(len(view.ks)) < incumbent[here].min())
    least = max(memory.pace.worth, AGAIN_WORTH) if _tried(memory) else memory.pace.worth
    rank = np.where(possible & ((worth >= least) | survey), worth + survey, -1.0)
    best = [int(column) for column in np.argsort(-rank)[:arms] if rank[column] >= 0]
    if not best:
        return None
    ks = tuple(view.ks[column] for column in best)
    length = _length(memory)
    return Probe(memory.table, ks[0], now, now + length, next=ks[1:], ends=now + length + GRACE_SECONDS)


def expected_improvement(gain: Array, spread: Array) -> Array:
    """E[max(0, g)] of g normal with mean `gain` and standard deviation `spread`."""
    wide = np.maximum(spread, 1e-12)
    z = gain / wide
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in z])
    return np.asarray(wide * np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi) + gain * below)


def begun(memory: Memory, probe: Probe, view: Outlook, loads: Sequence[float]) -> Memory:
    """Memory with the trial's K in force at loads near those of now; the second K of a trial counts as the same one."""
    goes_on = memory.probe is not None
    memory = replace(
        memory,
        probe=probe,
        table=trial_table(probe, view, loads),
        previous=memory.table,
        changed_at=probe.began,
        pace=memory.pace.spent(),
    )
    if goes_on:
        return memory
    idle = probe.base.k_at(loads[0]) == 0
    later = min(2.0 * memory.retry_seconds, LONGEST_RETRY_SECONDS) if idle else FIRST_RETRY_SECONDS
    trials = (*memory.trials, (probe.began, memory.steady[1]))
    return replace(memory, retry_seconds=later, trials=trials, surveyed=True)


def following(memory: Memory, now: float) -> Probe | None:
    """The trial of the next K, if there is one."""
    probe = memory.probe
    if probe is None or not probe.next:
        return None
    length = _length(memory)
    ends = now + length + GRACE_SECONDS
    return replace(probe, k=probe.next[0], next=probe.next[1:], began=now, until=now + length, ends=ends)


def ended(memory: Memory) -> Memory:
    """Memory without a trial, the base table back in force as far as judging goes."""
    if memory.probe is None:
        return memory
    return replace(memory, table=memory.probe.base, previous=memory.table, probe=None)


def trial_table(probe: Probe, view: Outlook, loads: Sequence[float]) -> KTable:
    """The base table with the trial's K in every cell within a factor 1.5 of a load there is, where graphs allow it."""
    dense = list(probe.base.dense())
    possible = view.speed[:, view.ks.index(probe.k)] > INFEASIBLE / 2
    for row, (first, last) in enumerate(edges(view.policy.knobs.max_batch)):
        if possible[row] and any(_apart(float(view.points[row]), load) <= NEAR for load in loads):
            dense[first - 1 : last] = [probe.k] * (last - first + 1)
            if view.policy.knobs.falling:
                dense[: first - 1] = [max(k, probe.k) for k in dense[: first - 1]]
    return fit(KTable.from_dense(dense), view.policy)


def _length(memory: Memory) -> float:
    """Seconds of the trial of one K: longer where few requests are served, three times at most."""
    return SECONDS * min(max(FEW / max(memory.steady[1], 1.0), 1.0), 3.0)


def _may(memory: Memory, view: Outlook, now: float) -> bool:
    if view.policy.knobs.actuator is not Actuator.LIVE or not view.policy.trials:
        return False
    if len(memory.trials) >= MOST_TRIALS:
        return False
    if now - max(memory.steady[0], memory.changed_at or memory.since) < STEADY_SECONDS:
        return False
    if _quiet(memory, now):  # nothing is learned about drafts while none are made: ask again, ever more rarely
        last = memory.trials[-1][0] if memory.trials else memory.drafted_at
        return last is not None and now - last >= memory.retry_seconds
    return not memory.trials or now - memory.trials[-1][0] >= BETWEEN_SECONDS or not _tried(memory)


def _quiet(memory: Memory, now: float) -> bool:
    """True when nothing has been drafted for a while."""
    return memory.drafted_at is not None and now - memory.drafted_at > STEADY_SECONDS


def _tried(memory: Memory) -> bool:
    """True when K were tried at this load, or one like it, within the hour."""
    return any(_apart(memory.steady[1], other) <= OTHER_LOAD for _, other in memory.trials)


def _apart(one: float, other: float) -> float:
    """Factor between two loads, at least 1."""
    low, high = sorted((max(one, 1.0), max(other, 1.0)))
    return high / low
