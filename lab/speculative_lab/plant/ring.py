"""The last scrapes of one pod until a window was cut from them. Used by `session`.

A window begins where the last one ended: scrapes older than that end are dropped. A bad scrape must not spoil later
windows: the first one is skipped, and the second in a row makes the ring forget all scrapes before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.exposition import SeriesKey, series_of

HORIZON_SECONDS = 600.0
"""Scrapes older than this begin no window: the tuner believes no window that is much longer."""
_WAITING = frozenset({Reason.STARTING, Reason.COLLECTING})


class Ring:
    """Scrapes of one pod, oldest first."""

    def __init__(self, pod: str) -> None:
        self.since: float | None = None
        """Unix time at which the last window ended; None before the first."""
        self.scrapes: deque[tuple[float, Mapping[SeriesKey, float]]] = deque()
        self._pod, self._failures = pod, 0

    def add(self, time: float, values: Mapping[SeriesKey, float]) -> None:
        """Keep a scrape made at `time`, which is later than all before."""
        self.scrapes.append((time, values))
        while self.scrapes[0][0] < time - HORIZON_SECONDS:
            self.scrapes.popleft()

    def series(self) -> list[Series]:
        """The kept scrapes as series, as Prometheus would return them, with the label `pod`."""
        return series_of(self._pod, self.scrapes)

    def settle(self, result: PodWindow | Gap) -> None:
        """Drop the scrapes that `result`, the outcome of reading `series`, has made useless."""
        if isinstance(result, PodWindow):
            self.since, self._failures = result.end, 0
            while self.scrapes and self.scrapes[0][0] < result.end:
                self.scrapes.popleft()
        elif result.reason is Reason.COUNTER_RESET:
            self._begin_anew()
        elif result.reason not in _WAITING and self.scrapes:
            self._failures += 1
            if self._failures > 1:
                self._begin_anew()
            else:
                self.scrapes.pop()

    def _begin_anew(self) -> None:
        """Drop all scrapes but the newest: the next scrape makes a window with it."""
        newest = self.scrapes[-1]
        self.scrapes.clear()
        self.scrapes.append(newest)
        self._failures = 0
