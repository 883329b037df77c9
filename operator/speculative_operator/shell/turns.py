"""Whose turn it is to have its models read. Asked by `reconciler` before it carries out what a tick decided.

Turning checks on, upgrading the operator or moving to another cluster would make a Job for every object at once. So
many run at a time as the settings say. Who waits is kept here alone: after a restart objects ask anew, and Jobs that
run are found in the cluster. No I/O; the clock is given.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, Condition, Truth
from speculative_operator.domain.jobs import JobSeen, Phase, Purpose
from speculative_operator.domain.reading import seconds_of
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.shell.bodies import Body, Key
from speculative_operator.shell.resources import JOB

YIELDS = 600.0
"""seconds for which an object whose pods run lets later objects go first; after them nobody overtakes it any more."""
LONGEST = 600.0
"""seconds that an object without pods waits for its turn; then its pods are made unread, as when a source is silent."""
FORGOTTEN = 60.0
"""seconds after which an object that no longer asks has lost its place: nobody waits for one that does not come."""
STARTS = 60.0
"""seconds within which the pod of a Job should run. One that does not, for want of room or of an image, loads nobody,
and others need not wait for it."""


@dataclass(frozen=True, slots=True)
class _Place:
    rank: float
    """Lower ranks first; what it is made of never changes while an object waits, so that nobody starves."""
    since: float
    seen: float


class Turns:
    """Gives turns to at most `most` inspect Jobs, over all objects. `clock` gives monotonic seconds."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._places: dict[Key, _Place] = {}
        self._order: list[tuple[float, Key]] = []
        self._making: set[Key] = set()
        self._swept = clock()

    def take(self, key: Key, reading: Collection[Key], *, at_ease: bool) -> bool:
        """True where a Job may be made for `key` now: it counts until `release`. Else the object waits, and asks again.
        `reading` are the objects whose Jobs run; `at_ease` says that nobody waits for this one."""
        self._sweep()
        free = self._most - len(self._making.union(reading) - {key})
        place = self._place(key, at_ease)
        if bisect_left(self._order, (place.rank, key)) >= free:
            return False
        self.leave(key)
        self._making.add(key)
        return True

    def release(self, key: Key) -> None:
        """Note that the Job was made, and is among those that run; or that it was not, and another object may go on."""
        self._making.discard(key)

    def leave(self, key: Key) -> None:
        """Remove an object that wants no Job from those that wait."""
        place = self._places.pop(key, None)
        if place is not None:
            del self._order[bisect_left(self._order, (place.rank, key))]

    def waiting_seconds(self, key: Key) -> float | None:
        """Seconds since the object asked first; None where it does not wait."""
        place = self._places.get(key)
        return self._clock() - place.since if place is not None else None

    def near(self, key: Key) -> bool:
        """True where the object's turn may come before its next regular reconcile."""
        place = self._places.get(key)
        return place is not None and bisect_left(self._order, (place.rank, key)) < 4 * self._most

    def _place(self, key: Key, at_ease: bool) -> _Place:
        now, before = self._clock(), self._places.get(key)
        since = before.since if before is not None else now
        self.leave(key)
        place = self._places[key] = _Place(since + (YIELDS if at_ease else 0.0), since, now)
        insort(self._order, (place.rank, key))
        return place

    def _sweep(self) -> None:
        now = self._clock()
        if now - self._swept < FORGOTTEN / 4:
            return
        self._swept = now
        for key in [key for key, place in self._places.items() if now - place.seen > FORGOTTEN]:
            self.leave(key)


def wants(actions: Sequence[Action]) -> bool:
    """True where one of `actions` makes an inspect Job."""
    return any(_reads(action) for action in actions)


def without(actions: Sequence[Action]) -> tuple[Action, ...]:
    """`actions` without those that make an inspect Job."""
    return tuple(action for action in actions if not _reads(action))


def reading(jobs: Mapping[Key, Body], now: float) -> set[Key]:
    """Objects whose inspect Job takes up a turn; `jobs` are the inspect Jobs that have not ended. `now` in unix
    seconds."""
    return {key for key, job in jobs.items() if _counts(job, now)}


def queued_jobs(name: str, waited: float | None) -> tuple[JobSeen, ...]:
    """The state of the inspect Job for which object `name` still waits; empty where it does not wait."""
    if waited is None:
        return ()
    job = names.child(name, Purpose.INSPECT.value)
    return (JobSeen(job, Purpose.INSPECT, "", Phase.RUNNING, trouble="waits for the Jobs of other objects"),)


def late(name: str, waited: float | None, *, at_ease: bool) -> tuple[Condition, ...]:
    """The condition that an inspect Job's turn has not come for too long while pods wait for it; empty otherwise."""
    if waited is None or at_ease or waited < LONGEST:
        return ()
    job = names.child(name, Purpose.INSPECT.value)
    message = (
        f"{JOB.kind} {job} has waited {LONGEST / 60:.0f} minutes for the "
        "Jobs of other objects; the operator's setting SPECULATIVE_INSPECT_JOBS limits how many run at a time"
    )
    return (Condition(ConditionType.READY, Truth.FALSE, Reason.PAIR_UNREAD, message, (JOB.kind, job)),)


def _reads(action: Action) -> bool:
    if not isinstance(action, ApplyChild) or action.manifest["kind"] != JOB.kind:
        return False
    labels = action.manifest["metadata"].get("labels") or {}
    return bool(labels.get(names.LABEL_JOB) == Purpose.INSPECT.value)


def _counts(job: Body, now: float) -> bool:
    meta: Mapping[str, Any] = job["metadata"]
    if meta.get("deletionTimestamp") or (job.get("spec") or {}).get("suspend"):
        return False
    if (job.get("status") or {}).get("ready"):
        return True
    made = seconds_of(str(meta.get("creationTimestamp")))
    return made is None or now - made < STARTS
