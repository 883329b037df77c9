"""Protects pods from drafts that lose speed: where that is measured, and where nobody would notice it.

Called by decide(). The guard cuts drafts that were measured to be slow twice in a row, however recent the last change
is. In a long outage of metrics it is blind: the engine goes on looking its K up by load, so a table that was found
right stays right while the load moves, and a change would only cost speed; but nobody would notice drafts that lose at
loads where they were never shown to pay. So once, ten minutes into an outage, K falls at each load to the largest K up
to the active one that evidence has shown to be no slower than no drafts, or to 0 where no K has been shown so.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.tuner.acceptance import PRIOR_WEIGHT, age
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.grid import nearest, overlay
from speculative_operator.tuner.judge import least_bad
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.outlook import QUANTILE, Outlook, incumbent_of, outlook
from speculative_operator.tuner.report import measured_speed
from speculative_operator.tuner.traffic import Look

GUARD_SHARE = 0.98
"""Measured speed below this share of no speculation (lower bound) counts as slow."""
GUARD_GAIN = 0.03
"""Log speed that fewer drafts must bring for the guard to cut them."""
GUARD_WINDOWS = 2
"""Slow observations in a row after which the guard cuts drafts, however recent the last change is."""
BLIND_SECONDS = 600.0
"""Longer than Prometheus takes to restart and read its log, or a node to be replaced."""
_NO_OUTAGE = frozenset({Reason.IDLE, Reason.NO_PODS})
"""Reasons that are no outage: the operator knows that no pod serves a request."""


def count_slow(memory: Memory, view: Outlook, look: Look) -> Memory:
    """Memory with the count of observations in a row in which drafting was slower than no drafts (lower bound)."""
    k = memory.table.k_at(look.scheduled)
    seen = measured_speed(view, look, k)
    if k == 0 or seen is None:
        return replace(memory, slow_windows=0) if memory.slow_windows else memory
    at = nearest(look.scheduled, view.policy.knobs.max_batch)
    if view.compares and 0 in view.ks:
        found = view.against(incumbent_of(view, memory.table))
        slow = found.mean[at, 0] - QUANTILE * found.deviation[at, 0] > -math.log(GUARD_SHARE)
    else:
        off = view.at(look.batch, 0 if 0 in view.ks else None)
        width = QUANTILE * math.hypot(float(view.costs.deviation(view.off_gradients[at])), view.costs.unrest)
        slow = seen < math.log(GUARD_SHARE) + off - width
    if not slow and not memory.slow_windows:
        return memory
    return replace(memory, slow_windows=memory.slow_windows + 1 if slow else 0)


def guard(memory: Memory, view: Outlook, look: Look) -> KTable | None:
    """The table with fewer drafts, when drafting has been slow for too long and a smaller K is better; else None."""
    policy = view.policy
    if (
        memory.slow_windows < GUARD_WINDOWS
        or policy.knobs.actuator is not Actuator.LIVE
        or policy.mode is not Mode.AUTO
    ):
        return None
    seen = measured_speed(view, look, memory.table.k_at(look.scheduled))
    if seen is None:
        return None
    less = least_bad(view, memory.table, look.scheduled, seen, GUARD_GAIN)
    return less if less != memory.table else None


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
    allowed = policy.mode is Mode.AUTO and policy.knobs.actuator is Actuator.LIVE and not memory.removed
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
