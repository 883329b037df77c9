"""Whose turn it is to have its models read. Asked by `reconciler` before it carries out what a tick decided.

Turning checks on, upgrading the operator or moving to another cluster would make a Job for every object at once. So
many run at a time as the settings say. Who waits is kept here alone: after a restart objects ask anew, and Jobs that
run are found in the cluster. No I/O; the clock is given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, Condition, Truth
from speculative_operator.domain.jobs import JobSeen, Phase, Purpose
from speculative_operator.domain.reading import seconds_of
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.shell.bodies import Body, Key, purpose_of
from speculative_operator.shell.resources import JOB

LONGEST = 600.0
"""seconds that an object without pods waits for its turn; then its pods are made unread, as when a source is silent."""
FORGOTTEN = 60.0
"""seconds after which an object that no longer asks has lost its place: nobody waits for one that does not come."""
STARTS = 60.0
"""seconds within which the pod of a Job should run. One that does not, for want of room or of an image, loads nobody,
and others need not wait for it."""


@dataclass(slots=True)
class _Place:
    """When an object asked first, and when it asked last."""

    since: float
    seen: float


class Turns:
    """Gives turns to at most `most` inspect Jobs, over all objects, in the order in which they asked first; objects for
    which nobody waits come after all others. `clock` gives monotonic seconds."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._pressing: dict[Key, _Place] = {}
        self._at_ease: dict[Key, _Place] = {}
        self._making: set[Key] = set()

    def take(self, key: Key, reading: Collection[Key], *, at_ease: bool) -> bool:
        """True where a Job may be made for `key` now: it counts until `release`. Else the object waits, and asks again.
        `reading` are the objects whose Jobs run; `at_ease` says that nobody waits for this one."""
        now = self._clock()
        line, other = (self._at_ease, self._pressing) if at_ease else (self._pressing, self._at_ease)
        line.setdefault(key, other.pop(key, _Place(now, now))).seen = now
        if key not in self._first(self._most - len(self._making.union(reading) - {key})):
            return False
        self.leave(key)
        self._making.add(key)
        return True

    def release(self, key: Key) -> None:
        """Note that the Job was made, and is among those that run; or that it was not, and another object may go on."""
        self._making.discard(key)

    def leave(self, key: Key) -> None:
        """Remove an object that wants no Job from those that wait."""
        self._pressing.pop(key, None)
        self._at_ease.pop(key, None)

    def waiting_seconds(self, key: Key) -> float | None:
        """Seconds since the object asked first; None where it does not wait."""
        place = self._pressing.get(key) or self._at_ease.get(key)
        return self._clock() - place.since if place is not None else None

    def near(self, key: Key) -> bool:
        """True where the object's turn may come before its next regular reconcile."""
        return key in self._first(4 * self._most)

    def _first(self, count: int) -> list[Key]:
        """The next `count` objects. One that has not asked for long loses its place."""
        found: list[Key] = []
        oldest = self._clock() - FORGOTTEN
        for line in (self._pressing, self._at_ease):
            lost: list[Key] = []
            for key, place in line.items():
                if len(found) >= count:
                    break
                (found if place.seen >= oldest else lost).append(key)
            for key in lost:
                del line[key]
        return found


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
    return purpose_of(action.manifest) is Purpose.INSPECT


def _counts(job: Body, now: float) -> bool:
    meta: Mapping[str, Any] = job["metadata"]
    if meta.get("deletionTimestamp") or (job.get("spec") or {}).get("suspend"):
        return False
    if (job.get("status") or {}).get("ready"):
        return True
    made = seconds_of(str(meta.get("creationTimestamp")))
    return made is None or now - made < STARTS
