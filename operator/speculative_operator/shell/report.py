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
from speculative_operator.shell.errors import ApiError, ConflictError, InvalidError, NotFoundError, OutdatedError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import CONFIG_MAP, EVENT
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
        self._undeclared: dict[str, Any] = {}
        """Fields of statuses that the cluster's CRD lacks (`missing_fields`), as far as writes have shown."""

    def storable(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        """The status without the fields that the cluster's CRD does not declare, as far as writes have shown."""
        return without(status, self._undeclared) if self._undeclared else status

    async def status(self, owner: Body, status: Mapping[str, Any]) -> bool:
        """Write the whole status; False when the object is gone or was replaced, or when we may no longer write. Raises
        ApiError otherwise."""
        try:
            body = await self._write(owner, status)
        except (NotFoundError, ConflictError, OutdatedError):
            return False
        self._cache.put(body)
        self._telemetry.action("status", str(owner["kind"]))
        return True

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

    async def _write(self, owner: Body, status: Mapping[str, Any]) -> Body:
        """Apply the status, then remove what somebody else has written into it, as a restore from a backup does: it
        would stand there for ever, or even make the applied status invalid. Where the API server refuses the status for
        a field that its CRD does not declare, apply it without such fields. Returns the object."""
        try:
            body = await self._kube.apply_status(owner, status, still=self._leading)
            if self.storable(status) != status:
                self._undeclared = {}
        except InvalidError:
            rest = surplus(owner.get("status") or {}, status)
            await self._learn_undeclared(owner, status, rest)
            status = self.storable(status)
            if rest:
                await self._kube.merge_status(owner, rest, still=self._leading)
            body = await self._kube.apply_status(owner, status, still=self._leading)
        rest = surplus(body.get("status") or {}, status)
        return await self._kube.merge_status(owner, rest, still=self._leading) if rest else body

    async def _learn_undeclared(self, owner: Body, status: Mapping[str, Any], rest: Mapping[str, Any]) -> None:
        """Ask for the status by a merge patch that stores nothing: the API server answers it without the fields that
        its CRD does not declare. Raises InvalidError where something else is wrong."""
        body = await self._kube.merge_status(owner, {**rest, **status}, dry=True, still=self._leading)
        found = missing_fields(status, body.get("status") or {})
        if found and found != self._undeclared:
            log.warning(
                "the CustomResourceDefinition on the cluster is older than this operator: the status is written without"
                " the fields %s. Apply the definition of this release (crds/)",
                ", ".join(sorted(found)),
                extra=tags(key_of(owner)),
            )
        self._undeclared = found

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


def surplus(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that takes from `found` the fields that `wanted` lacks. Lists are left alone: among conditions
    others may have theirs."""
    rest: dict[str, Any] = {}
    for name, value in found.items():
        if name not in wanted:
            rest[name] = None
        elif isinstance(value, Mapping) and isinstance(wanted[name], Mapping):
            inner = surplus(value, wanted[name])
            rest |= {name: inner} if inner else {}
    return rest


def missing_fields(sent: Any, stored: Any) -> dict[str, Any]:
    """Names of the fields of `sent` that `stored` lacks, each with None, or with such names within it. Items of a list
    share their names."""
    if isinstance(sent, list) and isinstance(stored, list):
        missing: dict[str, Any] = {}
        for one, other in zip(sent, stored, strict=False):
            missing |= missing_fields(one, other)
        return missing
    if not isinstance(sent, Mapping) or not isinstance(stored, Mapping):
        return {}
    within = {name: missing_fields(value, stored[name]) for name, value in sent.items() if name in stored}
    return {name: None for name in sent if name not in stored} | {name: one for name, one in within.items() if one}


def without(value: Any, missing: Mapping[str, Any] | None) -> Any:
    """`value` without the fields that `missing_fields` has named."""
    if isinstance(value, list):
        return [without(one, missing) for one in value]
    if not isinstance(value, Mapping) or not missing:
        return value
    return {name: without(one, missing.get(name)) for name, one in value.items() if missing.get(name, True)}


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
