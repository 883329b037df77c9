"""Figures read from serving pods themselves, where Prometheus cannot be asked or has nothing of them. Used by `rounds`,
in threads.

A cluster without Prometheus, or one whose Prometheus leaves serving pods out, is tuned too: each tick reads `/metrics`
of the pods, and a minute of that is kept. It is bounded: so many pods, so many bytes and seconds of each. Prometheus is
asked again every minute, and what it says goes before.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import requests

from speculative_operator.domain import names
from speculative_operator.domain.observation import Gap, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.registry import LABELS, NAMES
from speculative_operator.replay.exposition import Exposition, ExpositionError, SeriesKey
from speculative_operator.settings import Settings
from speculative_operator.shell.podseries import SERIES_OF_A_POD, Addresses, Answer
from speculative_operator.shell.rounds import Source

log = logging.getLogger(__name__)

MOST_PODS = 32
"""Pods that are read at once, over all namespaces: more are work for a Prometheus."""
LARGEST_PAGE = 4 * 2**20
"""bytes of one exposition."""
PAGE_SECONDS = 2.0
"""For one whole exposition."""
WITHOUT_SECONDS = 60.0
"""Prometheus must have had nothing for so long before pods are asked: a restart of it is over by then."""
ASK_SECONDS = 60.0
"""Between two questions to a Prometheus that had nothing: one that hangs would take the whole tick."""
REFUSED_SECONDS = 300.0
"""For so long a port on which nobody listened is not asked again."""
_BLIND = frozenset({Reason.PROMETHEUS_ERROR, Reason.PROMETHEUS_TIMEOUT})


class PageError(Exception):
    """A pod's exposition could not be read. The message says what happened."""


@dataclass
class _Pod:
    """What is kept of one pod."""

    exposition: Exposition
    scrapes: deque[tuple[float, Mapping[SeriesKey, float]]] = field(default_factory=deque)
    refused: dict[int, float] = field(default_factory=dict)
    """Port -> when nobody listened there, monotonic seconds."""


class Scraper:
    """Reads pods. `fetch` blocks; it is called for a namespace from one thread at a time."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept_seconds = settings.prometheus_range_seconds
        self._tick = settings.tick_seconds
        self._clock = clock
        self._pods: dict[tuple[str, str], _Pod] = {}
        self._local = threading.local()

    def fetch(self, namespace: str, pods: Addresses, now: float) -> Answer:
        """Series of these pods of the namespace: what was read of each within the last minute, at unix time `now`."""
        self._forget_others(namespace, pods)
        series, gaps = dict[str, tuple[Series, ...]](), dict[str, Gap]()
        until = self._clock() + 0.5 * self._tick
        for name in sorted(pods):
            pod = self._pods.get((namespace, name))
            if pod is None and len(self._pods) >= MOST_PODS:
                gaps[name] = Gap(Reason.METRICS_MISSING, f"more than {MOST_PODS} pods are not read without Prometheus")
                continue
            pod = self._pods.setdefault((namespace, name), pod or _Pod(Exposition(NAMES)))
            try:
                if self._clock() > until:
                    raise PageError("there was no time left in this tick")
                self._add(pod, now, self._read(pod, pods[name]))
            except PageError as error:
                gaps[name] = Gap(Reason.METRICS_MISSING, f"its metrics cannot be read: {error}")
                continue
            series[name] = tuple(_series(pod, name))
        return Answer(series, gaps)

    def forget(self, namespace: str) -> None:
        """Nobody asks for the namespace any more."""
        self._forget_others(namespace, {})

    def _forget_others(self, namespace: str, pods: Addresses) -> None:
        for key in [key for key in list(self._pods) if key[0] == namespace and key[1] not in pods]:
            self._pods.pop(key, None)

    def _add(self, pod: _Pod, now: float, values: Mapping[SeriesKey, float]) -> None:
        if pod.scrapes and now <= pod.scrapes[-1][0]:
            pod.scrapes.clear()  # the clock was set back
        pod.scrapes.append((now, values))
        while pod.scrapes[0][0] < now - self._kept_seconds:
            pod.scrapes.popleft()

    def _read(self, pod: _Pod, addresses: tuple[str, ...]) -> Mapping[SeriesKey, float]:
        """Values of the engine's own series and of step telemetry, where there is any. Raises PageError."""
        if not addresses:
            raise PageError("it has no address")
        host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        found = dict(self._page(pod, host, names.SERVING_PORT))
        if self._clock() - pod.refused.get(names.TELEMETRY_PORT, -REFUSED_SECONDS) >= REFUSED_SECONDS:
            try:
                found |= self._page(pod, host, names.TELEMETRY_PORT)
            except PageError:
                pod.refused[names.TELEMETRY_PORT] = self._clock()
        if len(found) > SERIES_OF_A_POD:
            raise PageError(f"it exports more than {SERIES_OF_A_POD} series")
        return found

    def _page(self, pod: _Pod, host: str, port: int) -> Mapping[SeriesKey, float]:
        url, until = f"http://{host}:{port}/metrics", self._clock() + PAGE_SECONDS
        try:
            with self._session().get(url, timeout=PAGE_SECONDS, stream=True, allow_redirects=False) as answer:
                if answer.status_code != 200:
                    raise PageError(f"{url} answered {answer.status_code}")
                page = bytearray()
                for piece in answer.iter_content(64 * 1024):
                    page += piece
                    if len(page) > LARGEST_PAGE or self._clock() > until:
                        raise PageError(f"{url} is too large or too slow")
            return pod.exposition.parse(page.decode("utf-8", "replace"))
        except (requests.RequestException, OSError) as error:
            raise PageError(f"{url}: {type(error).__name__}") from error
        except ExpositionError as error:
            raise PageError(f"{url}: {error}") from error

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.trust_env = False  # a proxy of the environment would be asked for addresses of pods
        return session


@dataclass
class _Without:
    """A namespace of which Prometheus has nothing. Monotonic seconds."""

    since: float
    asked: float = -math.inf
    """When Prometheus was asked last."""
    tried: float = -math.inf
    """When its pods were read last."""
    why: str = ""
    works: bool = False
    """True when the last read brought something."""


class WithPods:
    """Prometheus, and the pods themselves where it had nothing of a namespace for a while."""

    def __init__(self, prometheus: Source, scraper: Scraper, clock: Callable[[], float] = time.monotonic) -> None:
        self._prometheus, self._scraper, self._clock = prometheus, scraper, clock
        self._without: dict[str, _Without] = {}

    def fetch(self, namespace: str, pods: Addresses, now: float, most: int) -> Answer | Gap:
        """As `Prometheus.fetch`; of pods that were read themselves the answer says why (`Answer.direct`). Where they
        cannot be read either, it is that of Prometheus."""
        known = self._without.get(namespace)
        if known is not None and known.works and self._clock() - known.asked < ASK_SECONDS:
            direct = self._read(namespace, pods, now, known)
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
        known = self._without.setdefault(namespace, _Without(self._clock()))
        known.asked, known.why = self._clock(), why
        rested = known.works or self._clock() - known.tried >= ASK_SECONDS
        if self._clock() - known.since < WITHOUT_SECONDS or not rested:
            return found
        return self._read(namespace, pods, now, known) or found

    def forget(self, namespace: str) -> None:
        """Nobody asks for the namespace any more."""
        self._without.pop(namespace, None)
        self._prometheus.forget(namespace)
        self._scraper.forget(namespace)

    def _read(self, namespace: str, pods: Addresses, now: float, known: _Without) -> Answer | None:
        """What the pods say; None where none says anything."""
        found = self._scraper.fetch(namespace, pods, now)
        known.tried = self._clock()
        if found.series and not known.works:
            log.info(
                "the metrics of serving pods are read from the pods: %s", known.why, extra={"namespace": namespace}
            )
        known.works = bool(found.series)
        return Answer(found.series, found.gaps, direct=known.why) if known.works else None


def _nothing(found: Answer | Gap) -> str:
    """Why Prometheus tells nothing of any pod; empty where it does, or where what it tells must not be believed."""
    if isinstance(found, Gap):
        return found.message if found.reason in _BLIND else ""
    if found.series or any(gap.reason is not Reason.METRICS_MISSING for gap in found.gaps.values()):
        return ""
    return "Prometheus has no series of them"


def _series(pod: _Pod, name: str) -> list[Series]:
    """What is kept, as Prometheus would answer it."""
    samples: dict[SeriesKey, list[tuple[float, float]]] = {}
    for at, values in pod.scrapes:
        for key, value in values.items():
            samples.setdefault(key, []).append((at, value))
    return [Series(key.name, _labelled(key, name), tuple(found)) for key, found in samples.items()]


def _labelled(key: SeriesKey, pod: str) -> dict[str, str]:
    return {label: value for label, value in key.labels if label in LABELS} | {"pod": pod}
