"""The payload's scheduler with a stop-watch around it: what its own code costs a step. Runs in the engine's process.

Named by `--scheduler-cls timed_scheduler.scheduler` with the payload's folder on PYTHONPATH too. The payload's mixin
lies between two layers that read the clock: what lies outside the inner one is the payload's. What the stop-watch
itself costs is measured beside every step and taken off. Totals go to `$PAYLOADBENCH_FILE` once a second.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import speculative_scheduler  # type: ignore[import-not-found]  # mounted beside this file

_clock = time.perf_counter
_processor = time.thread_time
"""Of the engine's thread: a machine that is busy with other things does not count."""


class _Totals:
    def __init__(self) -> None:
        self.path = Path(os.environ["PAYLOADBENCH_FILE"])
        self.walls: list[float] = []
        self.own = 0.0
        self._began: float | None = None
        """Processor time of the engine's thread when the first step ended."""
        self._next = 0.0

    def step(self, processor: float, wall: float) -> None:
        """Seconds of one step that were the payload's."""
        spent = _processor()
        if self._began is None:
            self._began = spent
            return
        self.own += processor
        self.walls.append(wall)
        now = _clock()
        if now > self._next:
            self._next = now + 1.0
            told = {
                "steps": len(self.walls),
                "mean": self.own / len(self.walls) * 1e6,
                "median": statistics.median(self.walls) * 1e6,
                "share": self.own / (spent - self._began),
            }
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(told))
            new.rename(self.path)


class _Watch:
    """Adds up processor and wall seconds of what it is told to call."""

    def __init__(self) -> None:
        self.processor = self.wall = 0.0

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        wall, processor = _clock(), _processor()
        try:
            return call(*args, **kwargs)
        finally:
            self.processor += _processor() - processor
            self.wall += _clock() - wall


def _price_of_watching() -> _Watch:
    """What the two layers of a step read for themselves, under its conditions: four calls around nothing."""
    outer, inner = _Watch(), _Watch()
    for _ in range(4):
        outer(inner, _nothing)
    outer.processor -= inner.processor
    outer.wall -= inner.wall
    return outer


def _nothing() -> None:
    """As little as can be called."""


def _inner(base: type) -> type:
    class Inner(base):  # type: ignore[misc]
        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            return self._inside(super().schedule, *args, **kwargs)

        def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
            return self._inside(super().update_from_output, *args, **kwargs)

        def update_draft_token_ids(self, *args: Any, **kwargs: Any) -> Any:
            return self._inside(super().update_draft_token_ids, *args, **kwargs)

        def _update_after_schedule(self, *args: Any, **kwargs: Any) -> Any:
            return self._hook_inside(super()._update_after_schedule, *args, **kwargs)

    return Inner


def _layers(base: type) -> type:
    """Outer layer, the payload's mixin, inner layer, vLLM's scheduler."""

    class Outer(speculative_scheduler._hot(_inner(base))):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._inside, self._outside, self._totals = _Watch(), _Watch(), _Totals()
            self._hook_inside, self._hook_outside = _Watch(), _Watch()
            super().__init__(*args, **kwargs)

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            return self._outside(super().schedule, *args, **kwargs)

        def update_draft_token_ids(self, *args: Any, **kwargs: Any) -> Any:
            return self._outside(super().update_draft_token_ids, *args, **kwargs)

        def _update_after_schedule(self, *args: Any, **kwargs: Any) -> Any:
            # vLLM calls it within `schedule`: the inner layer's time there holds the payload's here
            return self._hook_outside(super()._update_after_schedule, *args, **kwargs)

        def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
            outputs = self._outside(super().update_from_output, *args, **kwargs)
            watch = _price_of_watching()
            processor = wall = 0.0
            for outside, inside in ((self._outside, self._inside), (self._hook_outside, self._hook_inside)):
                processor += outside.processor - inside.processor
                wall += outside.wall - inside.wall
            self._inside, self._outside, self._hook_inside, self._hook_outside = (_Watch() for _ in range(4))
            self._totals.step(processor - watch.processor, wall - watch.wall)
            return outputs

    return Outer


def scheduler(*args: Any, **kwargs: Any) -> Any:
    """As the payload's, timed."""
    return _layers(speculative_scheduler._own_class((*args, *kwargs.values())))(*args, **kwargs)
