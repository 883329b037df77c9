"""Keeps the last scrapes of one pod until a window was cut from them. Used by `shell.scraper` to read
pods without Prometheus, and by the laboratory.

A window begins where the last one ended: scrapes older than that end are dropped. A bad scrape must not spoil later
windows: the first one is skipped, and the second in a row makes the ring forget all scrapes before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.exposition import SeriesKey

HORIZON_SECONDS = 600.0
"""Scrapes older than this begin no window: the tuner believes no window that is much longer."""
_WAITING = frozenset({Reason.STARTING, Reason.COLLECTING})


class Ring:
    """Scrapes of one pod, oldest first."""

    def __init__(self, pod: str, horizon: float = HORIZON_SECONDS) -> None:
        self.since: float | None = None
        """Unix time at which the last window ended; None before the first."""
        self._pod, self._horizon = pod, horizon
        self._scrapes: deque[tuple[float, Mapping[SeriesKey, float]]] = deque()
        self._failures = 0

    def add(self, time: float, values: Mapping[SeriesKey, float]) -> None:
        """Keep a scrape made at `time`, which is later than all before."""
        self._scrapes.append((time, values))
        while self._scrapes[0][0] < time - self._horizon:
            self._scrapes.popleft()

    def series(self) -> list[Series]:
        """The kept scrapes as series, as Prometheus would return them, with the label `pod`."""
        samples: dict[SeriesKey, list[tuple[float, float]]] = {}
        for time, values in self._scrapes:
            for key, value in values.items():
                samples.setdefault(key, []).append((time, value))
        return [
            Series(key.name, {**dict(key.labels), "pod": self._pod}, tuple(found)) for key, found in samples.items()
        ]

    def settle(self, result: PodWindow | Gap) -> None:
        """Drop the scrapes that `result`, the outcome of reading `series`, has made useless."""
        if isinstance(result, PodWindow):
            self.since, self._failures = result.end, 0
            while self._scrapes and self._scrapes[0][0] < result.end:
                self._scrapes.popleft()
        elif result.reason is Reason.COUNTER_RESET:
            self._begin_anew()
        elif result.reason not in _WAITING and self._scrapes:
            self._failures += 1
            if self._failures > 1:
                self._begin_anew()
            else:
                self._scrapes.pop()

    def _begin_anew(self) -> None:
        """Drop all scrapes but the newest: the next scrape makes a window with it."""
        newest = self._scrapes[-1]
        self._scrapes.clear()
        self._scrapes.append(newest)
        self._failures = 0
