"""What the operator tells Prometheus about itself. Everything in `shell` counts here; `http` serves `render()`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

from speculative_operator import __version__
from speculative_operator.shell.objects import ObjectMetrics

PREFIX = "speculative_operator"
FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SLOW = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Telemetry:
    """Counters of one operator process, in a registry of its own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # not annotated
        self.registry = CollectorRegistry()
        self._seen: dict[str, float] = {}
        self._ticks = self._counter("ticks", "Reconciles of an object.", "outcome", "reason")
        self._phases = self._histogram("tick_phase_seconds", "Seconds of a reconcile, by phase.", FAST, "phase")
        self._api = self._counter("api_requests", "Requests to the API server; code 0: no answer.", "verb", "code")
        self._api_seconds = self._histogram(
            "api_request_seconds", "Seconds of a request to the API server.", SLOW, "verb"
        )
        self._queries = self._histogram("prometheus_query_seconds", "Seconds of a query to Prometheus.", SLOW)
        self._gaps = self._counter("gaps", "Objects whose metrics could not be read, by reason.", "reason")
        self._actions = self._counter("actions", "Changes made in the cluster.", "action", "kind")
        self._decisions = self._counter(
            "decisions", "Decisions that the tuner recorded, and probes, which it does not record.", "reason"
        )
        self._events = self._counter("events", "Kubernetes Events posted.", "type", "reason")
        self._queue = self._gauge("queue_depth", "Objects that wait to be reconciled.")
        self._objects = self._gauge("objects", "SpeculativeDeployments known.")
        self._leader = self._gauge("leader", "1 while this process holds the Lease.")
        self._own_rows = self._gauge("catalogue_own_rows", "The user's own rows of the catalogue.")
        self._bad_rows = self._gauge("catalogue_bad", "1 while the user's rows cannot be read.")
        self._age = self._gauge("watch_age_seconds", "Seconds since a watch last delivered an event.", "kind")
        self._unwatched = self._gauge(
            "unwatched", "1 while a kind cannot be watched and is listed instead.", "resource"
        )
        self._gauge("build_info", "Always 1.", "version").labels(__version__).set(1)
        ProcessCollector(registry=self.registry)
        self.of_objects = ObjectMetrics(PREFIX, time.time)

    def render(self) -> bytes:
        """All metrics of the operator as text exposition, format 0.0.4."""
        return generate_latest(self.registry) + self.of_objects.render()

    def tick(self, outcome: str, reason: str = "") -> None:
        self._ticks.labels(outcome, reason).inc()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._phases.labels(name).observe(time.perf_counter() - started)

    def api_request(self, verb: str, code: int, seconds: float) -> None:
        self._api.labels(verb, str(code)).inc()
        self._api_seconds.labels(verb).observe(seconds)

    def query(self, seconds: float) -> None:
        self._queries.observe(seconds)

    def gap(self, reason: str) -> None:
        self._gaps.labels(reason).inc()

    def action(self, action: str, kind: str) -> None:
        self._actions.labels(action, kind).inc()

    def decision(self, reason: str) -> None:
        self._decisions.labels(reason).inc()

    def event(self, kind: str, reason: str) -> None:
        self._events.labels(kind, reason).inc()

    def catalogue(self, rows: int, *, bad: bool) -> None:
        """Record the number of the user's own catalogue rows; `bad`: newer rows cannot be read."""
        self._own_rows.set(rows)
        self._bad_rows.set(1 if bad else 0)

    def leading(self, leader: bool) -> None:
        self._leader.set(1 if leader else 0)

    def note_event(self, kind: str, now: float) -> None:
        """Record that a watch brought an event of `kind` at monotonic time `now`."""
        if kind not in self._seen:
            self._age.labels(kind).set_function(lambda: time.monotonic() - self._seen[kind])
        self._seen[kind] = now

    def note_watch(self, plural: str, *, fails: bool) -> None:
        """Record that lists or watches of a kind began to fail, or work again."""
        self._unwatched.labels(plural).set(1 if fails else 0)

    def depths(self, queue: Callable[[], int], objects: Callable[[], int]) -> None:
        """Register functions that each scrape calls, so that nobody has to keep these gauges up to date."""
        self._queue.set_function(lambda: float(queue()))
        self._objects.set_function(lambda: float(objects()))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, labels, buckets=buckets, registry=self.registry)
