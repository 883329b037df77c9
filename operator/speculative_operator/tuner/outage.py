"""Falls back to the proven part of a table in a long outage of metrics. Called by decide().

The engine goes on looking its K up by load, so a table that was found right stays right while the load moves, and a
change would only cost speed. But the guard is blind: nobody would notice drafts that lose speed at loads where they
were never shown to pay. So once, ten minutes into an outage, K falls at each load to the largest K up to the active one
that evidence has shown to be no slower than no drafts, or to 0 where no K has been shown so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.acceptance import PRIOR_WEIGHT, age
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.grid import overlay
from speculative_operator.tuner.judge import incumbent_of
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.outlook import QUANTILE, outlook

BLIND_SECONDS = 600.0
"""Longer than Prometheus takes to restart and read its log, or a node to be replaced."""
_NO_OUTAGE = frozenset({Reason.IDLE, Reason.NO_PODS})
"""Reasons that are no outage: the operator knows that no pod serves a request."""


def watch_sight(memory: Memory, reason: Reason, now: float) -> Memory:
    """Memory with the begin of the outage, after a look at the pods that could not be believed for `reason`."""
    if reason in _NO_OUTAGE:
        return replace(memory, blind_since=None)
    known = memory.blind_since is not None and memory.blind_since <= now
    return memory if known else replace(memory, blind_since=now)


def to_fall_back(memory: Memory, policy: Policy, now: float) -> bool:
    """True once in an outage of BLIND_SECONDS, where a table reaches pods without a rollout. False where figures never
    came: the prior is then a better guess than no drafts at all."""
    lost = memory.updated_at is not None and memory.blind_since is not None
    blind = lost and now - (memory.blind_since or now) >= BLIND_SECONDS
    allowed = policy.mode is Mode.AUTO and policy.knobs.actuator is Actuator.LIVE and not memory.hard_off
    return blind and allowed and memory.before_outage is None


def proven(memory: Memory, table: KTable, policy: Policy, now: float) -> KTable:
    """`table` with each K lowered to one that evidence shows to be no slower than no drafts (lower end of an 80 %
    interval), or to 0."""
    evidence = age(memory.acceptance, now - memory.updated_at if memory.updated_at is not None else 0.0)
    view = outlook(policy, memory.costs, evidence, memory.traffic, cells=memory.cells, compares=bool(memory.cells))
    incumbent, none = incumbent_of(view, table), np.zeros(len(view.points), dtype=np.int64)
    found = view.against(none)
    sure = found.mean - QUANTILE * found.deviation >= 0.0
    if not evidence.reached or evidence.reached[0] < PRIOR_WEIGHT:
        sure[:] = False  # acceptance still rests more on the prior than on counts
    sure[:, 0] = True
    possible = sure & (np.arange(len(view.ks))[None, :] <= incumbent[:, None])
    largest = len(view.ks) - 1 - np.argmax(possible[:, ::-1], axis=1)
    return fit(overlay(table, tuple(view.ks[column] for column in largest), policy.knobs.max_batch), policy)
