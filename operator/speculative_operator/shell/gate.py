"""A bounded number of requests at once, the most urgent waiter first: `kube` passes every request of a tick through it.

Without ranks a burst of new objects would write all children of the first before the Deployment of the last.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """`slots` holders at once; waiters enter by rank, then by arrival. Lower ranks first."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._arrivals = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def slot(self, rank: int) -> AsyncIterator[None]:
        """Hold one slot within the block."""
        await self._enter(rank)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, rank: int) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (rank, self._arrivals, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the slot was handed over in the same instant: pass it on
            raise

    def _leave(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    @property
    def waiting(self) -> int:
        """Waiters that still want a slot."""
        return sum(not turn.done() for _, _, turn in self._waiting)
