"""How far a fetch is: counts bytes, rate and stall, and tells it to whoever waits for the model.

`Meter` is fed by `bring`, from any thread; `Teller` is called by `fetch` while bytes come.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from speculative_operator.domain.jobs import Progress, progress_line
from speculative_operator.weights import disk

_WINDOW_SECONDS = 30.0
Report = Callable[[Progress], None]


class Meter:
    """Counts what came, from any thread."""

    def __init__(self, total: int, clock: Callable[[], float] = monotonic) -> None:
        self._total = total
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes = 0
        self._fetched = 0
        self._file = ""
        self._last = clock()
        self._samples: deque[tuple[float, int]] = deque([(self._last, 0)])

    def count_received(self, count: int, file: str) -> None:
        """Count bytes of `file` that came from the source."""
        with self._lock:
            self._bytes += count
            self._fetched += count
            self._file, self._last = file, self._clock()

    def count_present(self, count: int) -> None:
        """Count bytes that the disk held already: they are progress, and no part of the rate. A negative count takes
        back what must be fetched again."""
        with self._lock:
            self._bytes += count

    @property
    def bytes_left(self) -> int:
        return self._total - self._bytes

    def progress(self) -> Progress:
        """Progress as of now. The rate is that of the last half minute, or since the start where that is later."""
        with self._lock:
            now = self._clock()
            self._samples.append((now, self._fetched))
            while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_SECONDS:
                self._samples.popleft()
            then, before = self._samples[0]
            rate = (self._fetched - before) / (now - then) if now > then else 0.0
            stalled = now - self._last if self._bytes < self._total else 0.0
            return Progress(self._bytes, self._total, rate, self._file, stalled)


class Teller:
    """Reports, and leaves the newest report for those who wait for the same version."""

    def __init__(self, meter: Meter, file: Path, report: Report, seconds: float) -> None:
        self._meter = meter
        self._file = file
        self._report = report
        self._seconds = seconds
        self._next = 0.0

    def now(self) -> None:
        """Report, whenever the last report was."""
        progress = self._meter.progress()
        self._report(progress)
        with disk.explain_errors(self._file.parent):
            self._file.write_text(progress_line(progress), encoding="utf-8")
        self._next = monotonic() + self._seconds

    def sometimes(self) -> None:
        """Report where the last report is long enough ago."""
        if monotonic() >= self._next:
            self.now()
