"""Status, notes and Events of a SpeculativeDeployment: written at the end of a reconcile, only when they say something
new, and within what the API server can be asked for the whole fleet. Used by `reconciler`.
"""

from __future__ import annotations

import logging
import math
import os
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from speculative_operator.domain import names
from speculative_operator.reconcile.snapshot.writing import FIGURES_SECONDS
from speculative_operator.reconcile.world import Event
from speculative_operator.shell.bodies import Body, key_of, tags
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.errors import ApiError, ConflictError, NotFoundError, OutdatedError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import CONFIG_MAP, EVENT, OWNER
from speculative_operator.shell.telemetry import Telemetry

log = logging.getLogger(__name__)

NOTE_BYTES = 1024
"""Most bytes of an Event's note that the API server takes."""
REMEMBERED = 4096
"""Most Events that are remembered so that none is posted twice: a status write that fails makes the next tick tell it
again."""
REPEAT_AFTER = 600.0
"""seconds after which an equal event is news again."""
LIMIT_SECONDS = 60.0
"""Seconds between two Events for decisions of one reason on one object."""
PER_SECOND = 16.0
SAVED = 160.0
"""Writes that are granted, and that may be saved up, for objects of one namespace are looked at at the same moment: in
no minute more than 20 a second on average."""
USED = 0.8
"""Share of the grants that the interval of each object asks for. As it is below 1 no object starves: while one is due,
no other can write twice before its turn has come."""


class Reporter:
    """Writes status and posts Events. `leading` is asked before each status: a replica that lost its Lease while it was
    stopped would put back what another has written since, pins and tables included."""

    def __init__(self, kube: Kube, cache: Cache, telemetry: Telemetry, leading: Callable[[], bool]) -> None:
        self._kube = kube
        self._leading = leading
        self._cache = cache
        self._telemetry = telemetry
        self._news = News()
        self._instance = os.environ.get("POD_NAME") or names.OPERATOR

    async def status(self, owner: Body, status: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Write the whole status and remove what somebody else has written into it, as a restore from a backup does.

        Returns the status as it was stored: without the fields that the definition on the cluster lacks, where that is
        older than this operator. None when the object is gone or was replaced, or when we may no longer write. Raises
        ApiError otherwise.
        """
        meta = owner["metadata"]
        patch = {"metadata": {"uid": meta["uid"]}, "status": replacing(owner.get("status") or {}, status)}
        try:
            body = await self._kube.merge(OWNER, meta["namespace"], meta["name"], patch, "status", still=self._leading)
        except (NotFoundError, ConflictError, OutdatedError):
            return None
        self._cache.put(body)
        self._telemetry.action("status", str(owner["kind"]))
        stored: Mapping[str, Any] = body.get("status") or {}
        return stored

    async def notes(self, manifest: Mapping[str, Any], uid: str | None) -> bool:
        """Write the ConfigMap of an object's notes, where its uid is still `uid` (None: not there yet); True where it
        was written. Other notes are lost with this process: the tuner learns again, and the pair is inspected again."""
        try:
            body = await self._kube.apply(CONFIG_MAP, manifest, uid=uid, still=self._leading)
        except ApiError as error:
            meta = manifest["metadata"]
            log.warning("%s", error, extra={"namespace": meta["namespace"], "configMap": meta["name"]})
            return False
        self._cache.put(body)
        self._telemetry.action("apply", CONFIG_MAP.kind)
        return True

    async def events(self, owner: Body, events: Sequence[Event], now: float) -> None:
        """Post the Events that are news. An Event that cannot be posted is lost: it is news, not state."""
        for event in self._news.due(owner["metadata"]["uid"], events, now):
            await self._post(owner, event)

    async def _post(self, owner: Body, event: Event) -> None:
        meta = owner["metadata"]
        try:
            await self._kube.create(EVENT, meta["namespace"], event_body(owner, event, self._instance))
        except ApiError as error:
            log.warning("%s", error, extra=tags(key_of(owner)))
            return
        self._telemetry.event(event.type, str(event.reason))


def replacing(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes `wanted` of `found`, and of whatever has been changed of it in between as much as it
    names. Lists are replaced whole."""
    patch: dict[str, Any] = {name: None for name in found if name not in wanted}
    for name, value in wanted.items():
        held = found.get(name)
        if isinstance(value, Mapping) and isinstance(held, Mapping):
            patch[name] = replacing(held, value)
        else:
            patch[name] = value
    return patch


def event_body(owner: Body, event: Event, instance: str) -> dict[str, Any]:
    """An events.k8s.io/v1 Event about `owner`."""
    meta = owner["metadata"]
    note = event.message.encode()[:NOTE_BYTES].decode("utf-8", "ignore")
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{meta['name'][:200]}.{uuid.uuid4().hex[:16]}", "namespace": meta["namespace"]},
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": event.type,
        "reason": str(event.reason),
        "note": note,
        "action": "Reconcile",
        "reportingController": f"{names.GROUP}/{names.OPERATOR}",
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        },
    }


class News:
    """Chooses the Events that are posted now: none twice, and of the decisions on one object at most one a minute for
    each reason; status and metrics have the others. Remembers what was posted lately, for all objects. Times are unix
    seconds."""

    def __init__(self) -> None:
        self._posted: OrderedDict[tuple[str, ...], float] = OrderedDict()

    def due(self, uid: str, events: Sequence[Event], now: float) -> Iterator[Event]:
        """The Events to post now."""
        for event in events:
            rests: dict[tuple[str, ...], float] = {(uid, event.type, event.reason, event.message): REPEAT_AFTER}
            rests |= {(uid, event.reason): LIMIT_SECONDS} if event.decision else {}
            if all(now - self._posted.get(key, -math.inf) >= rest for key, rest in rests.items()):
                for key in rests:
                    self._posted[key] = now
                    self._posted.move_to_end(key)
                yield event
        while len(self._posted) > REMEMBERED:
            self._posted.popitem(last=False)


class Budget:
    """How many statuses are written for figures alone, over the whole fleet. `fleet` counts the objects; `clock` gives
    monotonic seconds.

    Figures of a busy object move with every look. Each by itself may be written twice a minute; of thousands of objects
    that would be hundreds of writes a second to the API server, for numbers that nobody reads. What cannot wait is
    written whatever is left, and counts.
    """

    def __init__(self, fleet: Callable[[], int], clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._left = SAVED
        self._at = clock()

    @property
    def interval(self) -> float:
        """Least seconds between two writes of one object's figures."""
        return max(FIGURES_SECONDS, self._fleet() / (USED * PER_SECOND))

    def take(self) -> bool:
        """Takes the grant for one write; False where none is left."""
        now = self._clock()
        self._left, self._at = min(self._left + (now - self._at) * PER_SECOND, SAVED), now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
