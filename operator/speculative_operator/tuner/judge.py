"""Choosing a table: the best K at each batch size, and whether changing to it is worth it.

Called by decide(). A table is chosen on a grid of batch sizes at once: the sum of log speed is maximised over tables,
the K in force being favoured by a margin. So a cell moves only where its gain exceeds the margin, and a table never
wobbles at a tie. How large the margin is follows from the writes that the deployment has left (pace).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import rollout
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.grid import best_path, choices, edges, nearest, overlay
from speculative_operator.tuner.outlook import INFEASIBLE, Outlook
from speculative_operator.tuner.prior import Array
from speculative_operator.tuner.targets import Targets, limits

CONFIDENCE = 0.5
"""A gain must exceed this many standard deviations of itself: better than even, since a mistake is seen in seconds."""
MEASURED_FIRST = 1.3
"""The same where neither hardware nor models are known and K can be compared: nine in ten."""
RISE = 0.02
RISE_EXPERTS = 0.005
"""Log speed that a K which rises with load must bring, of dense models and of mixtures of experts."""
NEAR = 1.5
"""Loads within this factor of one seen count as seen."""
NOTHING_EARNED = 0.03
"""Tokens that a step gains by its drafts below which they are useless: they are made, verified and thrown away."""
USELESS_COST = 0.06
"""Log speed that useless drafts cost at least, whatever the model says: above any margin, so that they end at once."""
MISLED = 0.1
"""Log speed that the least K may be worse than the best of those below the K in force, and is taken: what misled about
one K may mislead about its neighbour."""
PAST_WEIGHT = 0.25
FAR_WEIGHT = 0.05
"""What a gain counts at a load that was seen in the last minutes but is not there now, and at one not seen at all."""
SEEN_SHARE = 0.02
"""Share of the remembered time that makes a grid point seen."""


@dataclass(frozen=True)
class Proposal:
    """The table thought best, and what it is worth."""

    table: KTable
    worth: float
    """Log speed gained in the cell that gains most, loads of the past and loads never seen counting less."""
    needed: float
    """What `worth` must exceed."""
    focus: int
    """Grid index of that cell."""
    now: float
    """Log speed gained at the loads there are now, mean over replicas."""
    tempting: bool
    """True when, without margins, another K would be best at a load seen."""


def propose(
    view: Outlook,
    table: KTable,
    loads: Sequence[float],
    margin: float,
    confidence: float = CONFIDENCE,
    targets: Targets | None = None,
) -> Proposal:
    """The best table given that `table` is in force at `loads` (scheduled requests of each replica), and the limits of
    `targets`."""
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
        scores = sure - margin
        held = value[rows, incumbent]
        scores[rows, incumbent] = held
        better = bool(np.any(scores > held[:, None]))
        chosen = np.array(best_path(scores * weights[:, None], _rise(view.policy))) if better else incumbent
    if not view.costs.prior.from_models:
        chosen = _only_evidence(chosen, incumbent, weights)
    gain = value[rows, chosen] - value[rows, incumbent]
    new = fit(overlay(table, tuple(view.ks[column] for column in chosen), max_batch), view.policy)
    changed = np.array(choices(new, max_batch)) != np.array(choices(table, max_batch))
    focus = int(np.argmax(np.where(changed, gain * weights, -np.inf)))
    here = [nearest(load, max_batch) for load in loads]
    now = near(view.points, view.points[here])
    counted = gain * np.where(now, 1.0, np.where(weights >= 1.0, PAST_WEIGHT, FAR_WEIGHT))
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
    """Points at which drafts are made that earn nothing, and could be left out at once."""
    if view.ks[0] != 0 or not rollout.free(view.policy):
        return np.zeros(len(incumbent), dtype=bool)
    return np.asarray((view.lengths()[incumbent] < 1.0 + NOTHING_EARNED) & (incumbent > 0))


def incumbent_of(view: Outlook, table: KTable) -> NDArray[np.int64]:
    """Column in force at each grid point; a K outside the candidates counts as the nearest of them."""
    held = np.array(choices(table, view.policy.knobs.max_batch))
    return np.asarray(np.argmin(np.abs(view.columns[None, :] - held[:, None]), axis=1))


def weights_of(view: Outlook, loads: Sequence[float]) -> Array:
    """Weight of each grid point in the choice: 1 + its share of the time where seen or near it, else little."""
    points = view.points
    share = _share(view, loads)
    return np.asarray(np.where(near(points, points[share >= SEEN_SHARE]), 1.0 + share, FAR_WEIGHT))


def _share(view: Outlook, loads: Sequence[float]) -> Array:
    """Share of the time at each grid point, the loads of now among them: of the last minutes where a table changes at
    once, of the last hour where pods are replaced for it."""
    seen = view.traffic.load if rollout.free(view.policy) else view.traffic.history
    time = np.zeros(len(view.points)) if len(seen) != len(view.points) else np.array(seen)
    here = [nearest(one, view.policy.knobs.max_batch) for one in loads]
    np.add.at(time, here, 1e-9 + time.sum() * SEEN_SHARE)
    return np.asarray(time / time.sum())


def near(points: Array, loads: Array) -> NDArray[np.bool_]:
    """Which of `points` lie within a factor NEAR of one of `loads`."""
    ratio = np.abs(np.log(points[:, None] / loads[None, :]))
    return np.asarray(np.any(ratio <= math.log(NEAR) + 1e-9, axis=1))


def least_bad(view: Outlook, table: KTable, scheduled: float, measured: float, margin: float) -> KTable | None:
    """`table` with the load seen and all above it lowered to the best K, or None when none is better by `margin`.

    Best by what was compared where the engine compares K; else by prediction over `measured`, the log speed of the K in
    force.
    """
    at = nearest(scheduled, view.policy.knobs.max_batch)
    point = float(view.points[at])
    now = table.k_at(point)
    gain = view.against(incumbent_of(view, table)).mean[at] if view.compares else view.speed[at] - measured
    lower = [column for column, k in enumerate(view.ks) if k < now and view.speed[at, column] > INFEASIBLE / 2]
    if not lower:
        return None
    best = max(lower, key=lambda column: float(gain[column]))
    if gain[lower[0]] >= gain[best] - MISLED:
        best = lower[0]
    if gain[best] <= margin:
        return None
    start, _ = edges(view.policy.knobs.max_batch)[nearest(point / NEAR**0.5, view.policy.knobs.max_batch)]
    dense = [k if b < start else min(k, view.ks[best]) for b, k in enumerate(table.dense(), start=1)]
    return KTable.from_dense(dense)


def _rise(policy: Policy) -> float:
    """The price of a step up: none for a mixture of experts, whose best K may rise again with load; endless where the
    engine knows no step up."""
    if policy.knobs.falling:
        return math.inf
    dense = policy.facts.verifier is None or policy.facts.verifier.experts == 0
    return RISE if dense else RISE_EXPERTS


def _one_for_all(value: Array, share: Array) -> NDArray[np.int64]:
    """The one column with the best mean over the loads seen, for engines that hold one K."""
    return np.full(len(value), int(np.argmax(share @ value)))


def _only_evidence(chosen: NDArray[np.int64], incumbent: NDArray[np.int64], weights: Array) -> NDArray[np.int64]:
    """With no knowledge of hardware or models: cells near loads seen only, and upward one K at a time."""
    return np.asarray(np.where(weights >= 1.0, np.minimum(chosen, incumbent + 1), incumbent))
