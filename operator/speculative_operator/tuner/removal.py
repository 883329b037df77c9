"""Decides whether pods should run without a speculator at all, and when they get it back (offPolicy Hard).

Called by decide(). K = 0 still pays for the speculator's pass and its memory; only a rollout without it returns them. A
rollout costs minutes of serving, so it is made when pods without a speculator are clearly faster than any table over
the loads of the last hour, when this has been so for ten minutes, and when it pays for itself within the hour.
"""

from __future__ import annotations

from dataclasses import replace

from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.outlook import Comparison, Outlook

GAIN = 0.05
"""Log speed that pods without speculator must bring: less is not worth a rollout, nor surely true."""
DOUBT = 0.84
"""Standard deviations by which the gain must exceed what the rollout costs."""
LASTING_SECONDS = 600.0
FIRST_SECONDS = 900.0
"""The comparison must have held this long, and the deployment been seen for this long."""
RETURN_GAIN = 0.08
RETURN_SECONDS = 3600.0
"""For the speculator's return: log speed that it must bring by the remembered evidence, and least seconds without."""


def track_dead_weight(memory: Memory, found: Comparison, cost: float, now: float) -> Memory:
    """Memory with the time since when the speculator is dead weight; `cost`: price of the rollout (`rollout.cost`)."""
    sure = found.gain - DOUBT * found.deviation
    bad = found.gain > GAIN and sure > cost / 2.0
    since = (memory.doomed_since if memory.doomed_since is not None else now) if bad else None
    return memory if since == memory.doomed_since else replace(memory, doomed_since=since)


def to_remove(memory: Memory, view: Outlook, now: float) -> bool:
    """True when the operator should now replace the pods by pods without a speculator."""
    policy = view.policy
    if policy.off_policy is not OffPolicy.HARD or policy.mode is not Mode.AUTO or memory.hard_off:
        return False
    lasting = memory.doomed_since is not None and now - memory.doomed_since >= LASTING_SECONDS
    return lasting and now - memory.since >= FIRST_SECONDS


def to_return(memory: Memory, view: Outlook, now: float) -> bool:
    """True when pods without a speculator should get it back."""
    if not memory.hard_off or memory.hard_off_at is None or now - memory.hard_off_at < RETURN_SECONDS:
        return False
    found = view.without_speculator
    return -found.gain - DOUBT * found.deviation > RETURN_GAIN
