"""Runs the engine core on the real clock: waits out each step, then books it and tells whoever waits.

Made by `server`; `http` submits and aborts through it. The engine clock is the monotonic clock, except that a step
begins where the last one ended: a timer that fires late shortens the next wait, so that mean speed is right. Only a lag
beyond MAX_LAG (the machine is overloaded) is given up, and counted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable

from speculative_lab.emulator.book import Book
from speculative_lab.emulator.core import EngineCore, StepResult
from speculative_lab.emulator.hot import HotStepper
from speculative_lab.emulator.requests import FinishReason, Request

MAX_LAG = 0.25
"""Seconds by which the engine clock may trail the wall clock and still catch up."""
TELL_SECONDS = 10.0
"""Between two log lines about time that was given up."""

log = logging.getLogger(__name__)


class EngineDriver:
    """One running engine. Everything happens in one event loop."""

    def __init__(
        self,
        core: EngineCore,
        book: Book,
        stepper: HotStepper | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._given_up = 0.0
        self._may_tell = -math.inf
        self._core = core
        self._book = book
        self._stepper = stepper
        self._clock = clock
        self._engine_time = clock()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._open: set[Request] = set()

    @property
    def now(self) -> float:
        """Engine time as an arriving request sees it."""
        return min(self._clock(), self._engine_time) if self._core.busy else self._clock()

    @property
    def unfinished(self) -> int:
        return len(self._open)

    def submit(self, request: Request) -> None:
        """Queue a request; its listener hears of it."""
        self._open.add(request)
        self._idle.clear()
        self._core.add(request)
        self._wake.set()

    def abort(self, request: Request) -> None:
        """End a request now; nothing happens when it has ended already."""
        if self._core.abort(request):
            self._end(request, FinishReason.ABORT, self.now)
            self._book.gauges(self._core.running, len(self._core.waiting), self._core.kv_usage)

    def abort_all(self) -> None:
        for request in tuple(self._open):
            self.abort(request)

    async def drained(self) -> None:
        """Return when no request is left."""
        await self._idle.wait()

    async def run(self) -> None:
        """Step for ever."""
        while True:
            if not self._core.busy:
                self._wake.clear()
                await self._wake.wait()
                self._engine_time = self._clock()
            result = self._step()
            await self._wait_until(self._engine_time)
            self._publish(result)

    def _step(self) -> StepResult:
        lag = self._clock() - self._engine_time
        if lag > MAX_LAG:
            self._give_up(lag)
        result = (self._stepper or self._core).step(self._engine_time)
        self._engine_time = result.end
        return result

    def _give_up(self, lag: float) -> None:
        """Go on from now, and say how much was lost, though not for each step of a busy machine."""
        self._engine_time += lag
        self._given_up += lag
        if self._engine_time >= self._may_tell:
            log.warning(
                "This machine is overloaded: the engine clock gave up %.1f s; its speed as clients feel it is too low",
                self._given_up,
            )
            self._given_up, self._may_tell = 0.0, self._engine_time + TELL_SECONDS

    async def _wait_until(self, moment: float) -> None:
        """Sleep, but always let the server run once."""
        await asyncio.sleep(max(moment - self._clock(), 0.0))

    def _publish(self, result: StepResult) -> None:
        if self._stepper is not None:
            self._stepper.finished(result)
        self._book.record(result, self._core.running, len(self._core.waiting), self._core.kv_usage)
        for request, generated in result.progressed:
            if request.listener is not None and not request.done:
                request.listener.progress(generated)
        for ended in result.finished:
            self._end(ended.request, ended.reason, result.end)

    def _end(self, request: Request, reason: FinishReason, now: float) -> None:
        self._book.finish(request, reason, now)
        self._open.discard(request)
        if not self._open:
            self._idle.set()
        if request.listener is not None:
            request.listener.finish(request, reason)
