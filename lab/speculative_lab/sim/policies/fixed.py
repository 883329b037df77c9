"""Controllers that never learn: constants, cut-offs and schedules by batch size.

Named in `registry`. Sources: facts published by the engines' own documentation and code, given at each law.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from speculative_lab.sim.policies.base import Journal, tabulate
from speculative_operator.domain.table import KnobSpace, KTable

if TYPE_CHECKING:
    from speculative_lab.sim.deployment import Deployment

SELDOM = 300.0
"""Seconds between calls of a controller that has nothing to do."""
CUTOFF_K = 3
SCHEDULE: Mapping[int, int] = {4: 4, 8: 2, 32: 1}
"""TensorRT-LLM's documented example of `draft_len_schedule`: inclusive upper bound of the batch -> draft length."""
AUTO_LIMIT = 32


class Fixed:
    """One table, set once."""

    interval = SELDOM

    def __init__(self, name: str, table: KTable) -> None:
        self.name = name
        self.journal = Journal()
        self._table = table
        self._set = False

    def act(self, deployment: Deployment) -> None:
        if not self._set:
            self._set = True
            deployment.set_table(self._table, delay=0.0)


class Removed:
    """Pods without any drafter from the first second on. As a rival it pays the restart that this takes."""

    interval = SELDOM
    name = "removed"

    def __init__(self) -> None:
        self.journal = Journal()
        self._done = False

    def act(self, deployment: Deployment) -> None:
        if not self._done:
            self._done = True
            deployment.removed(True)


def constant(k: int, knobs: KnobSpace) -> Fixed:
    """`static_<k>`; `off` for 0: the drafter stays loaded and drafts nothing."""
    return Fixed(f"static_{k}" if k else "off", KTable.constant(k, knobs.max_batch))


def cutoff(limit: int, knobs: KnobSpace, k: int = CUTOFF_K) -> Fixed:
    """Drafts below `limit` scheduled requests, none from there on: vLLM's former `speculative_disable_by_batch_size`,
    and the habit of turning speculation off at 32 requests."""
    return Fixed(f"cutoff{limit}", tabulate(lambda batch: k if batch < limit else 0, knobs))


def schedule(knobs: KnobSpace, bounds: Mapping[int, int] = SCHEDULE) -> Fixed:
    """TensorRT-LLM `draft_len_schedule` as newer releases read it: keys are inclusive upper bounds, 0 above the last.

    An older release read the same keys as lower bounds (facts gathered from its source at two commits).
    """
    return Fixed("trtllm_schedule", tabulate(lambda batch: scheduled_length(bounds, batch), knobs))


def auto(knobs: KnobSpace) -> Fixed:
    """TensorRT-LLM `decoding_type: AUTO`: n-gram, 5 drafts where at most 4 requests run at once, else 3; off above 32.

    The engine always takes its own n-gram drafter; here the rule governs whatever drafter the deployment has.
    """
    length = 5 if knobs.max_batch <= 4 else 3
    return Fixed("trtllm_auto", tabulate(lambda batch: length if batch <= AUTO_LIMIT else 0, knobs))


def scheduled_length(bounds: Mapping[int, int], batch: int) -> int:
    """Draft length at `batch`: the value of the smallest key that is at least `batch`, 0 above all keys."""
    return next((bounds[key] for key in sorted(bounds) if batch <= key), 0)
