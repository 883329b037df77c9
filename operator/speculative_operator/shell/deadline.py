"""How long one reconcile may take: `operator` sets it, and `kube` stops it while a request waits for its turn.

A reconcile that outlasts it fails, and its object is tried again later like after any failure. Waiting for a turn says
nothing about the object, and is as long as the burst of others before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar


class _Clock:
    """The remaining time of a reconcile, which does not run while any of its requests waits for its turn."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout
        self._waits = 0
        self._left = 0.0

    def stop(self) -> None:
        when = self._timeout.when()
        if self._waits == 0 and when is not None and not self._timeout.expired():
            self._left = when - asyncio.get_running_loop().time()
            self._timeout.reschedule(None)
        self._waits += 1

    def go_on(self) -> None:
        self._waits -= 1
        if self._waits == 0 and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)


_CLOCK: ContextVar[_Clock | None] = ContextVar("clock of the reconcile under way", default=None)


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Raises TimeoutError when the block, and what it starts, takes longer than `seconds` without its waits."""
    async with asyncio.timeout(seconds) as timeout:
        token = _CLOCK.set(_Clock(timeout))
        try:
            yield
        finally:
            _CLOCK.reset(token)


@contextmanager
def stop_clock() -> Iterator[None]:
    """Stop the clock of the present reconcile, if there is one, within the block."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    clock.stop()
    try:
        yield
    finally:
        clock.go_on()
