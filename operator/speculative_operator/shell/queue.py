"""The keyed work queue: what is due when. Filled by informer, rounds and worker; emptied by the workers.

One key is never reconciled twice at once; asking twice for a waiting key is asking once; a failing key waits longer
each time; a key asked for while it is reconciled is reconciled again after. Time is read from the clock it is given, so
that tests need not wait.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_BACKOFF = 1.0
LAST_BACKOFF = 300.0


@dataclass(slots=True)
class _Entry:
    """The state of one key."""

    due: float | None = None
    """When the key wants to be reconciled; None: not waiting."""
    reconciling: bool = False
    since: float = 0.0
    """When the reconcile under way began."""
    failures: int = 0
    not_before: float = 0.0
    """Earliest next reconcile: after a failure, and shortly after any, so that a storm of events is one reconcile."""
    ticket: int = 0
    """Number of the newest heap entry; older ones are void."""
    gone: bool = False
    """Forgotten while it was reconciled: nothing of it outlives the reconcile unless it is asked for again."""


class Queue(Generic[K]):
    """`settle` seconds lie between two reconciles of a key, unless the first one asks for an earlier look: pods that
    start change every moment, and each look may write the status. `chance` yields numbers in [0, 1) for jitter."""

    def __init__(self, clock: Callable[[], float], chance: Callable[[], float], settle: float = 1.0) -> None:
        self._clock = clock
        self._chance = chance
        self._settle = settle
        self._entries: dict[K, _Entry] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._number = 0
        self._changed = asyncio.Event()
        self._closed = False
        self._turned = clock()
        """When a reconcile last ended, well or not."""

    def add(self, key: K, delay: float = 0.0, *, urgent: bool = False) -> None:
        """Want `key` reconciled within `delay` seconds. `urgent` ends a back-off: the cause of the failure may be
        gone."""
        entry = self._entries.setdefault(key, _Entry())
        now = self._clock()
        entry.gone = False
        if urgent and entry.failures:
            entry.failures, entry.not_before = 0, now
        wanted = max(now + delay, entry.not_before)
        if entry.due is not None and entry.due <= wanted:
            return
        entry.due = wanted
        if not entry.reconciling:
            self._push(key, entry)

    def pop(self) -> K | None:
        """A key that is due now, taken for a reconcile; None when none is."""
        now, first = self._clock(), self._first()
        if first is None or first[0] > now:
            return None
        heapq.heappop(self._heap)
        key = first[2]
        entry = self._entries[key]
        entry.due, entry.reconciling, entry.since = None, True, now
        return key

    def put_off(self, key: K, again: float) -> None:
        """Note that a key that was just taken needs no reconcile for `again` seconds. It says nothing of whether
        reconciles end."""
        entry = self._entries[key]
        entry.reconciling = False
        self._reschedule(key, entry, again)

    def begin(self, key: K) -> None:
        """Note that the reconcile begins only now, and so sees everything that was asked for since `pop`."""
        entry = self._entries.get(key)
        if entry is not None and entry.reconciling:
            entry.due = None

    def finish(self, key: K, again: float | None = None, rest: float = 0.0) -> None:
        """Note that the reconcile went well; reconcile again after `again` seconds, or earlier if asked meanwhile, but
        not before `rest` seconds."""
        entry = self._end(key)
        if entry is None:
            return
        entry.failures = 0
        settle = self._settle if again is None else min(self._settle, again)
        entry.not_before = self._clock() + max(settle, rest)
        self._reschedule(key, entry, again)

    def retry(self, key: K, at_least: float = 0.0) -> float:
        """Note that the reconcile failed; returns the seconds until the next: 1, 2, 4 ... 300, +-20 %, not below
        `at_least`."""
        entry = self._end(key)
        if entry is None:
            return 0.0
        backoff = min(FIRST_BACKOFF * 2.0 ** min(entry.failures, 16), LAST_BACKOFF)
        wait = max(backoff * (0.8 + 0.4 * self._chance()), at_least)
        entry.failures += 1
        entry.not_before = self._clock() + wait
        self._reschedule(key, entry, wait)
        return wait

    def forget(self, key: K) -> None:
        """Forget a key that is gone; a reconcile under way simply ends."""
        entry = self._entries.get(key)
        if entry is not None and entry.reconciling:
            entry.due, entry.gone = None, True
        else:
            self._entries.pop(key, None)

    async def get(self) -> K | None:
        """Wait for a key that is due; None when the queue was closed."""
        while not self._closed:
            key = self.pop()
            if key is not None:
                return key
            self._changed.clear()
            with suppress(TimeoutError):
                first = self._first()
                async with asyncio.timeout(max(0.0, first[0] - self._clock()) if first is not None else None):
                    await self._changed.wait()
        return None

    def close(self) -> None:
        """Hand out nothing more."""
        self._closed = True
        self._changed.set()

    @property
    def waiting(self) -> int:
        """Number of keys that are due already and wait for a worker."""
        now = self._clock()
        return sum(entry.due is not None and entry.due <= now for entry in self._entries.values())

    @property
    def reconciling(self) -> int:
        """Number of reconciles under way."""
        return sum(entry.reconciling for entry in self._entries.values())

    @property
    def stall_seconds(self) -> float:
        """Seconds for which there was something to do and no reconcile ended; 0 when there is nothing to do. One that
        takes long beside others that end is no stall."""
        now = self._clock()
        starts = (entry.since if entry.reconciling else entry.due for entry in self._entries.values())
        waited = max((now - start for start in starts if start is not None and start <= now), default=0.0)
        return min(waited, now - self._turned)

    def _end(self, key: K) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.reconciling = False
        self._turned = self._clock()
        if entry.gone:
            del self._entries[key]
            return None
        return entry

    def _reschedule(self, key: K, entry: _Entry, delay: float | None) -> None:
        asked, entry.due = entry.due, None
        if asked is not None:
            self.add(key, max(0.0, asked - self._clock()))
        if delay is not None:
            self.add(key, delay)

    def _push(self, key: K, entry: _Entry) -> None:
        assert entry.due is not None
        self._number += 1
        entry.ticket = self._number
        heapq.heappush(self._heap, (entry.due, self._number, key))
        self._changed.set()

    def _first(self) -> tuple[float, int, K] | None:
        """The heap entry of the key that is due next; None where none waits."""
        while self._heap:
            _, number, key = self._heap[0]
            entry = self._entries.get(key)
            if entry is not None and entry.ticket == number and not entry.reconciling:
                return self._heap[0]
            heapq.heappop(self._heap)
        return None
