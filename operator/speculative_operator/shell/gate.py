"""Who goes first where objects of many namespaces want something at once: slots, the most urgent waiter first, and the
processor. `kube` passes every write of a tick through one gate, `operator` every reconcile through another.

Without ranks a burst of new objects would write all children of the first before the Deployment of the last. Without
groups, which are namespaces, one webhook that does not answer would hold every slot until its requests time out, and
no other namespace would be served. An object that takes long to reconcile must not hold up those of other namespaces.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

SPAN = 60.0
"""Seconds over which use of the processor is counted."""
BUSY = 0.5
"""Share of one core above which namespaces are held to their parts: below it nobody waits for anybody."""
_Waiter = tuple[int, int, asyncio.Future[None]]
"""Rank, number of arrival, and the future that is set when the waiter's turn comes."""


@dataclass(slots=True)
class _Stay:
    group: str
    lent: bool = False


class Gate:
    """At most `slots` holders at once; waiters enter by rank, lower ranks first, then by arrival.

    A holder that keeps a slot for longer than `slow` seconds lends it to others: it waits for somebody else, and costs
    us little. At most `lendable` slots are lent. A group holds at most `most` slots; while it lends any, at most a
    quarter of that besides those that it lends.
    """

    def __init__(self, slots: int, *, most: int, lendable: int, slow: float) -> None:
        self._free = slots
        self._most = most
        self._lendable = lendable
        self._slow = slow
        self._arrivals = 0
        self._waiting: dict[str, list[_Waiter]] = {}
        self._held: Counter[str] = Counter()
        self._lent: Counter[str] = Counter()

    @asynccontextmanager
    async def slot(self, rank: int, group: str) -> AsyncIterator[None]:
        """Hold one slot within the block."""
        await self._enter(rank, group)
        stay = _Stay(group)
        lending = asyncio.get_running_loop().call_later(self._slow, self._lend, stay)
        try:
            yield
        finally:
            lending.cancel()
            self._leave(stay)

    @property
    def waiting(self) -> int:
        """Number of waiters that still want a slot."""
        return sum(not turn.done() for queue in self._waiting.values() for _, _, turn in queue)

    async def _enter(self, rank: int, group: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting.setdefault(group, []), (rank, self._arrivals, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(_Stay(group))  # the slot was handed over in the same instant: pass it on
            raise

    def _admit(self) -> None:
        """Hand free slots to waiters, the most urgent first."""
        while self._free > 0 and (fronts := [front for group in list(self._waiting) if (front := self._front(group))]):
            (_, _, turn), group = min(fronts, key=lambda front: front[0][:2])
            heapq.heappop(self._waiting[group])
            self._free -= 1
            self._held[group] += 1
            turn.set_result(None)

    def _front(self, group: str) -> tuple[_Waiter, str] | None:
        """The first waiter of a group, with the group; None where none waits or the group already holds its most
        slots."""
        queue = self._waiting[group]
        while queue and queue[0][2].done():
            heapq.heappop(queue)
        if not queue:
            del self._waiting[group]
            return None
        held, lent = self._held[group], self._lent[group]
        # A slow reconcile must not keep every new object of a large namespace waiting, so the quarter is of the others.
        own = max(1, self._most // 4) if lent else self._most
        return (queue[0], group) if held < self._most and held - lent < own else None

    def _lend(self, stay: _Stay) -> None:
        if self._lent.total() >= self._lendable:
            return
        stay.lent = True
        self._lent[stay.group] += 1
        self._free += 1
        self._admit()

    def _leave(self, stay: _Stay) -> None:
        self._held -= Counter((stay.group,))
        if stay.lent:
            self._lent -= Counter((stay.group,))
        else:
            self._free += 1
        self._admit()


class Shares:
    """Seconds of the processor that each namespace used within SPAN."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._spent: deque[tuple[float, str, float]] = deque()
        self._used: Counter[str] = Counter()

    def spend(self, namespace: str, seconds: float) -> None:
        """Count use."""
        self._spent.append((self._clock(), namespace, seconds))
        self._used[namespace] += seconds  # type: ignore[assignment]  # a Counter counts fractions as well
        while self._spent and self._spent[0][0] <= self._clock() - SPAN:
            _, past, amount = self._spent.popleft()
            self._used[past] -= amount  # type: ignore[assignment]
            if self._used[past] <= 0.0:
                del self._used[past]

    def rank(self, namespace: str) -> int:
        """Whole seconds used: who used less goes first."""
        return int(self._used[namespace])

    def rest(self, namespace: str) -> float:
        """Seconds that an object of the namespace waits after a reconcile: what the namespace used beyond an equal part
        for each, and nothing while the processor is not busy."""
        if self._used.total() < BUSY * SPAN:
            return 0.0
        return max(0.0, self._used[namespace] - SPAN / len(self._used))


class Metered(Generic[T]):
    """Awaits a coroutine and tells `spend` how long the processor worked on it, without its waits and without the tasks
    that it starts."""

    def __init__(self, work: Coroutine[Any, Any, T], spend: Callable[[float], None]) -> None:
        self._work = work
        self._spend = spend

    def __await__(self) -> Generator[Any, Any, T]:
        send, given = self._work.send, None
        while True:
            started = time.thread_time()
            try:
                waits = send(given)
            except StopIteration as end:
                found: T = end.value
                return found
            finally:
                self._spend(time.thread_time() - started)
            try:
                send, given = self._work.send, (yield waits)
            except BaseException as error:
                send, given = self._work.throw, error
