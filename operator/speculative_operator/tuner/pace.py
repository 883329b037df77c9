"""How often a table may change: writes are a budget, and what is left of it sets the gain that a change must bring.

Called by decide(). A load that stays needs few changes, a load that moves needs many. So small gains draw on a small
allowance and large gains on a larger one; the closer an allowance is to its end, the more a change must bring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator

FINE_MARGIN = 0.008
COARSE_MARGIN = 0.03
"""Log speed that a change must bring while the whole allowance is left, and when none is."""
URGENT = 0.04
"""A gain at the loads of now from which a change draws on the large allowance."""
SMALL = 2.0
SMALL_PER_HOUR = 1.0
LARGE = 4.0
LARGE_PER_HOUR = 12.0
"""Writes that may be saved up, and writes per hour that are granted."""
URGENT_DWELL = 9.0
LIVE_DWELL = 45.0
ROLLOUT_DWELL = 600.0
"""Seconds between changes: for a large gain (one clean window), of a file that pods re-read, of the pod template."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Writes left of both allowances."""

    small: float = SMALL
    large: float = LARGE

    def after(self, elapsed: float) -> Pace:
        """With what `elapsed` seconds grant."""
        hours = max(elapsed, 0.0) / 3600.0
        return Pace(
            small=min(self.small + hours * SMALL_PER_HOUR, SMALL), large=min(self.large + hours * LARGE_PER_HOUR, LARGE)
        )

    @property
    def margin(self) -> float:
        """Log speed that a change must bring now."""
        left = min(max(self.small / SMALL, 0.0), 1.0)
        return COARSE_MARGIN + (FINE_MARGIN - COARSE_MARGIN) * left

    def allows(self, gain: float) -> bool:
        """Whether a change that brings `gain` at the loads of now may be written."""
        return self.large >= 1.0 if gain >= URGENT else self.small >= 1.0

    def spent(self, gain: float) -> Pace:
        """After such a change. What may not wait is written in any case, and leaves a debt."""
        if gain >= URGENT:
            return replace(self, large=self.large - 1.0)
        return replace(self, small=self.small - 1.0)

    @property
    def trials(self) -> int:
        """Different K that may be tried one after the other: each takes a write, and so does the way back."""
        return max(int(self.large) - 1, 0)


def dwell_seconds(policy: Policy, gain: float) -> float:
    """Least time since the last change before one that brings `gain`, by what a change costs."""
    if policy.knobs.actuator is not Actuator.LIVE:
        return ROLLOUT_DWELL
    return URGENT_DWELL if gain >= URGENT else LIVE_DWELL
