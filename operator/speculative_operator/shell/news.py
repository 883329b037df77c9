"""Chooses the Events that are posted now: none twice, and at most one a minute for decisions of one reason. Asked by
`report`."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from speculative_operator.reconcile.world import Event

REMEMBERED = 4096
"""Most Events that are remembered so that none is posted twice: a status write that fails makes the next tick tell it
again."""
REPEAT_AFTER = 600.0
"""seconds after which an equal event is news again."""
LIMIT_SECONDS = 60.0
"""Seconds between two Events for decisions of one reason on one object."""
OBJECTS = 4096
"""Most objects whose decisions are remembered."""


@dataclass(slots=True)
class _Told:
    """Decisions of one reason on one object."""

    last: Event
    count: int = 0
    """Number of decisions since the last Event was posted."""
    at: float = -math.inf
    """Unix seconds at which the last Event was posted."""


class News:
    """Remembers the Events that were posted lately, for all objects. Times are unix seconds."""

    def __init__(self) -> None:
        self._posted: OrderedDict[tuple[str, str, str, str], float] = OrderedDict()
        self._decided: OrderedDict[str, dict[str, _Told]] = OrderedDict()

    def due(self, uid: str, events: Sequence[Event], now: float) -> Iterator[Event]:
        """The Events to post now: new ones of `events`, and earlier decisions on the object that had to wait."""
        for event in events:
            if self._is_known(uid, event, now):
                continue
            if event.decision:
                self._hold(uid, event)
            else:
                yield event
        for told in self._decided.get(uid, {}).values():
            if told.count and now - told.at >= LIMIT_SECONDS:
                yield _join(told, now)
                told.at, told.count = now, 0

    def _is_known(self, uid: str, event: Event, now: float) -> bool:
        key = (uid, event.type, str(event.reason), event.message)
        if now - self._posted.get(key, -REPEAT_AFTER) < REPEAT_AFTER:
            return True
        self._posted[key] = now
        self._posted.move_to_end(key)
        while len(self._posted) > REMEMBERED:
            self._posted.popitem(last=False)
        return False

    def _hold(self, uid: str, event: Event) -> None:
        told = self._decided.setdefault(uid, {}).setdefault(str(event.reason), _Told(event))
        told.last, told.count = event, told.count + 1
        self._decided.move_to_end(uid)
        while len(self._decided) > OBJECTS:
            self._decided.popitem(last=False)


def _join(told: _Told, now: float) -> Event:
    """One Event for the decisions that waited: the latest decision, with their number."""
    if told.count == 1:
        return told.last
    span = f" in {now - told.at:.0f} s" if math.isfinite(told.at) else ""
    return replace(told.last, message=f"{told.count} such decisions{span}, the last: {told.last.message}")
