"""Choosing a table: the best K at each batch size, and whether changing to it is worth it.

Called by decide(). A table is chosen on a grid of batch sizes at once: the sum of log goodput is maximised over all
tables whose K never rises with load (dense models), the K in force being favoured by the margin. So a cell moves only
where its gain exceeds the margin, and a table never wobbles at a tie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.grid import best_path, choices, grid, nearest, overlay
from speculative_operator.tuner.outlook import Outlook
from speculative_operator.tuner.prior import Array

MARGIN = 0.02
"""Log goodput that another K must bring before a cell moves to it."""
OFF_MARGIN = 0.03
"""The same for a move into or out of K = 0: the two are measured by different means."""
NEAR = 1.5
"""Loads within this factor of one seen count as seen."""
PAST_WEIGHT = 0.5
FAR_WEIGHT = 0.2
"""What a gain counts at a load that was seen in the last minutes but is not there now, and at one not seen at all."""
SEEN_SHARE = 0.02
"""Share of the remembered time that makes a grid point seen."""
RESTART_SECONDS = 150.0
"""Serving lost for a replica when its pod is replaced: load of weights, compilation, graph capture."""
HORIZON_SECONDS = 3600.0
"""A restart must pay for itself within this time."""
LIVE_DWELL = 60.0
ROLLOUT_DWELL = 600.0
"""Seconds between changes: of a file that pods re-read; of the pod template."""


@dataclass(frozen=True)
class Proposal:
    """The table thought best, and what it is worth."""

    table: KTable
    worth: float
    """Log goodput gained in the cell that gains most, loads of the past and loads never seen counting less."""
    needed: float
    """What `worth` must exceed."""
    focus: int
    """Grid index of that cell."""
    tempting: bool
    """True when, without margins, another K would be best at a load seen."""


def propose(view: Outlook, table: KTable, load: tuple[float, ...], scheduled: float) -> Proposal:
    """The best table given that `table` is in force."""
    max_batch = view.policy.knobs.max_batch
    points = np.array(grid(max_batch), dtype=float)
    speed = view.log_speed(points)
    weights = _weights(load, scheduled, max_batch)
    incumbent = _incumbent(view, table)
    if view.policy.knobs.actuator is Actuator.RESTART:
        chosen = _one_for_all(speed, load, nearest(scheduled, max_batch))
    else:
        chosen = _columns(view, _margined(speed, view.ks, incumbent), weights)
    if not view.costs.prior.known:
        chosen = _only_evidence(chosen, incumbent, weights)
    rows = np.arange(len(points))
    gain = speed[rows, chosen] - speed[rows, incumbent]
    new = overlay(table, tuple(view.ks[c] for c in chosen), max_batch, monotone=dense_model(view.policy))
    changed = np.array(choices(new, max_batch)) != np.array(choices(table, max_batch))
    focus = int(np.argmax(np.where(changed, gain * weights, -np.inf)))
    now = _near(points, np.array([points[nearest(scheduled, max_batch)]]))
    counted = gain * np.where(now, 1.0, np.where(weights >= 1.0, PAST_WEIGHT, FAR_WEIGHT))
    needed, worth = _price(view.policy, gain, counted, load)
    lost = speed.max(axis=1) - speed[rows, incumbent]
    return Proposal(new, worth, needed, focus, tempting=bool(np.any(lost[weights >= 1.0] > 0)))


def dense_model(policy: Policy) -> bool:
    """False for a mixture of experts, whose best K may rise again with load."""
    return policy.facts.verifier is None or policy.facts.verifier.experts == 0


def dwell_seconds(policy: Policy) -> float:
    """Least time between two changes, by what a change costs."""
    return LIVE_DWELL if policy.knobs.actuator is Actuator.LIVE else ROLLOUT_DWELL


def least_bad(view: Outlook, table: KTable, scheduled: float, measured: float) -> KTable | None:
    """`table` with the load seen and all above it lowered to the best K by prediction, or None when none is better.

    `measured` is the log goodput measured with the K in force, which replaces its prediction.
    """
    at = nearest(scheduled, view.policy.knobs.max_batch)
    point = float(grid(view.policy.knobs.max_batch)[at])
    now = table.k_at(point)
    speed = view.log_speed(np.array([point]))[0]
    lower = [column for column, k in enumerate(view.ks) if k < now]
    if not lower:
        return None
    best = max(lower, key=lambda column: float(speed[column]))
    if speed[best] <= measured + MARGIN:
        return None
    start = max(int(point / NEAR**0.5), 1)
    dense = [k if b < start else min(k, view.ks[best]) for b, k in enumerate(table.dense(), start=1)]
    return KTable.from_dense(dense)


def _incumbent(view: Outlook, table: KTable) -> Array:
    """Column in force at each grid point; a K outside the candidates counts as the nearest of them."""
    ks = np.array(view.ks)
    held = np.array(choices(table, view.policy.knobs.max_batch))
    return np.asarray(np.argmin(np.abs(ks[None, :] - held[:, None]), axis=1))


def _margined(speed: Array, ks: tuple[int, ...], incumbent: Array) -> Array:
    off = np.array(ks) == 0
    columns = np.arange(len(ks))
    crossing = off[None, :] != off[incumbent][:, None]
    penalty = np.where(crossing, OFF_MARGIN, MARGIN)
    return np.asarray(speed - np.where(columns[None, :] == incumbent[:, None], 0.0, penalty))


def _columns(view: Outlook, scores: Array, weights: Array) -> Array:
    if not dense_model(view.policy):
        return np.asarray(np.argmax(scores, axis=1))
    return np.array(best_path(scores * weights[:, None]))


def _weights(load: tuple[float, ...], scheduled: float, max_batch: int) -> Array:
    """Weight of each grid point in the choice: 1 + its share of the time where seen or near it, else one fifth."""
    points = np.array(grid(max_batch), dtype=float)
    time = np.zeros(len(points)) if len(load) != len(points) else np.array(load)
    time[nearest(scheduled, max_batch)] += 1e-9 + time.sum() * SEEN_SHARE
    share = time / time.sum()
    visited = points[share >= SEEN_SHARE]
    return np.asarray(np.where(_near(points, visited), 1.0 + share, FAR_WEIGHT))


def _near(points: Array, loads: Array) -> NDArray[np.bool_]:
    ratio = np.abs(np.log(points[:, None] / loads[None, :]))
    return np.asarray(np.any(ratio <= math.log(NEAR) + 1e-9, axis=1))


def _one_for_all(speed: Array, load: tuple[float, ...], at: int) -> Array:
    """The one column with the best time-weighted mean over the loads seen, for engines that hold one K."""
    time = np.zeros(len(speed)) if len(load) != len(speed) else np.array(load)
    time[at] += 1e-9
    mean = time @ speed / time.sum()
    return np.full(len(speed), int(np.argmax(mean)))


def _only_evidence(chosen: Array, incumbent: Array, weights: Array) -> Array:
    """With no knowledge of hardware or models: cells near loads seen only, and upward one K at a time."""
    return np.asarray(np.where(weights >= 1.0, np.minimum(chosen, incumbent + 1), incumbent))


def _price(policy: Policy, gain: Array, counted: Array, load: tuple[float, ...]) -> tuple[float, float]:
    """(gain needed, gain expected): the best cell where a change is free, the mean over loads where pods restart."""
    if policy.knobs.actuator is Actuator.LIVE:
        return MARGIN, float(counted.max())
    time = np.array(load) if len(load) == len(gain) and sum(load) > 0 else np.ones(len(gain))
    return MARGIN + RESTART_SECONDS / HORIZON_SECONDS, float(gain @ time / time.sum())
