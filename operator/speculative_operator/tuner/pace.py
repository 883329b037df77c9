"""Limits how often a table may change by a budget of writes, and says what a change must bring.

Called by decide(). A load that stays needs few changes, a load that moves needs many. So writes are granted by the
hour and can be saved up.
"""

from __future__ import annotations

from dataclasses import dataclass

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.table import Actuator

MARGIN = 0.01
"""Log speed that a change must bring."""
MEASURED_MARGIN = 0.004
"""MARGIN where the engine compares K, so that the margin need not cover the model's error too."""
SAVED = 8.0
PER_HOUR = 8.0
"""Writes that may be saved up, and writes that are granted per hour."""
URGENT = 0.04
"""A gain (log speed) at the present loads that waits for one clean window only."""
GREAT = 0.08
CREDIT = 2.0
"""Log speed from which a write may be made on credit, and the number of writes that may be owed."""
URGENT_DWELL = 9.0
LIVE_DWELL = 45.0
ROLLOUT_DWELL = 1800.0
"""Least seconds between changes: for an urgent gain, for a file that pods re-read, for the pod template."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The number of writes left; below 0 where urgent changes have left a debt."""

    left: float = SAVED

    def after(self, elapsed: float) -> Pace:
        """The pace with the writes that `elapsed` seconds grant."""
        return Pace(min(self.left + max(elapsed, 0.0) * PER_HOUR / 3600.0, SAVED))

    def allows(self, gain: float) -> bool:
        """True where a change that brings `gain` at the present loads may be written; a great gain may use credit."""
        return self.left >= (-CREDIT if gain >= GREAT else 1.0)

    def spend(self) -> Pace:
        """The pace after one write."""
        return Pace(self.left - 1.0)


def dwell_seconds(policy: Policy, gain: float) -> float:
    """Least seconds since the last change before a change that brings `gain`; longer where it takes a rollout."""
    if policy.knobs.actuator is not Actuator.LIVE:
        return ROLLOUT_DWELL
    return URGENT_DWELL if gain >= URGENT else LIVE_DWELL
