"""Startup, readiness and liveness probes: a pure counter per probe and a task that feeds it.

A runner makes a Prober for each start of a container and is told through callbacks.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .actions import Target, act

Kind = Literal["startup", "readiness", "liveness"]
_SPREAD = 0.2


@dataclass(frozen=True)
class Counter:
    """Consecutive answers against thresholds. `verdict` is what the probe holds to be true now, None at first."""

    success_threshold: int
    failure_threshold: int
    verdict: bool | None
    streak: int = 0
    last: bool | None = None

    @classmethod
    def of(cls, kind: Kind, probe: Mapping[str, Any]) -> Counter:
        """The starting point: a container is unready and alive until shown otherwise."""
        first = {"startup": None, "readiness": False, "liveness": True}[kind]
        return cls(int(probe.get("successThreshold", 1)), int(probe.get("failureThreshold", 3)), first)

    def observe(self, ok: bool) -> Counter:
        """The counter after one more answer."""
        streak = self.streak + 1 if ok == self.last else 1
        reached = streak >= (self.success_threshold if ok else self.failure_threshold)
        return replace(self, streak=streak, last=ok, verdict=ok if reached else self.verdict)


@dataclass(frozen=True)
class Callbacks:
    """What a prober tells its runner: startup passed, readiness changed, one probe failed, the container must die."""

    started: Callable[[], None]
    ready: Callable[[bool], None]
    unhealthy: Callable[[Kind, str], None]
    kill: Callable[[Kind, Mapping[str, Any]], None]


class Prober:
    """All probes of one run of a container. `started_at` is in loop time."""

    def __init__(self, container: Mapping[str, Any], target: Target, callbacks: Callbacks, started_at: float) -> None:
        self._container = container
        self._target = target
        self._tell = callbacks
        self._started_at = started_at
        self.stopping = False

    async def run(self) -> None:
        """Probe until cancelled, or until a probe had the container killed."""
        startup = self._container.get("startupProbe")
        if startup and not await self._until_started(startup):
            return
        self._tell.started()
        readiness, liveness = self._container.get("readinessProbe"), self._container.get("livenessProbe")
        async with asyncio.TaskGroup() as group:
            if readiness:
                group.create_task(self._readiness(readiness))
            else:
                self._tell.ready(True)
            if liveness:
                group.create_task(self._liveness(liveness))

    async def _until_started(self, probe: Mapping[str, Any]) -> bool:
        counter = Counter.of("startup", probe)
        await self._delay(probe)
        while True:
            counter = await self._once("startup", probe, counter)
            if counter.verdict is True:
                return True
            if counter.verdict is False and not self.stopping:
                self._tell.kill("startup", probe)
                return False
            await _period(probe)

    async def _readiness(self, probe: Mapping[str, Any]) -> None:
        counter = Counter.of("readiness", probe)
        await self._delay(probe)
        while True:
            before = counter.verdict
            counter = await self._once("readiness", probe, counter)
            if counter.verdict != before:
                self._tell.ready(bool(counter.verdict))
            await _period(probe)

    async def _liveness(self, probe: Mapping[str, Any]) -> None:
        counter = Counter.of("liveness", probe)
        await self._delay(probe)
        while True:
            counter = await self._once("liveness", probe, counter)
            if counter.verdict is False and not self.stopping:
                self._tell.kill("liveness", probe)
                return
            await _period(probe)

    async def _once(self, kind: Kind, probe: Mapping[str, Any], counter: Counter) -> Counter:
        ok, message = await act(probe, self._target, float(probe.get("timeoutSeconds", 1)))
        if not ok and not self.stopping:
            self._tell.unhealthy(kind, message)
        return counter.observe(ok)

    async def _delay(self, probe: Mapping[str, Any]) -> None:
        """Until the initial delay is over; the first probes of pods started together are spread a little."""
        due = self._started_at + float(probe.get("initialDelaySeconds", 0))
        spread = random.uniform(0, min(_SPREAD, 0.1 * float(probe.get("periodSeconds", 10))))  # noqa: S311 - spreads load
        await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0.0) + spread)


async def _period(probe: Mapping[str, Any]) -> None:
    await asyncio.sleep(float(probe.get("periodSeconds", 10)))
