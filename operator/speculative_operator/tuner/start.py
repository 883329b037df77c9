"""Chooses the table that an object starts with, before any measurement.

Called by reconcile for a new object, and by persistence where a stored table cannot be read.
"""

from __future__ import annotations

import math

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.grid import best_path, edges
from speculative_operator.tuner.judge import RISE
from speculative_operator.tuner.outlook import outlook
from speculative_operator.tuner.prior import candidates, cost_prior

FAVOUR = 0.02
"""Log speed by which another K must beat the start K by the prior."""
DEFAULT_K = 3
"""Start K when the spec names none: the K of most published measurements, and safe on all but the fullest batches."""


def initial_table(policy: Policy) -> KTable:
    """The spec's own schedule; else the start K, lowered where the prior says that fewer drafts are clearly faster.

    The start K at every load where hardware or models are unknown, where one K must serve all loads, and in mode
    Static.
    """
    knobs = policy.knobs
    if policy.mode is Mode.DISABLED or knobs.actuator is Actuator.NONE:
        return fit(KTable.constant(0, knobs.max_batch), policy)
    if policy.schedule is not None:
        return fit(policy.schedule, policy)
    start = _start_k(policy)
    known = cost_prior(policy.facts, knobs).from_models
    if policy.mode is Mode.STATIC or knobs.actuator is Actuator.RESTART or not known:
        return KTable.constant(start, knobs.max_batch)
    return _cautious(policy, start)


def _start_k(policy: Policy) -> int:
    ks = candidates(policy)
    wanted = policy.start_k if policy.start_k is not None else DEFAULT_K
    return max((k for k in ks if k <= wanted), default=ks[0])


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
