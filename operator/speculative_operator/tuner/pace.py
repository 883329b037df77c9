"""How often a table may change, writes being a budget, and what a change must bring.

Called by decide(). A load that stays needs few changes, a load that moves needs many. So writes are saved up
and granted by the hour.
"""

from __future__ import annotations

from dataclasses import dataclass

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator

MARGIN = 0.01
"""Log speed that a change must bring."""
MEASURED_MARGIN = 0.004
"""The same where the engine compares K, so that it need not also cover what the model errs."""
SAVED = 8.0
PER_HOUR = 8.0
"""Writes that may be saved up, and writes that are granted per hour."""
URGENT = 0.04
"""A gain at the loads of now that waits for one clean window only."""
GREAT = 0.08
CREDIT = 2.0
"""Log speed for which a write is made that is not there yet, and how many such writes may be owed."""
URGENT_DWELL = 9.0
LIVE_DWELL = 45.0
ROLLOUT_DWELL = 1800.0
"""Seconds between changes: for such a gain, of a file that pods re-read, of the pod template."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Writes left. Below 0 where changes that may not wait have left a debt."""

    left: float = SAVED

    def after(self, elapsed: float) -> Pace:
        """With what `elapsed` seconds grant."""
        return Pace(min(self.left + max(elapsed, 0.0) * PER_HOUR / 3600.0, SAVED))

    def allows(self, gain: float) -> bool:
        """Whether a change that brings `gain` at the loads of now may be written: a great one on credit."""
        return self.left >= (-CREDIT if gain >= GREAT else 1.0)

    def spent(self) -> Pace:
        """After one write."""
        return Pace(self.left - 1.0)


def dwell_seconds(policy: Policy, gain: float) -> float:
    """Least time since the last change before one that brings `gain`, by what a change costs."""
    if policy.knobs.actuator is not Actuator.LIVE:
        return ROLLOUT_DWELL
    return URGENT_DWELL if gain >= URGENT else LIVE_DWELL
