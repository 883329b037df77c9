"""When the drafter rests: K = 0 has lasted, and the workers are told that no drafts are wanted.

Mounted beside `speculative_scheduler`, which asks `Latch` at each step; `speculative_worker` does what it says. At K =
0 vLLM still runs the drafter's first pass, a tenth to a fifth of a step. Leaving it out leaves a gap in what the
drafter has seen of the requests that run. So off is a state that K = 0 must have lasted for, never a row of the table
by itself: what flaps at a threshold, or is tried for some steps, stays with vLLM's own K = 0. Standard library alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

VARIABLE = "SPECULATIVE_OFF_STEPS"
"""Names the steps after which K = 0 becomes off. Without it nothing is ever left out."""
ASLEEP = 16
"""Off lasts for this many times the steps that led to it. Then, for as many steps as these, it is vLLM's K = 0 again,
in which drafts are tried: nothing else would tell that they are accepted again. A seventeenth of the gain pays for it.
"""


class Latch:
    """Whether steps are off. Every method is called by the engine's thread."""

    def __init__(self, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"{VARIABLE} must be 1 or more, not {steps}")
        self._needed = steps
        self._held = 0
        """Steps in a row for which K in force was 0, off or not."""
        self.off = False
        self.steps = 0
        """Steps for which the workers were told so."""
        self.gapped: set[str] = set()
        """Requests that were there while off: the drafter has not seen all of them."""

    def step(self, k_in_force: int, scheduled: Collection[str], known: Collection[str]) -> bool:
        """Called with each step's K by the table, its requests and all that are known: whether the step is off."""
        self._held = self._held + 1 if k_in_force == 0 else 0
        turn = self._held % ((ASLEEP + 1) * self._needed)
        self.off = self._held >= self._needed and (turn >= self._needed or turn == 0)
        if self.off:
            self.steps += 1
            self.gapped.update(scheduled)
        if self.gapped:
            self.gapped.intersection_update(known)
        return self.off


def from_environment() -> Latch | None:
    """The latch that the pod was started with; None without. Raises ValueError where it says nothing usable."""
    given = os.environ.get(VARIABLE, "")
    return Latch(int(given)) if given else None


def told(output: Any) -> tuple[int, str] | None:
    """What the first worker told with its output: steps in which it left the drafter out, and why it no longer can."""
    found = getattr(output, "speculative_off", None)
    return found if isinstance(found, tuple) and len(found) == 2 else None
