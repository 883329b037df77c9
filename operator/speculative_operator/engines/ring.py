"""Keeps the last scrapes of one pod. Used by `shell.scraper` to read pods without Prometheus, and by the laboratory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from speculative_operator.domain.observation import Series
from speculative_operator.engines.exposition import SeriesKey


class Ring:
    """Scrapes of one pod, oldest first, of the last `horizon` seconds."""

    def __init__(self, pod: str, horizon: float) -> None:
        self._pod, self._horizon = pod, horizon
        self.scrapes: deque[tuple[float, Mapping[SeriesKey, float]]] = deque()

    def add(self, time: float, values: Mapping[SeriesKey, float]) -> None:
        """Keep a scrape made at `time`, which is later than all before."""
        self.scrapes.append((time, values))
        while self.scrapes[0][0] < time - self._horizon:
            self.scrapes.popleft()

    def series(self) -> list[Series]:
        """The kept scrapes as series, as Prometheus would return them, with the label `pod`."""
        samples: dict[SeriesKey, list[tuple[float, float]]] = {}
        for time, values in self.scrapes:
            for key, value in values.items():
                samples.setdefault(key, []).append((time, value))
        return [
            Series(key.name, {**dict(key.labels), "pod": self._pod}, tuple(found)) for key, found in samples.items()
        ]
