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
from speculative_operator.tuner.grid import edges, nearest
from speculative_operator.tuner.judge import NEAR, incumbent_of
from speculative_operator.tuner.memory import FIRST_RETRY_SECONDS, Memory, Probe
from speculative_operator.tuner.outlook import INFEASIBLE, Outlook
from speculative_operator.tuner.prior import Array

SECONDS = 15.0
"""Length of a trial: two or three windows, hundreds of steps."""
WORTH = 0.006
"""Expected improvement (log speed) from which a trial is made."""
EVERY_SECONDS = 1500.0
"""Least time between trials while drafts are made: each may cost two writes."""
LONGEST_RETRY_SECONDS = 1800.0
SETTLED_SECONDS = 120.0
"""So long after a change of table, or of the memory's beginning, nothing is tried."""
BUDGET = 0.004
"""Share of what is served that trials may cost, over the time since the last one."""
WORST = -0.30
"""Log speed below which a K is not tried, whatever knowing is worth."""


def worth_probing(memory: Memory, view: Outlook, loads: Sequence[float], now: float) -> Probe | None:
    """The trial to begin now, or None."""
    if not _may(memory, view, now):
        return None
    here = [nearest(load, view.policy.knobs.max_batch) for load in loads]
    incumbent = incumbent_of(view, memory.table)
    rows = np.arange(len(view.points))
    gain = (view.speed - view.speed[rows, incumbent][:, None])[here].mean(axis=0)
    spread = view.deviation_from(incumbent)[here].mean(axis=0)
    worth = expected_improvement(gain, spread)
    worth[incumbent[here]] = 0.0
    waited = now - (memory.probed_at if memory.probed_at is not None else memory.since)
    affordable = -gain * SECONDS <= BUDGET * max(waited, SETTLED_SECONDS)
    possible = affordable & (gain > WORST) & np.all(view.speed[here] > INFEASIBLE / 2, axis=0)
    worth = np.where(possible, worth, 0.0)
    best = int(np.argmax(worth))
    if worth[best] < WORTH:
        return None
    return Probe(base=memory.table, k=view.ks[best], began=now, until=now + SECONDS)


def expected_improvement(gain: Array, spread: Array) -> Array:
    """E[max(0, g)] of g normal with mean `gain` and standard deviation `spread`."""
    z = gain / np.maximum(spread, 1e-12)
    density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    below = 0.5 * (1.0 + np.vectorize(math.erf)(z / math.sqrt(2.0)))
    return np.asarray(spread * density + gain * below)


def begun(memory: Memory, probe: Probe, view: Outlook, loads: Sequence[float]) -> Memory:
    """Memory with the trial's K in force at loads near those of now."""
    table = trial_table(probe, view, loads)
    idle = memory.table.k_at(loads[0]) == 0
    later = min(2.0 * memory.retry_seconds, LONGEST_RETRY_SECONDS) if idle else FIRST_RETRY_SECONDS
    return replace(
        memory, probe=probe, probed_at=probe.began, retry_seconds=later, table=table, previous=memory.table,
        changed_at=probe.began,
    )  # fmt: skip


def ended(memory: Memory) -> Memory:
    """Memory without a trial, the base table back in force as far as judging goes."""
    if memory.probe is None:
        return memory
    return replace(memory, table=memory.probe.base, previous=memory.table, probe=None)


def trial_table(probe: Probe, view: Outlook, loads: Sequence[float]) -> KTable:
    """The base table with the trial's K in every cell within a factor 1.5 of a load there is."""
    dense = list(probe.base.dense())
    for (first, last), point in zip(edges(view.policy.knobs.max_batch), view.points, strict=True):
        if any(1.0 / NEAR <= point / max(load, 1.0) <= NEAR for load in loads):
            dense[first - 1 : last] = [probe.k] * (last - first + 1)
    return KTable.from_dense(dense)


def _may(memory: Memory, view: Outlook, now: float) -> bool:
    if view.policy.knobs.actuator is not Actuator.LIVE or memory.windows < 6:
        return False
    began = max(memory.since, memory.changed_at or memory.since)
    if now - began < SETTLED_SECONDS:
        return False
    quiet = memory.drafted_at is not None and now - memory.drafted_at > SECONDS
    wait = memory.retry_seconds if quiet else EVERY_SECONDS
    return memory.probed_at is None or now - memory.probed_at >= wait
