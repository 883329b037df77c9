"""How far a fetch is: counts bytes, rate and stall, and tells it to whoever waits for the models.

`bring` counts, from any thread; `fetch` has it told while bytes come. One `Meter` counts all models of a pair.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from speculative_operator.domain.jobs import Progress

_WINDOW_SECONDS = 30.0
Report = Callable[[Progress], None]


class Meter:
    """Counts what came, from any thread."""

    def __init__(self, total: int, report: Report, seconds: float) -> None:
        """`total`: bytes of all files; `report` is called `due` every so many `seconds`."""
        self._total, self._report, self._seconds = total, report, seconds
        self._lock = threading.Lock()
        self._bytes = 0
        self._fetched = 0
        self._file = ""
        self._last = monotonic()
        self._next = 0.0
        self._samples: deque[tuple[float, int]] = deque([(self._last, 0)])

    def count_received(self, count: int, file: str) -> None:
        """Count bytes of `file` that came from the source."""
        with self._lock:
            self._bytes += count
            self._fetched += count
            self._file, self._last = file, monotonic()

    def count_present(self, count: int) -> None:
        """Count bytes that the disk held already: they are progress, and no part of the rate. A negative count takes
        back what must be fetched again."""
        with self._lock:
            self._bytes += count

    @property
    def bytes_left(self) -> int:
        return self._total - self._bytes

    @property
    def due(self) -> bool:
        """True where the last report is long enough ago."""
        return monotonic() >= self._next

    def tell(self) -> None:
        """Report, whenever the last report was."""
        self._report(self._progress())
        self._next = monotonic() + self._seconds

    def _progress(self) -> Progress:
        """Progress as of now. The rate is that of the last half minute, or since the start where that is later."""
        with self._lock:
            now = monotonic()
            self._samples.append((now, self._fetched))
            while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_SECONDS:
                self._samples.popleft()
            then, before = self._samples[0]
            rate = (self._fetched - before) / (now - then) if now > then else 0.0
            stalled = now - self._last if self._bytes < self._total else 0.0
            return Progress(self._bytes, self._total, rate, self._file, stalled)
