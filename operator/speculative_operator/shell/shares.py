"""How much of the processor each namespace gets: one whose objects take long to reconcile must not hold up the others.
Kept by `operator`. No I/O; the clock is given.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

SPAN = 60.0
"""Seconds over which use is counted."""
BUSY = 0.5
"""Share of one core above which namespaces are held to their parts: below it nobody waits for anybody."""


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
