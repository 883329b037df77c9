"""The payload's scheduler with a stop-watch around it: what its own code costs a step. Runs in the engine's process.

Named by `--scheduler-cls timed_scheduler.scheduler` with the payload's folder on PYTHONPATH too. The payload's mixin
lies between two layers that read the clock: what lies outside the inner one is the payload's. Totals go to
`$PAYLOADBENCH_FILE` once a second. The stop-watch itself costs about half a microsecond a step, which is counted as the
payload's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import speculative_scheduler  # type: ignore[import-not-found]  # mounted beside this file

_clock = time.perf_counter


class _Totals:
    def __init__(self) -> None:
        self.path = Path(os.environ["PAYLOADBENCH_FILE"])
        self.steps = 0
        self.outer = self.inner = 0.0
        self.longest = 0.0
        self._next = 0.0

    def step(self, outer: float, inner: float) -> None:
        self.steps += 1
        self.outer += outer
        self.inner += inner
        self.longest = max(self.longest, outer - inner)
        now = _clock()
        if now > self._next:
            self._next = now + 1.0
            own = (self.outer - self.inner) * 1e6
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps({"steps": self.steps, "microseconds": own, "longest": self.longest * 1e6}))
            new.rename(self.path)


def _layers(base: type) -> type:
    """Outer layer, the payload's mixin, inner layer, vLLM's scheduler."""

    class Inner(base):  # type: ignore[misc]
        def _speculative_inner(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            began = _clock()
            try:
                return call(*args, **kwargs)
            finally:
                self._inside += _clock() - began

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            return self._speculative_inner(super().schedule, args, kwargs)

        def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
            return self._speculative_inner(super().update_from_output, args, kwargs)

    class Outer(speculative_scheduler._hot(Inner)):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._inside = self._outside = 0.0
            self._totals = _Totals()
            super().__init__(*args, **kwargs)

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            began = _clock()
            plan = super().schedule(*args, **kwargs)
            self._outside += _clock() - began
            return plan

        def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
            began = _clock()
            outputs = super().update_from_output(*args, **kwargs)
            self._outside += _clock() - began
            self._totals.step(self._outside, self._inside)
            self._inside = self._outside = 0.0
            return outputs

    return Outer


def scheduler(*args: Any, **kwargs: Any) -> Any:
    """As the payload's, timed."""
    config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
    return _layers(speculative_scheduler._base(config))(*args, **kwargs)
