"""What the operator tells about itself and about each object, and the one port on which it does: /healthz and /readyz
for the kubelet, /metrics for Prometheus. Everything in `shell` counts here; `operator` opens the port.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

from speculative_operator import __version__
from speculative_operator.domain.reasons import Reason
from speculative_operator.reconcile.observed.series import FAMILIES, Sample
from speculative_operator.shell.bodies import Key

PREFIX = "speculative_operator"
FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SLOW = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
DECISIONS = "object_decisions_total"
Lines = Mapping[str, str]
"""Name of a metric family -> its lines for one object."""
METRICS_SECONDS = 1.0
"""Seconds for which one text of the metrics is given out: frequent scrapes take no time from what keeps the Lease."""
GAPS = (
    *(Reason.STARTING, Reason.COLLECTING, Reason.COUNTER_RESET, Reason.UNSUPPORTED_BY_ENGINE),
    *(Reason.METRICS_MISSING, Reason.METRICS_STALE, Reason.METRICS_ABSURD, Reason.METRICS_PARTIAL),
    *(Reason.METRICS_FOREIGN, Reason.PROMETHEUS_ERROR, Reason.PROMETHEUS_TIMEOUT),
)
"""Why metrics cannot be read. Each is counted from 0 on: Prometheus sees no increase in a counter's first value."""
Check = Callable[[], str]
"""Returns an empty text when all is well, else what is wrong."""


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
        for reason in GAPS:
            self._gaps.labels(reason)
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

    def gap(self, reason: Reason) -> None:
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

    def depths(self, queue: int, objects: int) -> None:
        """Record how many objects wait to be reconciled, and how many are known."""
        self._queue.set(queue)
        self._objects.set(objects)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, labels, buckets=buckets, registry=self.registry)


@dataclass(slots=True)
class _Object:
    steady: Lines = field(default_factory=dict)
    measured: Lines = field(default_factory=dict)
    until: float = 0.0
    """Unix seconds after which `measured` is too old."""
    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Number of decisions by reason."""
    decisions: Lines = field(default_factory=dict)


class ObjectMetrics:
    """The metrics of all objects that one process reconciles, which is the leader, as text that is kept ready: a scrape
    of a large fleet only joins it. An object that is gone, or whose figures are too old, has no series. `prefix` begins
    every name; `clock` gives unix seconds."""

    def __init__(self, prefix: str, clock: Callable[[], float]) -> None:
        self._prefix = prefix
        self._clock = clock
        self._objects: defaultdict[Key, _Object] = defaultdict(_Object)

    def put(self, key: Key, steady: Iterable[Sample], measured: Iterable[Sample], until: float) -> None:
        """Replace all gauges of an object; `measured` holds until `until`, unix seconds."""
        one = self._objects[key]
        one.steady, one.measured, one.until = self._lines(key, steady), self._lines(key, measured), until

    def count(self, key: Key, reason: str) -> None:
        """Count one more decision with this reason."""
        one = self._objects[key]
        one.counts[reason] += 1
        samples = ((DECISIONS, (("reason", reason),), float(count)) for reason, count in sorted(one.counts.items()))
        one.decisions = self._lines(key, samples)

    def forget(self, key: Key) -> None:
        """Remove the metrics of an object that is gone."""
        self._objects.pop(key, None)

    def render(self) -> bytes:
        """All metrics of all objects as text exposition, format 0.0.4."""
        now, parts = self._clock(), []
        # A scrape is answered by another thread than the one that changes the objects.
        objects = [one for _, one in sorted(self._objects.copy().items(), key=lambda item: item[0])]
        for name, text in FAMILIES.items():
            lines = [one.steady.get(name) or (one.measured.get(name) if now < one.until else None) for one in objects]
            parts += self._family(name, text, "gauge", lines)
        lines = [one.decisions.get(DECISIONS) for one in objects]
        return "".join([*parts, *self._family(DECISIONS, "Decisions of the tuner.", "counter", lines)]).encode()

    def _family(self, name: str, text: str, kind: str, lines: Iterable[str | None]) -> list[str]:
        """The lines of a metric family with their header; empty where there are none."""
        full = [line for line in lines if line]
        head = f"# HELP {self._prefix}_{name} {text}\n# TYPE {self._prefix}_{name} {kind}\n"
        return [head, *full] if full else []

    def _lines(self, key: Key, samples: Iterable[Sample]) -> Lines:
        lines: defaultdict[str, str] = defaultdict(str)
        for name, labels, value in samples:
            pairs = (("namespace", key[0]), ("name", key[1]), *labels)
            told = ",".join(f'{label}="{_escape(text)}"' for label, text in pairs)
            lines[name] += f"{self._prefix}_{name}{{{told}}} {value!r}\n"
        return lines


def _escape(value: str) -> str:
    """A label's value as text exposition wants it: one bad value would spoil the page of all objects."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _listener(host: str, port: int) -> socket.socket:
    """Listens on `host`; on every address of IPv4 and IPv6 where none is given, as far as the machine has them. Raises
    OSError."""
    if not host and socket.has_dualstack_ipv6():
        # A kernel with IPv6 turned off lets such a socket be made, and not be bound.
        with suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


class Endpoints:
    """An HTTP server on `host:port`; `port` 0 takes a free one, readable from `port` after `start`. It may run in
    another thread than what it asks."""

    def __init__(
        self,
        host: str,
        port: int,
        telemetry: Telemetry,
        healthy: Check,
        ready: Check,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self.port = port
        self._telemetry = telemetry
        self._healthy = healthy
        self._ready = ready
        self._clock = clock
        self._rendered: tuple[float, bytes] | None = None
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on the port. Raises OSError when the port is taken."""
        app = web.Application()
        app.router.add_get("/healthz", self._answer(self._healthy))
        app.router.add_get("/readyz", self._answer(self._ready))
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.SockSite(self._runner, _listener(self._host, self.port)).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _answer(self, check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(_: web.Request) -> web.Response:
            wrong = check()
            return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)

        return handle

    async def _metrics(self, _: web.Request) -> web.Response:
        now = self._clock()
        if self._rendered is None or now - self._rendered[0] >= METRICS_SECONDS:
            self._rendered = now, self._telemetry.render()
        return web.Response(body=self._rendered[1], headers={"Content-Type": "text/plain; version=0.0.4"})
