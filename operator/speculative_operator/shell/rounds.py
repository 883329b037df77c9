"""One Prometheus round for each namespace and tick, shared by all its objects; then each of them is due.

The workers never wait for Prometheus: a round that hangs leaves a gap, and children are reconciled meanwhile. Nor does
a namespace wait for another one: those whose answers were slow lately share two threads, and what a namespace may hold
in memory is granted before it is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

from speculative_operator.domain.observation import Gap, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.settings import Settings
from speculative_operator.shell.bodies import Key
from speculative_operator.shell.podseries import SERIES_OF_A_POD, Addresses, Answer, units
from speculative_operator.shell.telemetry import Telemetry

log = logging.getLogger(__name__)

FEWEST_THREADS, MOST_THREADS = 4, 16
"""Fewest and most queries at once for namespaces that answer quickly."""
NAMESPACES_OF_A_THREAD = 10
SLOW_THREADS = 2
"""Most queries at once for namespaces that were slow lately."""
SLOW_SHARE = 0.25
"""An answer that took more than this share of the time allowed is slow."""
QUICK_ROUNDS = 3
"""Number of quick answers in a row that make a slow namespace a quick one."""
PODS_OF_A_QUERY = 50
SHARE_OF_A_NAMESPACE = 0.4
DIRECT_SHARE = 0.25
"""Share of a tick for which pods are read themselves after Prometheus has brought nothing."""
FEW = 2 * SERIES_OF_A_POD
"""Units of series that a namespace is granted however much others hold."""


@dataclass
class Room:
    """Units of series (about 2 KiB each) that all namespaces together may still hold."""

    free: int


class Round:
    """The result of the queries for a namespace. `time` is the instant that they ask about, in unix seconds."""

    def __init__(self, time: float, result: Answer | Gap, room: Room | None = None) -> None:
        self.time = time
        self.gap = result if isinstance(result, Gap) else None
        """Why nothing is known of any pod; None where the queries brought an answer."""
        self.gaps: Mapping[str, Gap] = {} if isinstance(result, Gap) else result.gaps
        """Pod -> why nothing is known of it."""
        self.direct = "" if isinstance(result, Gap) else result.direct
        """Why pods were read themselves; empty where Prometheus told of them."""
        self._series = {} if isinstance(result, Gap) else dict(result.series)
        self._room = room
        if room is not None:
            room.free -= sum(map(units, self._series.values()))

    def take(self, pods: Iterable[str]) -> tuple[Series, ...]:
        """The series of these pods, given out once: series that were taken are no longer held. Empty when nothing was
        seen."""
        found = tuple(series for pod in pods for series in self._series.pop(pod, ()))
        if self._room is not None:
            self._room.free += units(found)
        return found

    def drop(self) -> None:
        """Drop the series that nobody took."""
        self.take(list(self._series))


class Source(Protocol):
    """What a round reads from: `prometheus.Prometheus`, `scraper.WithPods`, or a fake."""

    def fetch(self, namespace: str, pods: Addresses, now: float, most: int) -> Answer | Gap: ...

    def forget(self, namespace: str) -> None: ...


@dataclass
class _Lane:
    """Namespaces that wait for a thread, in their order, and how many threads they have."""

    size: int
    waiting: deque[str] = field(default_factory=deque)
    busy: int = 0


class Rounds:
    """Runs rounds for the namespaces that `wanted()` names: those with a ready pod, and the objects there."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        telemetry: Telemetry,
        wanted: Callable[[], Mapping[str, Sequence[Key]]],
        addresses: Callable[[Sequence[Key]], Addresses],
        arrived: Callable[[Sequence[Key]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tick = settings.tick_seconds
        self._timeout = settings.prometheus_timeout_seconds
        self._source = source
        self._telemetry = telemetry
        self._wanted = wanted
        self._addresses = addresses
        self._arrived = arrived
        self._clock = clock
        self._room = Room(settings.prometheus_series)
        self._share = int(SHARE_OF_A_NAMESPACE * settings.prometheus_series)
        self._keys: Mapping[str, Sequence[Key]] = {}
        self._latest: dict[str, Round] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._last: dict[str, float] = {}
        self._slow: dict[str, int] = {}
        """Namespace -> quick answers until it is no longer held to be slow."""
        self._quick, self._late = _Lane(FEWEST_THREADS), _Lane(SLOW_THREADS)
        self._threads = ThreadPoolExecutor(MOST_THREADS + SLOW_THREADS, thread_name_prefix="prometheus")

    def latest(self, namespace: str) -> Round | None:
        """The newest finished round of a namespace; None before the first."""
        return self._latest.get(namespace)

    async def run(self) -> None:
        """Start rounds when they are due, until cancelled."""
        try:
            while True:
                self.start_due(self._clock(), self._wanted())
                await asyncio.sleep(self._tick / 5)
        finally:
            for task in self._running.values():
                task.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def start_due(self, now: float, wanted: Mapping[str, Sequence[Key]]) -> None:
        """Start the rounds of namespaces whose turn has come; a namespace that still waits or is being asked is told
        so."""
        self._keys = wanted
        self._quick.size = min(max(FEWEST_THREADS, len(wanted) // NAMESPACES_OF_A_THREAD), MOST_THREADS)
        waiting = {*self._quick.waiting, *self._late.waiting, *self._running}
        for namespace in wanted:
            slot = slot_of(namespace, now, self._tick)
            if self._last.get(namespace) == slot:
                continue
            self._last[namespace] = slot
            if namespace in waiting:
                known = self._latest.get(namespace)
                late = Gap(Reason.PROMETHEUS_TIMEOUT, "Prometheus did not answer within a tick")
                self._tell(namespace, time.time(), (known.gap if known is not None else None) or late)
            else:
                (self._late if namespace in self._slow else self._quick).waiting.append(namespace)
        self._drop(wanted)
        self._fill()

    def _drop(self, wanted: Mapping[str, Sequence[Key]]) -> None:
        for namespace in set(self._last) - set(wanted) - set(self._running):
            del self._last[namespace]
            self._slow.pop(namespace, None)
            self._source.forget(namespace)
            if namespace in self._latest:
                self._latest.pop(namespace).drop()

    def _fill(self) -> None:
        """Give free threads to waiting namespaces. A namespace that needs much memory waits until there is room for
        it."""
        for lane in (self._quick, self._late):
            for _ in range(len(lane.waiting)):
                if lane.busy >= lane.size:
                    break
                namespace = lane.waiting.popleft()
                pods = self._addresses(self._keys.get(namespace, ()))
                if not pods:
                    continue
                most = max(min(len(pods) * SERIES_OF_A_POD, self._share), FEW)
                if FEW < most > self._room.free:
                    lane.waiting.append(namespace)
                    continue
                lane.busy += 1
                self._room.free -= most
                task = asyncio.create_task(self._round(lane, namespace, pods, most), name=f"round {namespace}")
                self._running[namespace] = task

    async def _round(self, lane: _Lane, namespace: str, pods: Addresses, most: int) -> None:
        """Ask for the series of a namespace. Its time starts with its thread, which nobody else gets before it is
        free."""
        now, started = time.time(), self._clock()
        queries = 1 + len(pods) // PODS_OF_A_QUERY
        seconds = self._timeout + 0.5 + self._tick * (1.0 if queries > 1 else DIRECT_SHARE)
        try:
            work = asyncio.get_running_loop().run_in_executor(
                self._threads, self._source.fetch, namespace, pods, now, most
            )
            done, _ = await asyncio.wait({work}, timeout=seconds)
            if not done:
                self._tell(namespace, now, Gap(Reason.PROMETHEUS_TIMEOUT, f"no answer of Prometheus in {seconds:g} s"))
                await asyncio.wait({work})
            error = work.exception()
            if error is not None:
                log.error("cannot read metrics", exc_info=error, extra={"namespace": namespace})
                gap = Gap(Reason.PROMETHEUS_ERROR, f"{type(error).__name__} while reading metrics")
                self._tell(namespace, now, gap)
            elif done:
                self._tell(namespace, now, work.result())
            took = self._clock() - started
            self._telemetry.query(took)
            slow = took > SLOW_SHARE * self._timeout * queries
            rounds = QUICK_ROUNDS if slow else self._slow.pop(namespace, 1) - 1
            if rounds:
                self._slow[namespace] = rounds
        finally:
            lane.busy -= 1
            self._room.free += most
            del self._running[namespace]
        self._fill()

    def _tell(self, namespace: str, now: float, result: Answer | Gap) -> None:
        if namespace in self._latest:
            self._latest[namespace].drop()
        taken = result.time if isinstance(result, Answer) else None
        self._latest[namespace] = Round(now if taken is None else taken, result, self._room)
        self._arrived(self._keys.get(namespace, ()))


def slot_of(namespace: str, now: float, tick: float) -> float:
    """Number of the tick that `now` falls in; namespaces are spread over the tick by a hash of their name."""
    offset = crc32(namespace.encode()) % 1000 / 1000.0
    return float((now / tick + offset) // 1)
