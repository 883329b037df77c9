"""Chooses a table: the best K at each batch size, and whether a change to it is worth it; before any measurement, the
table that an object starts with.

Called by decide(); `initial_table` also by reconcile for a new object, and by persistence where a stored table cannot
be read. A table is chosen on a grid of batch sizes at once: the sum of log speed is maximised over tables,
the active K being favoured by a margin. So a cell moves only where its gain exceeds the margin, and a table never
wobbles at a tie. How large the margin is follows from the writes that the deployment has left (pace).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import Actuator, KTable, Trial
from speculative_operator.tuner import rollout
from speculative_operator.tuner.allowed import candidates, fit
from speculative_operator.tuner.grid import best_path, choices, edges, nearest, overlay
from speculative_operator.tuner.outlook import INFEASIBLE, Outlook, incumbent_of, outlook
from speculative_operator.tuner.prior import Array, cost_prior
from speculative_operator.tuner.targets import Targets, limits

CONFIDENCE = 0.5
"""A gain must exceed this many standard deviations of itself: better than even, since a mistake is seen in seconds."""
MEASURED_FIRST = 1.3
"""CONFIDENCE where neither hardware nor models are known and the engine compares K: nine in ten."""
RISE = 0.02
"""Log speed by the prior that a step up of K with load must bring in the first table."""
NEAR = 1.5
"""Loads within this factor of a measured load count as measured."""
NOTHING_EARNED = 0.03
"""Tokens that a step gains by its drafts below which they are useless: they are made, verified and thrown away."""
USELESS_COST = 0.06
"""Least log speed that useless drafts cost, whatever the model says: above any margin, so that they end at once."""
FAR_WEIGHT = 0.05
"""Weight of a gain at a load that was not measured."""
SEEN_SHARE = 0.02
"""Share of the remembered time from which a grid point counts as measured."""
FIRST_SHARE = 0.3
"""Share of the first steps that try drafts, where an object begins at K = 0: about 15 s tell then whether drafts are
accepted. Where they are not, that costs a third of what drafting in every step costs."""
FAVOUR = 0.02
"""Log speed by which another K must beat the start K by the prior."""
DEFAULT_K = 3
"""Start K when the spec names none: the K of most published measurements, and safe on all but the fullest batches."""


@dataclass(frozen=True)
class Proposal:
    """The table thought best, and what it is worth."""

    table: KTable
    worth: float
    """Log speed gained: where a change takes no rollout in the cell that gains most (unmeasured loads count less), else
    the mean over the load of the last hour."""
    needed: float
    """What `worth` must exceed."""
    focus: int
    """Grid index of the changed cell that gains most."""
    now: float
    """Log speed gained at the present loads, mean over replicas."""
    tempting: bool
    """True when, without margins, another K would be best at a measured load."""


def propose(
    view: Outlook,
    table: KTable,
    loads: Sequence[float],
    margin: float,
    confidence: float = CONFIDENCE,
    targets: Targets | None = None,
) -> Proposal:
    """The best table within the limits of `targets`, where `table` is active at `loads` (scheduled requests of each
    replica)."""
    max_batch = view.policy.knobs.max_batch
    incumbent = incumbent_of(view, table)
    found = view.against(incumbent)
    allowed = limits(view, targets) if targets is not None else True
    value, rows = np.where(allowed, found.mean, INFEASIBLE), np.arange(len(incumbent))
    weights = weights_of(view, loads)
    doubt = confidence if rollout.free(view.policy) else rollout.DOUBT
    if view.compares and not view.costs.prior.from_models:
        doubt = max(doubt, MEASURED_FIRST)
    sure = value - doubt * found.deviation
    useless = _useless(view, incumbent)
    value[useless, 0] = np.maximum(value[useless, 0], USELESS_COST)
    sure[useless, 0] = value[useless, 0]
    if view.policy.knobs.actuator is Actuator.RESTART:
        chosen = _one_for_all(sure, _share(view, loads))
    else:
        rise = math.inf if view.policy.knobs.falling else 0.0
        scores = sure - margin
        held = value[rows, incumbent]
        scores[rows, incumbent] = held
        better = bool(np.any(scores > held[:, None]))
        chosen = np.array(best_path(scores * weights[:, None], rise)) if better else incumbent
    if not view.costs.prior.from_models:
        chosen = _only_evidence(chosen, incumbent, weights)
    gain = value[rows, chosen] - value[rows, incumbent]
    new = fit(overlay(table, tuple(view.ks[column] for column in chosen), max_batch), view.policy)
    changed = np.array(choices(new, max_batch)) != np.array(choices(table, max_batch))
    focus = int(np.argmax(np.where(changed, gain * weights, -np.inf)))
    here = [nearest(load, max_batch) for load in loads]
    counted = gain * np.minimum(weights, 1.0)
    if rollout.free(view.policy):
        needed, worth = margin, float(counted.max())
    else:
        needed = rollout.MARGIN + rollout.cost(view.policy)
        worth = float(_share(view, loads) @ (sure[rows, chosen] - value[rows, incumbent]))
    lost = value.max(axis=1) - value[rows, incumbent]
    return Proposal(
        table=new,
        worth=worth,
        needed=needed,
        focus=focus,
        now=float(np.mean(gain[here])),
        tempting=bool(np.any(lost[weights >= 1.0] > 0)),
    )


def _useless(view: Outlook, incumbent: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Grid points at which the active K drafts and earns nothing, where K = 0 is possible without a rollout."""
    if view.ks[0] != 0 or not rollout.free(view.policy):
        return np.zeros(len(incumbent), dtype=bool)
    return np.asarray((view.lengths()[incumbent] < 1.0 + NOTHING_EARNED) & (incumbent > 0))


def weights_of(view: Outlook, loads: Sequence[float]) -> Array:
    """Weight of each grid point in the choice: 1 + its share of the time at or near measured loads, else FAR_WEIGHT."""
    points = view.points
    share = _share(view, loads)
    return np.asarray(np.where(near(points, points[share >= SEEN_SHARE]), 1.0 + share, FAR_WEIGHT))


def _share(view: Outlook, loads: Sequence[float]) -> Array:
    """Share of the time at each grid point, the present loads included: time of the last minutes where a table changes
    without a rollout, of the last hour where it takes one."""
    seen = view.traffic.load if rollout.free(view.policy) else view.traffic.history
    time = np.zeros(len(view.points)) if len(seen) != len(view.points) else np.array(seen)
    here = [nearest(one, view.policy.knobs.max_batch) for one in loads]
    np.add.at(time, here, 1e-9 + time.sum() * SEEN_SHARE)
    return np.asarray(time / time.sum())


def near(points: Array, loads: Array) -> NDArray[np.bool_]:
    """True for each of `points` that lies within a factor NEAR of one of `loads`."""
    ratio = np.abs(np.log(points[:, None] / loads[None, :]))
    return np.asarray(np.any(ratio <= math.log(NEAR) + 1e-9, axis=1))


def least_bad(view: Outlook, table: KTable, scheduled: float, measured: float, margin: float) -> KTable | None:
    """`table` lowered to the best smaller K at the load `scheduled` and all loads above; None when no K gains `margin`.

    The gain is that of the comparisons where the engine compares K; else the predicted log speed over `measured`, the
    log speed of the active K.
    """
    at = nearest(scheduled, view.policy.knobs.max_batch)
    point = float(view.points[at])
    now = table.k_at(point)
    gain = view.against(incumbent_of(view, table)).mean[at] if view.compares else view.speed[at] - measured
    lower = [column for column, k in enumerate(view.ks) if k < now and view.speed[at, column] > INFEASIBLE / 2]
    if not lower:
        return None
    best = max(lower, key=lambda column: float(gain[column]))
    if gain[best] <= margin:
        return None
    start, _ = edges(view.policy.knobs.max_batch)[nearest(point / NEAR**0.5, view.policy.knobs.max_batch)]
    dense = [k if b < start else min(k, view.ks[best]) for b, k in enumerate(table.dense(), start=1)]
    return KTable.from_dense(dense)


def initial_table(policy: Policy) -> KTable:
    """The spec's own schedule; K = 0 where drafts are tried first; else what the prior proposes.

    The start K at every batch size where one K must serve all, and in mode Static.
    """
    knobs = policy.knobs
    if policy.mode is Mode.DISABLED or knobs.actuator is Actuator.NONE:
        return fit(KTable.constant(0, knobs.max_batch), policy)
    if policy.schedule is not None:
        return fit(policy.schedule, policy)
    if policy.mode is Mode.STATIC or knobs.actuator is Actuator.RESTART:
        return KTable.constant(_start_k(policy), knobs.max_batch)
    return KTable.constant(0, knobs.max_batch) if tries_first(policy) else table_by_prior(policy)


def tries_first(policy: Policy) -> bool:
    """True where an object begins as a pod without a speculator does, and tries drafts: pods skip the speculator at
    K = 0, and can try another K for a share of their steps."""
    live = policy.mode is Mode.AUTO and policy.schedule is None and policy.knobs.actuator is Actuator.LIVE
    return live and policy.trials and policy.skips and candidates(policy)[0] == 0


def initial_trials(policy: Policy) -> tuple[Trial, ...]:
    """What pods try beside the initial table: the K of the prior, at the batch sizes where it proposes any."""
    rows = table_by_prior(policy) if tries_first(policy) else ()
    return tuple(Trial(row.first, row.last, (row.k,), FIRST_SHARE) for row in rows if row.k)


def table_by_prior(policy: Policy) -> KTable:
    """The start K, lowered where the prior says that fewer drafts are clearly faster; where hardware or models are
    unknown, as far as the captured graphs reach."""
    start = _start_k(policy)
    known = cost_prior(policy.facts, policy.knobs).from_models
    return _cautious(policy, start) if known else _within_graphs(policy, start)


def _start_k(policy: Policy) -> int:
    ks = candidates(policy)
    wanted = policy.start_k if policy.start_k is not None else DEFAULT_K
    return max((k for k in ks if k <= wanted), default=ks[0])


def _within_graphs(policy: Policy, start: int) -> KTable:
    """A table with the start K, and with fewer drafts at the loads whose tokens would exceed the largest graph."""
    ks, ceiling = candidates(policy), policy.knobs.capture_ceiling_tokens or math.inf
    loads = range(1, policy.knobs.max_batch + 1)
    dense = [max((k for k in ks if k <= start and load * (k + 1) <= ceiling), default=ks[0]) for load in loads]
    return KTable.from_dense(dense)


def _cautious(policy: Policy, start: int) -> KTable:
    """A table with the start K, and with fewer drafts at the loads where the prior says that fewer are clearly
    faster."""
    view = outlook(policy)
    allowed = max((column for column, k in enumerate(view.ks) if k <= start), default=0) + 1
    scores = view.speed[:, :allowed].copy()
    scores[:, -1] += FAVOUR
    rise = math.inf if policy.knobs.falling else RISE
    dense: list[int] = []
    for column, (first, last) in zip(best_path(scores, rise), edges(policy.knobs.max_batch), strict=True):
        dense += [view.ks[column]] * (last - first + 1)
    return KTable.from_dense(dense)


def _one_for_all(value: Array, share: Array) -> NDArray[np.int64]:
    """The column with the best mean over the measured loads, at every grid point: for engines that hold one K."""
    return np.full(len(value), int(np.argmax(share @ value)))


def _only_evidence(chosen: NDArray[np.int64], incumbent: NDArray[np.int64], weights: Array) -> NDArray[np.int64]:
    """`chosen` for unknown hardware or models: changed only near measured loads, and raised by one K at a time."""
    return np.asarray(np.where(weights >= 1.0, np.minimum(chosen, incumbent + 1), incumbent))
