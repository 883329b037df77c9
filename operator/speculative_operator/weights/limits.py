"""How patient and how parallel a fetch is. One value, given to `fetch`; tests give impatient ones."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from random import uniform

from speculative_operator.weights.errors import WeightsError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    chunk: int = 8 << 20
    """Most bytes of each stream that a kill loses."""
    longest_run: int = 128 << 20
    """Most bytes asked for in one request: the more, the fewer requests; a run is journalled chunk by chunk."""
    runs_per_stream: int = 16
    """Smaller models get shorter runs, so that every stream has about this many and none is left with a long tail."""
    attempts: int = 8
    """Failures in a row of one run before the fetch fails with the last one's reason: about two minutes of pauses."""
    progress: int = 256 << 10
    """Bytes that a run must bring before it fails, so that its failures are counted anew."""
    pause: float = 1.0
    """Seconds to wait after the first failure; doubled after each further one."""
    longest_pause: float = 60.0
    longest_wait: float = 600.0
    """A source that asks for a longer pause than this (`Retry-After`) fails the fetch."""
    stall: float = 30.0
    """A stream that brought nothing for so long is given up and its run asked for anew."""
    slowest: float = 1024.0
    """Bytes per second over `stall`; less is a stall too: a source that drips keeps every read time-out from firing."""
    tell: float = 2.0
    """Seconds between reports of progress."""
    reserve: float = 0.0
    """Share of the volume that stays free, whoever else writes to it."""

    def wait_after(self, error: WeightsError, failures: int) -> float:
        """Seconds to wait after so many failures in a row; raises the last one when another try is worth no more."""
        delay = error.retry_after
        if failures >= self.attempts or (delay is not None and delay > self.longest_wait):
            error.message += f" (given up after {failures} failures in a row)" if failures > 1 else ""
            raise error
        pause = min(self.pause * 2 ** (failures - 1), self.longest_pause) * uniform(0.5, 1.0)  # noqa: S311  spreads load only
        seconds = pause if delay is None else delay
        _LOG.warning("%s: %s; retrying in %.0f s", error.file, error.message, seconds)
        return seconds

    def run(self, missing: int, parallel: int) -> int:
        """Bytes per request when `missing` bytes are to come: whole chunks."""
        fair = missing // (max(parallel, 1) * self.runs_per_stream)
        return max(min(fair, self.longest_run) // self.chunk, 1) * self.chunk
