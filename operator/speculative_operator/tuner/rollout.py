"""What a change costs where pods are replaced for it, and when it is worth that: actuators Table, Restart; unloading.

Called by judge, removal and decide(). Nothing can be tried there, so that a K that never ran is believed less; a change
is made on what the last hour needed, not on what the last minutes did, and only when it has looked right for a while.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator

if TYPE_CHECKING:
    from speculative_operator.tuner.memory import Memory

RESTART_SECONDS = 150.0
"""Serving that a replica loses when its pod is replaced: drain, scheduling, image, weights, compilation, capture. What
is measured of starts tells only of the last three, so it can only add."""
HORIZON_SECONDS = 3600.0
"""A change must pay for the rollout within this time."""
MARGIN = 0.02
"""Log speed that must be left over."""
DOUBT = 0.84
"""Standard deviations by which the gain is taken lower: surely by 80 %, as for unloading."""
LASTING_SECONDS = 600.0
"""So long a change must have looked worth its price."""


def cost(policy: Policy) -> float:
    """Share of the horizon's serving that a rollout loses. Replicas lose it one after the other, each its own."""
    return max(policy.start_seconds or 0.0, RESTART_SECONDS) / HORIZON_SECONDS


def free(policy: Policy) -> bool:
    """True where a table changes while pods serve."""
    return policy.knobs.actuator is Actuator.LIVE


def track_worth(memory: Memory, worth: bool, now: float) -> Memory:
    """Memory that knows since when a rollout has looked worth its price."""
    since = (memory.wanted_since if memory.wanted_since is not None else now) if worth else None
    return memory if since == memory.wanted_since else replace(memory, wanted_since=since)


def remaining_seconds(memory: Memory, now: float) -> float:
    """How much longer it must look so."""
    return LASTING_SECONDS - (now - memory.wanted_since) if memory.wanted_since is not None else LASTING_SECONDS
