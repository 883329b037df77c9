"""What the API server was last seen to hold, as plain dicts that nobody changes: filled by informer, resync and our own
writes, read by worker and rounds.

A version older than the one held is ignored, so that a late watch event never undoes what a write already returned.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from speculative_operator.domain import names
from speculative_operator.shell.resources import CHILD_BY_KIND, OWNER, POD

Key = tuple[str, str]
"""(namespace, name) of a SpeculativeDeployment."""
Body = Mapping[str, Any]
_IGNORED = frozenset({"resourceVersion", "managedFields", "generation"})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One object and what belongs to it, at one moment."""

    owner: Body
    children: Mapping[tuple[str, str], Body]
    """(kind, name) -> object."""
    pods: tuple[Body, ...]


class Cache:
    """Objects by kind and uid, and an index by the SpeculativeDeployment they belong to."""

    def __init__(self) -> None:
        self._owners: dict[Key, Body] = {}
        self._children: dict[Key, dict[tuple[str, str], Body]] = {}
        self._pods: dict[Key, dict[str, Body]] = {}
        self._home: dict[str, Key] = {}

    def put(self, body: Body) -> Key | None:
        """Take a version of an object. The key to visit, or None when nothing changed that could matter."""
        kind = body["kind"]
        key = owner_key(body)
        if key is None:
            return None
        uid = body["metadata"]["uid"]
        before = self._home.get(uid)
        moved = before if before is not None and before != key else None
        if moved is not None:
            self._drop(kind, moved, body)
        shelf, slot = self._shelf(kind, key, body)
        held = shelf.get(slot)
        if held is not None and held["metadata"]["uid"] == uid and not newer(body, held):
            return None
        if held is not None and held["metadata"]["uid"] != uid:
            self._home.pop(held["metadata"]["uid"], None)
        shelf[slot] = trimmed(body)
        self._home[uid] = key
        return key if held is None or _differs(kind, held, body) else None

    def remove(self, body: Body) -> Key | None:
        """The object is gone. The key to visit, or None when it was not held or has been replaced since."""
        uid = body["metadata"]["uid"]
        key = self._home.get(uid)
        if key is None:
            return None
        self._drop(body["kind"], key, body)
        return key

    def snapshot(self, key: Key) -> Snapshot | None:
        """The object and what belongs to it; None when the object is not there."""
        owner = self._owners.get(key)
        if owner is None:
            return None
        children = MappingProxyType(dict(self._children.get(key, {})))
        return Snapshot(owner, children, tuple(self._pods.get(key, {}).values()))

    def owner(self, key: Key) -> Body | None:
        return self._owners.get(key)

    def keys(self) -> list[Key]:
        """Every SpeculativeDeployment held."""
        return list(self._owners)

    def observed(self) -> dict[str, list[Key]]:
        """Objects with a ready pod, by namespace: those whose metrics are worth a query."""
        found: dict[str, list[Key]] = {}
        for key, pods in self._pods.items():
            if key in self._owners and any(map(is_ready, pods.values())):
                found.setdefault(key[0], []).append(key)
        return found

    def held(self, kind: str) -> dict[str, Body]:
        """uid -> object of one kind."""
        shelves: Iterable[Mapping[Any, Body]]
        if kind == OWNER.kind:
            shelves = (self._owners,)
        elif kind == POD.kind:
            shelves = self._pods.values()
        else:
            shelves = self._children.values()
        return {body["metadata"]["uid"]: body for shelf in shelves for body in shelf.values() if body["kind"] == kind}

    def __len__(self) -> int:
        return len(self._owners)

    def _shelf(self, kind: str, key: Key, body: Body) -> tuple[dict[Any, Body], Any]:
        if kind == OWNER.kind:
            return self._owners, key
        name = body["metadata"]["name"]
        if kind == POD.kind:
            return self._pods.setdefault(key, {}), name
        return self._children.setdefault(key, {}), (kind, name)

    def _drop(self, kind: str, key: Key, body: Body) -> None:
        uid = body["metadata"]["uid"]
        self._home.pop(uid, None)
        shelf, slot = self._shelf(kind, key, body)
        held = shelf.get(slot)
        if held is not None and held["metadata"]["uid"] == uid:
            del shelf[slot]
        for index in (self._children, self._pods):
            if key in index and not index[key]:
                del index[key]


def owner_key(body: Body) -> Key | None:
    """The SpeculativeDeployment that an object is or belongs to: by owner reference, else by label; None: no one's."""
    meta = body["metadata"]
    if body["kind"] == OWNER.kind:
        return meta["namespace"], meta["name"]
    if body["kind"] != POD.kind and body["kind"] not in CHILD_BY_KIND:
        return None
    for reference in meta.get("ownerReferences") or ():
        if reference.get("kind") == OWNER.kind and reference.get("apiVersion", "").startswith(f"{names.GROUP}/"):
            return meta["namespace"], reference["name"]
    name = (meta.get("labels") or {}).get(names.LABEL_DEPLOYMENT)
    return (meta["namespace"], name) if name else None


def newer(body: Body, held: Body) -> bool:
    """True when `body` is a later version than `held`. Versions are comparable numbers since Kubernetes 1.35; where
    they are not numbers any difference counts as later."""
    new, old = body["metadata"].get("resourceVersion", ""), held["metadata"].get("resourceVersion", "")
    if new.isdigit() and old.isdigit():
        return int(new) > int(old)
    return bool(new != old)


def is_ready(pod: Body) -> bool:
    """True when the pod's condition Ready holds and it is not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("conditions") or ()
    return any(entry.get("type") == "Ready" and entry.get("status") == "True" for entry in conditions)


def trimmed(body: Body) -> Body:
    """Without what nobody reads and what weighs most: who manages which field, but for who scales, and equal texts
    more than once."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    scaling = [entry for entry in body["metadata"].get("managedFields") or () if entry.get("subresource") == "scale"]
    if scaling:
        metadata["managedFields"] = scaling
    slim = {**body, "metadata": metadata}
    if isinstance(slim.get("data"), dict):
        slim["data"] = {name: sys.intern(text) for name, text in slim["data"].items()}
    return slim


def _differs(kind: str, held: Body, body: Body) -> bool:
    """True when a version says something new. Of a SpeculativeDeployment the status is ours: its change is no news."""
    ours = ("metadata", "status") if kind == OWNER.kind else ("metadata",)
    if any(held.get(part) != body.get(part) for part in {*held, *body} - set(ours)):
        return True
    old, new = held["metadata"], body["metadata"]
    return any(old.get(part) != new.get(part) for part in ({*old, *new} - _IGNORED))
