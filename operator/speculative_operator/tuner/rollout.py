"""Prices changes that replace pods, and says when they are worth it: another K by actuators Table and Restart, and pods
without a speculator (offPolicy Remove).

Called by judge and decide(). A rollout costs minutes of serving. Without trials a K that never ran is believed less, so
a change follows the loads of the last hour, not of the last minutes, and is made only when it has looked right for a
while. K = 0 still pays for the speculator's pass and its memory; only a rollout without it returns them. So it is made
when pods without a speculator are clearly faster than any table, and when it pays for itself within the hour.
"""

from __future__ import annotations

from dataclasses import replace

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import Actuator
from speculative_operator.tuner.gain import Gain, removal_gain
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.outlook import Outlook

RESTART_SECONDS = 150.0
"""Serving that a replica loses when its pod is replaced: drain, scheduling, image, weights, compilation, capture. What
is measured of starts tells only of the last three, so it can only add."""
HORIZON_SECONDS = 3600.0
"""A change must pay for the rollout within this time."""
MARGIN = 0.02
"""Log speed that a change must bring beyond the cost of its rollout."""
DOUBT = 0.84
"""Standard deviations by which a gain is reduced: it is then 80 % sure."""
LASTING_SECONDS = 600.0
"""Seconds for which a change must have looked worth its rollout, or the speculator dead weight."""
GAIN = 0.05
"""Log speed that pods without speculator must bring: less is not worth a rollout, nor surely true."""
FIRST_SECONDS = 900.0
"""The deployment must have been seen for this long before it loses its speculator."""
RETURN_GAIN = 0.08
RETURN_SECONDS = 3600.0
"""For the speculator's return: log speed that it must bring by the remembered evidence, and least seconds without."""


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


def track_dead_weight(memory: Memory, found: Gain | None, cost: float, now: float) -> Memory:
    """Memory with the time since when the speculator is dead weight: by the gain `found` of pods without one that is
    80 % sure; `cost`: price of the rollout (`rollout.cost`)."""
    bad = found is not None and found.mid > GAIN and found.at(-DOUBT) > cost / 2.0
    since = (memory.doomed_since if memory.doomed_since is not None else now) if bad else None
    return memory if since == memory.doomed_since else replace(memory, doomed_since=since)


def to_remove(memory: Memory, view: Outlook, now: float) -> bool:
    """True when the operator should now replace the pods by pods without a speculator."""
    policy = view.policy
    if policy.off_policy is not OffPolicy.REMOVE or policy.mode is not Mode.AUTO or memory.removed:
        return False
    lasting = memory.doomed_since is not None and now - memory.doomed_since >= LASTING_SECONDS
    return lasting and now - memory.since >= FIRST_SECONDS


def to_return(memory: Memory, view: Outlook, now: float) -> bool:
    """True when pods without a speculator should get it back."""
    if not memory.removed or memory.removed_at is None or now - memory.removed_at < RETURN_SECONDS:
        return False
    found = removal_gain(view)
    return found is not None and -found.at(DOUBT) > RETURN_GAIN
