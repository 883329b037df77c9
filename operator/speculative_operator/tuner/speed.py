"""Measures how fast single requests are served over many windows, to compare pods before and after a rollout.

Kept in the tuner's memory; asked by `reconcile.own_rollouts`. Step costs and acceptance are learned for each K and give
a predicted speed; this is the measured one, independent of any model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, log

from speculative_operator.domain.observation import PodWindow

REMEMBERED = 60
"""Windows over which the means are taken."""
ENOUGH = 30
"""Least windows on each side of a comparison."""
LIKE = 0.22
"""Log requests per step by which loads may differ and still be compared: 25 %."""
SLOWER = 0.10
"""Loss of log rate that counts as slower."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Mean speed and load over the windows of all pods."""

    windows: int = 0
    rate: float = 0.0
    """Output tokens per second of one request."""
    requests: float = 0.0
    """Requests per step of one pod."""

    def after(self, windows: Iterable[PodWindow]) -> Speed:
        """The means after one more look; unchanged where no pod decoded."""
        seen = tuple(windows)
        decoded = sum(one.generated_tokens - one.first_tokens for one in seen)
        busy, steps = sum(one.step_seconds for one in seen), sum(one.steps for one in seen)
        batch = sum(one.decode_request_steps for one in seen)
        if not all(isfinite(one) and one > 0 for one in (decoded, busy, steps, batch)):
            return self
        weight = 1.0 / min(self.windows + 1, REMEMBERED)
        rate = self.rate + weight * (decoded / busy - self.rate)
        requests = self.requests + weight * (batch / steps - self.requests)
        return Speed(self.windows + 1, rate, requests)

    def slower_than(self, before: Speed) -> bool:
        """True where both sides have enough windows at like loads, and requests are served clearly slower than
        `before`."""
        if min(self.windows, before.windows) < ENOUGH or min(self.rate, before.rate) <= 0:
            return False
        alike = abs(log(self.requests / before.requests)) <= LIKE
        return alike and log(self.rate / before.rate) < -SLOWER
