"""Prices a change that needs a rollout and says when it is worth it: actuators Table and Restart, and hard off.

Called by judge, removal and decide(). Without trials a K that never ran is believed less. A change follows the loads of
the last hour, not of the last minutes, and is made only when it has looked right for a while.
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
"""Log speed that a change must bring beyond the cost of its rollout."""
DOUBT = 0.84
"""Standard deviations by which the gain is reduced: it is then 80 % sure, as for hard off."""
LASTING_SECONDS = 600.0
"""Seconds for which a change must have looked worth its rollout."""


def cost(policy: Policy) -> float:
    """Share of the horizon's serving that a rollout loses. Replicas lose it one after the other, each its own."""
    return max(policy.start_seconds or 0.0, RESTART_SECONDS) / HORIZON_SECONDS


def free(policy: Policy) -> bool:
    """True where a table changes without a rollout, while pods serve."""
    return policy.knobs.actuator is Actuator.LIVE


def track_worth(memory: Memory, worth: bool, now: float) -> Memory:
    """Memory with the time since when a change has looked worth its rollout; none where `worth` is False."""
    since = (memory.wanted_since if memory.wanted_since is not None else now) if worth else None
    return memory if since == memory.wanted_since else replace(memory, wanted_since=since)


def remaining_seconds(memory: Memory, now: float) -> float:
    """Seconds for which the change must still look worth its rollout."""
    return LASTING_SECONDS - (now - memory.wanted_since) if memory.wanted_since is not None else LASTING_SECONDS
