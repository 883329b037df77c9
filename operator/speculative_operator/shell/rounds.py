"""One Prometheus round for each namespace and tick, shared by all its objects; then each of them is due.

The workers never wait for Prometheus: a round that hangs leaves a gap, and children are reconciled meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

from speculative_operator.domain.observation import Gap, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.settings import Settings
from speculative_operator.shell.telemetry import Telemetry

log = logging.getLogger(__name__)

THREADS = 4
"""Queries at once. Each ends within its timeout, so a hung server holds a thread for one round at most."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one query brought. `time` is the instant it asks about, unix seconds."""

    time: float
    result: Mapping[str, tuple[Series, ...]] | Gap
    """Series by pod, so that each object looks at its own only."""

    def of(self, pods: Iterable[str]) -> tuple[Series, ...]:
        """Series of these pods; empty when nothing was seen."""
        if isinstance(self.result, Gap):
            return ()
        return tuple(series for pod in pods for series in self.result.get(pod, ()))


class Source(Protocol):
    """What a round reads from: `prometheus.Prometheus`, or a fake."""

    def fetch(self, namespace: str, now: float) -> tuple[Series, ...] | Gap: ...


class Rounds:
    """Runs rounds for the namespaces that `wanted()` names: those with a ready pod."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        telemetry: Telemetry,
        wanted: Callable[[], set[str]],
        arrived: Callable[[str], None],
    ) -> None:
        self._tick = settings.tick_seconds
        self._deadline = settings.prometheus_timeout_seconds + 0.5
        self._source = source
        self._telemetry = telemetry
        self._wanted = wanted
        self._arrived = arrived
        self._latest: dict[str, Round] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._last: dict[str, float] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="prometheus")

    def latest(self, namespace: str) -> Round | None:
        """The newest finished round of a namespace."""
        return self._latest.get(namespace)

    async def run(self) -> None:
        """Start rounds when they are due, until cancelled."""
        try:
            while True:
                self.start_due(time.monotonic(), self._wanted())
                await asyncio.sleep(self._tick / 10)
        finally:
            for task in self._running.values():
                task.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def start_due(self, now: float, wanted: set[str]) -> None:
        """Start a round for each namespace whose turn has come and that is not still asking."""
        for namespace in wanted:
            slot = slot_of(namespace, now, self._tick)
            if namespace in self._running or self._last.get(namespace) == slot:
                continue
            self._last[namespace] = slot
            task = asyncio.create_task(self._round(namespace), name=f"round {namespace}")
            self._running[namespace] = task
        self._drop(wanted)

    def _drop(self, wanted: set[str]) -> None:
        for namespace in set(self._last) - wanted - set(self._running):
            del self._last[namespace]
            self._latest.pop(namespace, None)

    async def _round(self, namespace: str) -> None:
        now, started = time.time(), time.monotonic()
        try:
            result = await self._fetch(namespace, now)
            self._telemetry.query(time.monotonic() - started)
            self._latest[namespace] = Round(now, result if isinstance(result, Gap) else by_pod(result))
            self._arrived(namespace)
        finally:
            del self._running[namespace]

    async def _fetch(self, namespace: str, now: float) -> tuple[Series, ...] | Gap:
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._source.fetch, namespace, now)
        try:
            async with asyncio.timeout(self._deadline):
                return await work
        except TimeoutError:
            return Gap(Reason.PROMETHEUS_TIMEOUT, f"no answer within {self._deadline:g} s")
        except Exception as error:
            log.exception("reading metrics failed", extra={"namespace": namespace})
            return Gap(Reason.PROMETHEUS_ERROR, f"{type(error).__name__} while reading metrics")


def by_pod(result: Iterable[Series]) -> dict[str, tuple[Series, ...]]:
    """Series grouped by their label `pod`; those without are nobody's."""
    groups: dict[str, list[Series]] = {}
    for series in result:
        groups.setdefault(series.labels.get("pod", ""), []).append(series)
    return {pod: tuple(group) for pod, group in groups.items() if pod}


def slot_of(namespace: str, now: float, tick: float) -> float:
    """Number of the tick that `now` falls in; namespaces are spread over the tick by a hash of their name."""
    offset = crc32(namespace.encode()) % 1000 / 1000.0
    return float((now / tick + offset) // 1)
