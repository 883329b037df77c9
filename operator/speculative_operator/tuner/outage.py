"""What stays of a table when nothing that can be believed was seen for minutes, and its way back. Called by decide().

The engine goes on looking its K up by load, so a table that was found right stays right while the load moves, and
changing it would only cost speed. What nobody would notice any more are drafts that lose where they were never shown to
pay: the guard is blind. So once, ten minutes into an outage, each load falls back to the largest K, of those up to the
one in force, that evidence has shown to be no slower than no drafts; where there is none, to no drafts.
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
"""Nothing was served, which is known."""


def watch_sight(memory: Memory, reason: Reason, now: float) -> Memory:
    """Memory that knows since when nothing could be believed, after a look that was not, for `reason`."""
    if reason in _NO_OUTAGE:
        return replace(memory, blind_since=None)
    known = memory.blind_since is not None and memory.blind_since <= now
    return memory if known else replace(memory, blind_since=now)


def to_fall_back(memory: Memory, policy: Policy, now: float) -> bool:
    """True once in an outage, where a table reaches pods without a rollout. Where figures never came there is none: no
    drafts at all would be a worse guess than the prior."""
    lost = memory.updated_at is not None and memory.blind_since is not None
    blind = lost and now - (memory.blind_since or now) >= BLIND_SECONDS
    allowed = policy.mode is Mode.AUTO and policy.knobs.actuator is Actuator.LIVE and not memory.hard_off
    return blind and allowed and memory.before_outage is None


def proven(memory: Memory, table: KTable, policy: Policy, now: float) -> KTable:
    """What of `table` evidence has shown to be no slower than no drafts, by the lower end of an 80 % interval."""
    evidence = age(memory.acceptance, now - memory.updated_at if memory.updated_at is not None else 0.0)
    view = outlook(policy, memory.costs, evidence, memory.traffic, cells=memory.cells, compares=bool(memory.cells))
    incumbent, none = incumbent_of(view, table), np.zeros(len(view.points), dtype=np.int64)
    found = view.against(none)
    sure = found.mean - QUANTILE * found.deviation >= 0.0
    if not evidence.reached or evidence.reached[0] < PRIOR_WEIGHT:
        sure[:] = False  # what drafts earn is still more expected than seen
    sure[:, 0] = True
    possible = sure & (np.arange(len(view.ks))[None, :] <= incumbent[:, None])
    largest = len(view.ks) - 1 - np.argmax(possible[:, ::-1], axis=1)
    return fit(overlay(table, tuple(view.ks[column] for column in largest), policy.knobs.max_batch), policy)
