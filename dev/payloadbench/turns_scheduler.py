"""The payload's scheduler, left out in every other block of steps: what it costs a step, within one engine.

Named by `--scheduler-cls turns_scheduler.scheduler` with the payload's folder on PYTHONPATH too. Two processes of one
engine differ by some per cent in speed, so that two engines cannot tell what one per cent is. Ratios of neighbouring
blocks go to `$PAYLOADBENCH_FILE` once a second: processor time of a step without the payload over that with it. Only
the engine's thread counts, in which the payload runs: other programs on the machine hardly touch it, and a step waits
for other threads too, so that its seconds differ by less.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from pathlib import Path
from typing import Any

import speculative_scheduler  # type: ignore[import-not-found]  # mounted beside this file

STEPS = 8
"""Of a block; those of the first two may have been planned before it."""
BLURRED = 2
WARM_UP_SECONDS = 20.0
"""After the first step, in which the engine still compiles and fills its caches: ratios then scatter and are low."""


class Turns:
    """Times steps that decode the same number of requests as the step before, and changes turns every STEPS of them."""

    def __init__(self, path: Path) -> None:
        self.with_payload = True
        self._path, self._next, self._warm = path, 0.0, math.inf
        self._last: tuple[float, int] | None = None
        self._block: list[float] = []
        self._medians: list[float] = []
        self._ratios: list[float] = []

    def step(self, requests: int, decodes: bool) -> None:
        """A step is over. A block that other requests or a prompt interrupt starts anew."""
        if math.isinf(self._warm):
            self._warm = time.monotonic() + WARM_UP_SECONDS
        now, before = time.thread_time(), self._last
        self._last = (now, requests) if decodes else None
        if before is None or not decodes or before[1] != requests:
            self._block.clear()
            return
        self._block.append(now - before[0])
        if len(self._block) >= STEPS:
            self._medians.append(statistics.median(self._block[BLURRED:]))
            self._block.clear()
            self.with_payload = not self.with_payload
            self._compare()
            self._tell()

    def _compare(self) -> None:
        """Of three blocks, with, without and with the payload or the other way round, a drift hits both sides alike."""
        if time.monotonic() < self._warm:
            self._medians.clear()
        if len(self._medians) < 3:
            return
        first, middle, last = self._medians[-3:]
        outer = (first * last) ** 0.5
        self._ratios.append(outer / middle if self.with_payload else middle / outer)
        self._medians.clear()

    def _tell(self) -> None:
        if (now := time.monotonic()) > self._next:
            self._next = now + 1.0
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(self._ratios))
            new.rename(self._path)


def _in_turns(own: Any) -> type:
    """The payload's scheduler over `own`, which is vLLM's; while it is without its turn, `own` alone."""

    class InTurns(speculative_scheduler._hot(own)):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._turns = Turns(Path(os.environ["PAYLOADBENCH_FILE"]))
            super().__init__(*args, **kwargs)

        def _now(self) -> Any:
            """Whose methods count in this step: those of the payload before vLLM's, or vLLM's alone."""
            return super() if self._turns.with_payload else super(speculative_scheduler._HotTable, self)

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            return self._now().schedule(*args, **kwargs)

        def _update_after_schedule(self, *args: Any, **kwargs: Any) -> Any:
            return self._now()._update_after_schedule(*args, **kwargs)

        def update_from_output(self, plan: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = self._now().update_from_output(plan, *args, **kwargs)
            new = plan.scheduled_new_reqs or plan.scheduled_cached_reqs.resumed_req_ids
            self._turns.step(len(plan.num_scheduled_tokens), bool(plan.num_scheduled_tokens) and not new)
            return outputs

    return InTurns


def scheduler(*args: Any, **kwargs: Any) -> Any:
    """As the payload's, in turns."""
    return _in_turns(speculative_scheduler._own_class((*args, *kwargs.values())))(*args, **kwargs)
