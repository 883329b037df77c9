"""Figures read from serving pods themselves, where Prometheus cannot be asked or has nothing of them. Used by `rounds`,
in threads.

A cluster without Prometheus, or one whose Prometheus leaves serving pods out, is tuned too: each tick reads `/metrics`
of the pods, and a minute of that is kept. Pods are not trusted: what one costs is bounded in seconds, bytes and series,
whatever it answers. Prometheus is asked again every few minutes, and what it says goes before.
"""

from __future__ import annotations

import http.client
import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from speculative_operator.domain import names
from speculative_operator.domain.observation import Gap, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.exposition import ExpositionError, SeriesKey, parse, series_of
from speculative_operator.engines.registry import NAMES, missing
from speculative_operator.settings import Settings
from speculative_operator.shell.podseries import SERIES_OF_A_POD, Addresses, Answer, Reached, units
from speculative_operator.shell.rounds import DIRECT_SHARE, Source

log = logging.getLogger(__name__)

MOST_PODS = 32
"""Most pods that are read, over all namespaces: more are work for a Prometheus."""
MOST_SCRAPES = 12
"""Most scrapes that are kept of a pod."""
LARGEST_PAGE = 4 * 2**20
"""Most bytes of one exposition."""
PAGE_SECONDS = 2.0
"""Seconds for one whole exposition, connection included."""
WITHOUT_SECONDS = 60.0
"""Seconds for which Prometheus must have had nothing before pods are asked: a restart of it is over by then."""
ASK_SECONDS = 300.0
"""Seconds between two questions to a Prometheus that had nothing: one that hangs takes half of the tick."""
MOST_FAILURES = 3
"""Ticks in a row in which no pod could be read; after them pods rest for REST_SECONDS."""
REST_SECONDS = 60.0
REFUSED_SECONDS = 300.0
"""Seconds for which a port on which nobody listened is not asked again."""
_LATE = "no whole answer in time"
_ENGINES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""TLS without verification: the certificate of a Service does not name the addresses of pods, which are not trusted."""
_ENGINES.check_hostname, _ENGINES.verify_mode = False, ssl.CERT_NONE
_BLIND = frozenset({Reason.PROMETHEUS_ERROR, Reason.PROMETHEUS_TIMEOUT})


class PageError(Exception):
    """A pod's exposition could not be read. The message says what happened."""


@dataclass
class _Pod:
    """What is kept of one pod."""

    scrapes: list[tuple[float, Mapping[SeriesKey, float]]] = field(default_factory=list)
    """Unix time and values of each scrape, the oldest first."""
    quiet_until: float = -math.inf
    """Monotonic seconds until which the port of step telemetry is not asked."""


class Scraper:
    """Reads pods. `fetch` blocks; it is called for a namespace from one thread at a time."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._horizon = min(settings.prometheus_range_seconds, MOST_SCRAPES * settings.tick_seconds)
        self._budget = DIRECT_SHARE * settings.tick_seconds
        self._clock = clock
        self._pods: dict[tuple[str, str], _Pod] = {}
        self._turn = 0

    def fetch(self, namespace: str, pods: Addresses, now: float, most: int) -> Answer:
        """Read these pods of the namespace; returns their series of the last minute, in `most` units at most. It is
        unix time `now` when this is called."""
        self._forget_others(namespace, pods)
        series, gaps = dict[str, tuple[Series, ...]](), dict[str, Gap]()
        began, room = self._clock(), most
        for name in self._in_turn(pods):
            try:
                if self._clock() - began > self._budget:
                    raise PageError("there was no time left in this tick")
                pod = self._read(namespace, name, pods[name], now - began)
            except PageError as error:
                gaps[name] = Gap(Reason.METRICS_MISSING, f"its metrics cannot be read: {error}")
                continue
            found = tuple(series_of(name, pod.scrapes))
            room -= units(found)
            if room < 0:
                gaps[name] = Gap(Reason.METRICS_MISSING, "the namespace has more series than may be held")
                continue
            series[name] = found
        return Answer(series, gaps, time=now + self._clock() - began)

    def forget(self, namespace: str) -> None:
        """Drop the pods of a namespace that nobody asks for any more."""
        self._forget_others(namespace, {})

    def _in_turn(self, pods: Addresses) -> list[str]:
        """Names of the pods, beginning with another one each time, so that slow pods do not always take the time of the
        same others."""
        order = sorted(pods)
        self._turn += 1
        first = self._turn % len(order) if order else 0
        return [*order[first:], *order[:first]]

    def _forget_others(self, namespace: str, pods: Addresses) -> None:
        for key in [key for key in list(self._pods) if key[0] == namespace and key[1] not in pods]:
            self._pods.pop(key, None)

    def _read(self, namespace: str, name: str, addresses: tuple[str, ...], offset: float) -> _Pod:
        """The pod with a scrape of now; `offset`: from monotonic to unix seconds. Raises PageError."""
        key = (namespace, name)
        pod = self._pods.get(key) or _Pod()
        if key not in self._pods and len(self._pods) >= MOST_PODS:
            raise PageError(f"more than {MOST_PODS} pods are not read without Prometheus")
        if not addresses:
            raise PageError("it has no address")
        at = self._clock() + offset
        values = self._values(pod, addresses if isinstance(addresses, Reached) else Reached(addresses))
        if pod.scrapes and at <= pod.scrapes[-1][0]:  # the clock was set back
            pod.scrapes = []
        pod.scrapes = [*(one for one in pod.scrapes if one[0] >= at - self._horizon), (at, values)]
        self._pods[key] = pod
        return pod

    def _values(self, pod: _Pod, reached: Reached) -> Mapping[SeriesKey, float]:
        """Values of the engine's own series, and of step telemetry where there is any. Raises PageError."""
        found = dict(self._page(reached[0], reached.port, encrypted=reached.encrypted))
        if self._clock() >= pod.quiet_until:
            try:
                found |= self._page(reached[0], names.TELEMETRY_PORT)
            except PageError as error:
                refused = isinstance(error.__cause__, ConnectionRefusedError)
                pod.quiet_until = self._clock() + (REFUSED_SECONDS if refused else REST_SECONDS)
        if len(found) > SERIES_OF_A_POD:
            raise PageError(f"it exports more than {SERIES_OF_A_POD} series")
        return found

    @staticmethod
    def _page(address: str, port: int, *, encrypted: bool = False) -> Mapping[SeriesKey, float]:
        where, ended = f"port {port}", threading.Event()
        connection = http.client.HTTPConnection(address, port, timeout=PAGE_SECONDS)
        try:
            connection.connect()
            if encrypted:
                connection.sock = _ENGINES.wrap_socket(connection.sock, do_handshake_on_connect=False)
            with _end_after(connection.sock, PAGE_SECONDS, ended):
                if isinstance(connection.sock, ssl.SSLSocket):
                    connection.sock.do_handshake()
                connection.request("GET", "/metrics")
                answer = connection.getresponse()
                page = answer.read(LARGEST_PAGE + 1)
        except (OSError, http.client.HTTPException) as error:
            why = _LATE if ended.is_set() else type(error).__name__
            raise PageError(f"{where}: {why}") from error
        finally:
            connection.close()
        if ended.is_set():
            raise PageError(f"{where}: {_LATE}")
        if answer.status != 200:
            raise PageError(f"{where} answered {answer.status}")
        if len(page) > LARGEST_PAGE or answer.length:
            raise PageError(f"{where}: the page is too large, or is not whole")
        try:
            return parse(page.decode("utf-8", "replace"), NAMES)
        except ExpositionError as error:
            raise PageError(f"{where}: {error}") from error


@contextmanager
def _end_after(connection: socket.socket, seconds: float, ended: threading.Event) -> Iterator[None]:
    """End the connection after `seconds`, however its other side goes on: a socket's timeout is one of each read. Then
    `ended` is set, and the text read so far is no whole answer."""

    def end() -> None:
        ended.set()
        with suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # below TLS, which another thread is speaking

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass
class _Without:
    """A namespace of which Prometheus has nothing. Times are monotonic seconds."""

    since: float
    asked: float = -math.inf
    """When Prometheus was asked last."""
    tried: float = -math.inf
    """When its pods were read last."""
    why: str = ""
    failures: int = MOST_FAILURES
    """Reads in a row that brought nothing; MOST_FAILURES before the first read."""

    @property
    def works(self) -> bool:
        return self.failures < MOST_FAILURES


class WithPods:
    """Reads from Prometheus, and from the pods themselves where Prometheus had nothing of a namespace for a while."""

    def __init__(self, prometheus: Source, scraper: Scraper, clock: Callable[[], float] = time.monotonic) -> None:
        self._prometheus, self._scraper, self._clock = prometheus, scraper, clock
        self._without: dict[str, _Without] = {}

    def fetch(self, namespace: str, pods: Addresses, now: float, most: int) -> Answer | Gap:
        """Fetch like `Prometheus.fetch`; where the pods were read themselves the answer says why (`Answer.direct`).
        Where they cannot be read either, the answer is that of Prometheus."""
        known, began = self._without.get(namespace), self._clock()
        if known is not None and known.works and began - known.asked < ASK_SECONDS:
            direct = self._read(namespace, pods, now, most, known)
            if direct is not None:
                return direct
        found = self._prometheus.fetch(namespace, pods, now, most)
        why = _nothing(found)
        if not why:
            if known is not None and known.works:
                log.info("Prometheus has figures of the serving pods again", extra={"namespace": namespace})
            self._without.pop(namespace, None)
            self._scraper.forget(namespace)
            return found
        known = self._without.setdefault(namespace, _Without(began))
        known.asked, known.why = self._clock(), why
        rested = known.works or self._clock() - known.tried >= REST_SECONDS
        if self._clock() - known.since < WITHOUT_SECONDS or not rested:
            return found
        return self._read(namespace, pods, now + self._clock() - began, most, known) or found

    def forget(self, namespace: str) -> None:
        """Drop what is remembered of a namespace that nobody asks for any more."""
        self._without.pop(namespace, None)
        self._prometheus.forget(namespace)
        self._scraper.forget(namespace)

    def _read(self, namespace: str, pods: Addresses, now: float, most: int, known: _Without) -> Answer | None:
        """The answer of the pods at unix time `now`; None where no pod gave any series."""
        found = self._scraper.fetch(namespace, pods, now, most)
        known.tried = self._clock()
        if not found.series:
            known.failures += 1
            return None
        if not known.works:
            said = "the operator reads the metrics of serving pods from the pods: %s"
            log.info(said, known.why, extra={"namespace": namespace})
        known.failures = 0
        return Answer(found.series, found.gaps, found.time, known.why)


def _nothing(found: Answer | Gap) -> str:
    """Why Prometheus tells of no pod what its engine needs; empty where it does, or where pods must not be read in its
    place."""
    if isinstance(found, Gap):
        return found.message if found.reason in _BLIND else ""
    if any(gap.reason is not Reason.METRICS_MISSING for gap in found.gaps.values()):
        return ""
    if found.series:
        lacking = missing({track.name for own in found.series.values() for track in own})
        return f"in Prometheus {lacking}" if lacking else ""
    return next((gap.message for _, gap in sorted(found.gaps.items())), "Prometheus has no series of them")
