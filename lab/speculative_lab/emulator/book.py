"""Values of the metric families of one engine, whatever engine it is: what a dialect fills and a scrape reads.

The driver tells a `Book` of steps and of requests that end; dialects derive from it and say what these add. Counting
is numpy on whole steps. A family has at most one label that varies; the others are the same on every series of the
process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from speculative_lab.emulator.batch import Floats, Ints
from speculative_lab.emulator.core import StepResult
from speculative_lab.emulator.families import Family
from speculative_lab.emulator.requests import FinishReason, Request


class Histogram:
    """Counts per bucket and the sum of what was observed."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._edges = np.array(bounds)
        self._counts = np.zeros(len(bounds) + 1, dtype=np.int64)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One observation; a bucket takes values up to and with its bound."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_many(self, value: float, times: int) -> None:
        """`times` observations of the same value."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def observe_all(self, values: Floats) -> None:
        """One observation of each value."""
        if len(values):
            self._counts += np.bincount(np.searchsorted(self._edges, values), minlength=len(self._counts))
            self.sum += float(values.sum())

    def observe_shared(self, totals: Floats, counts: Ints) -> None:
        """`counts[i]` observations of `totals[i] / counts[i]` each."""
        if len(totals):
            buckets = np.searchsorted(self._edges, totals / counts)
            self._counts += np.bincount(buckets, weights=counts, minlength=len(self._counts)).astype(np.int64)
            self.sum += float(totals.sum())

    @property
    def count(self) -> int:
        return int(self._counts.sum())

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound as text, cumulative count), +Inf last."""
        counts = np.cumsum(self._counts).astype(float).tolist()
        return list(zip([*(_text(bound) for bound in self.bounds), "+Inf"], counts, strict=True))


class Book(Collector):
    """All families of one engine. By itself it books nothing."""

    def __init__(
        self, families: tuple[Family, ...], fixed: Mapping[str, str], created: float | None = None, seeded: bool = True
    ) -> None:
        """`fixed`: labels that do not vary; `created`: the unix time that `_created` twins tell, None for no twins.

        `seeded`: every series is there from the start, at 0. Else one appears when it is first written to.
        """
        self._families = {family.name: family for family in families}
        self._fixed = dict(fixed)
        self._created = created
        self._values: dict[str, dict[str, float]] = {family.name: {} for family in families}
        self._histograms: dict[str, dict[str, Histogram]] = {family.name: {} for family in families}
        for family in families if seeded else ():
            for value in family.values or ("",):
                if family.kind == "histogram":
                    self._histogram(family.name, value)
                else:
                    self._values[family.name][value] = 0.0

    def record(self, result: StepResult, running: int, waiting: int, kv_usage: float) -> None:
        """One step has ended; the state after it. `kv_usage` is a share of the pool, 0..1."""

    def gauges(self, running: int, waiting: int, kv_usage: float) -> None:
        """The state changed between steps."""

    def finish(self, request: Request, reason: FinishReason, now: float) -> None:
        """A request ended at engine time `now`."""

    def value(self, name: str, label: str = "") -> float:
        """Current value of a counter or gauge, by family name and value of its varying label; 0 when absent."""
        return self._values[name].get(label, 0.0)

    def histogram(self, name: str, label: str = "") -> Histogram:
        return self._histograms[name][label]

    def add(self, name: str, amount: float, label: str = "") -> None:
        """Raise a counter."""
        series = self._values[name]
        series[label] = series.get(label, 0.0) + amount

    def set(self, name: str, value: float, label: str = "") -> None:
        """Set a gauge."""
        self._values[name][label] = value

    def observe(self, name: str, value: float, label: str = "") -> None:
        """One observation."""
        self._histogram(name, label).observe(value)

    def _histogram(self, name: str, label: str = "") -> Histogram:
        series = self._histograms[name]
        if label not in series:
            series[label] = Histogram(self._families[name].buckets)
        return series[label]

    def collect(self) -> Iterator[Metric]:
        """Every family that has series, in its order."""
        for family in self._families.values():
            metric = self._collect(family)
            if metric.samples:
                yield metric

    def _collect(self, family: Family) -> Metric:
        if family.kind == "histogram":
            return self._collect_histogram(family)
        if family.kind == "gauge":
            gauge = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for value, number in self.series(family):
                gauge.add_metric(self._labels(family, value), number)
            return gauge
        counter = CounterMetricFamily(family.name.removesuffix("_total"), family.help, labels=family.labels)
        for value, number in self.series(family):
            counter.add_metric(self._labels(family, value), number, created=self._created)
        return counter

    def _collect_histogram(self, family: Family) -> Metric:
        metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for value, histogram in self._histograms[family.name].items():
            labels = self._labels(family, value)
            metric.add_metric(labels, histogram.buckets(), histogram.sum)
            if self._created is not None:
                given = dict(zip(family.labels, labels, strict=True))
                metric.add_sample(f"{family.name}_created", given, self._created)
        return metric

    def series(self, family: Family) -> Iterator[tuple[str, float]]:
        """Value of the varying label and of the series, for each series of a counter or gauge."""
        yield from self._values[family.name].items()

    def _labels(self, family: Family, value: str) -> list[str]:
        return [self._fixed.get(label, value) for label in family.labels]


def _text(bound: float) -> str:
    """A bucket's bound as prometheus_client writes it."""
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]  # the library leaves it untyped
