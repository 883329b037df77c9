"""What the API server was last seen to hold, as plain dicts that nobody changes: filled by informer, resync and our own
writes, read by worker and rounds.

Kept is what belongs to a known SpeculativeDeployment, within `sizes`; labels alone keep nothing. A version older than
the one held is ignored, so that a late watch event never undoes what a write already returned; only a list that is as
new as the version held is the truth, whatever it says. Pods of Jobs are kept apart from serving pods: nothing that
counts, pokes or observes pods ever sees one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.spec import Target
from speculative_operator.reconcile.pair.pinning import VERSION_FOLDER
from speculative_operator.reconcile.snapshot.records import keys
from speculative_operator.settings import NAMESPACE_MEBIBYTES
from speculative_operator.shell.bodies import (
    Body,
    Key,
    Slot,
    end_of,
    engine_address,
    home_of,
    is_made_by,
    is_ready,
    is_worker,
    job_name,
    of_same_spec,
    owners_of,
    purpose_of,
    slot_of,
    trim,
    version_of,
)
from speculative_operator.shell.podseries import Reached
from speculative_operator.shell.resources import CLAIM, CONFIG_MAP, DEPLOYMENT, JOB, OWNER, POD
from speculative_operator.shell.sizes import MIB, OVERSIZE, Sizes, outline

_IGNORED = frozenset({"resourceVersion", "managedFields", "generation"})
_MAKERS: Mapping[str | None, Callable[[str], str]] = {
    Target.INFERENCE_SERVICE: names.kserve_deployment,
    Target.LLM_INFERENCE_SERVICE: names.kserve_llm_deployment,
    Target.LEADER_WORKER_SET: names.group,
}
"""For each target with another Deployment than the object's own, or with none: the function that names what makes its
pods."""
MOST_FILES = 64
"""Most names of files that are kept of a ConfigMap of the plug-in."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One object and what belongs to it, at one moment."""

    owner: Body
    children: Mapping[Slot, Body]
    pods: tuple[Body, ...]
    """Serving pods, those of old templates included."""
    workers: Mapping[str, tuple[Body, ...]] = field(default_factory=dict)
    """Name of a Job -> its pods."""
    claims: Mapping[str, Body] = field(default_factory=dict)
    """Name -> claim of the namespace that bears our label."""
    excess: str = ""
    """Why something of it is not known whole, so that nothing may be decided; empty where all is known."""
    payloads: Mapping[str, Body] = field(default_factory=dict)
    """Name -> ConfigMap of the plug-in in the namespace."""

    @property
    def ready(self) -> tuple[Body, ...]:
        """Serving pods that are ready."""
        return tuple(filter(is_ready, self.pods))


class Cache:
    """Objects by the SpeculativeDeployment they belong to.

    What each object is filed under, its home: (namespace, name) of the SpeculativeDeployment; that of its Job for a
    Job's pod; (namespace, "") for a claim or payload, which all objects there share. What is known of one namespace may
    take `namespace_bytes` of memory.
    """

    def __init__(self, namespace_bytes: int = NAMESPACE_MEBIBYTES * MIB) -> None:
        self._bodies: dict[Key, dict[Slot, Body]] = {}
        """Home -> what is kept there."""
        self._home: dict[str, Key] = {}
        """uid -> home of everything that is kept."""
        self._owners: dict[Key, Body] = {}
        self._inspections: dict[str, Body] = {}
        """uid -> Job that reads models and has not ended."""
        self._folders: dict[str, dict[str, frozenset[str]]] = {}
        """Namespace -> uid -> folders of caches that this object, Deployment or serving pod uses, kept or not."""
        self._sizes = Sizes(namespace_bytes)
        self._newest: dict[str, int] = {}

    def clear(self) -> None:
        """Forget everything."""
        vars(self).update(vars(Cache(self._sizes.most)))

    def newest(self, kind: str) -> int:
        """The highest version that was seen of a kind; 0 where none was."""
        return self._newest.get(kind, 0)

    def put(self, body: Body, listed: int = 0) -> Key | None:
        """Store a version of an object; returns the key to reconcile, or None when nothing changed that could matter.
        `listed` is the version of the list that brought it."""
        kind, meta, version = body["kind"], body["metadata"], version_of(body)
        home = self._home_of(body)
        if home is None:
            self.remove(body)
            return None
        self._newest[kind] = max(version, self._newest.get(kind, 0))
        if self._home.get(meta["uid"], home) != home:
            self._drop(body)
        slot = slot_of(body)
        held = self._bodies.get(home, {}).get(slot)
        same = held is not None and held["metadata"]["uid"] == meta["uid"]
        if held is not None and version <= version_of(held) > listed:
            return None
        if held is not None and not same:
            self.remove(held)
        self._note_folders(body)
        slim = self._kept(home, body, held if same else None)
        if slim is None:
            if held is None:
                return None
            self._drop(held)
            return self._woken(home, body)
        if held == slim:
            return None
        self._bodies.setdefault(home, {})[slot] = slim
        self._home[meta["uid"]] = home
        if kind == OWNER.kind:
            self._owners[home] = slim
        reads = kind == JOB.kind and purpose_of(slim) is Purpose.INSPECT and self._is_ours(home, body)
        if reads and end_of(slim) is None:
            self._inspections[meta["uid"]] = slim
        else:
            self._inspections.pop(meta["uid"], None)
        return self._woken(home, body) if held is None or _differs(kind, held, slim) else None

    def _home_of(self, body: Body) -> Key | None:
        """Where an object is filed; None for one that is not the operator's."""
        if not is_worker(body):
            return home_of(body)
        # Anybody may give a pod the labels of a Job; a reference to its uid is made by the Job's controller.
        for uid in owners_of(body):
            home = self._home.get(uid)
            if home is None or home[0] != body["metadata"]["namespace"]:
                continue
            job = self._bodies[home].get((JOB.kind, job_name(body)))
            if job is not None and job["metadata"]["uid"] == uid and self._is_ours(home, job):
                return home
        return None

    def _kept(self, home: Key, body: Body, held: Body | None) -> Body | None:
        """What is kept of an object, in place of `held`: the parts that are read of what belongs to a known
        SpeculativeDeployment, an outline of what only bears its name, nothing of anything else."""
        kind, whole = body["kind"], body
        if kind == OWNER.kind:
            # Of an event that is too large to be parsed the status is not known; we are the only one who writes it.
            status = {"status": held.get("status")} if OVERSIZE in body and held is not None else {}
            whole = {**trim(body), **status}
        elif not home[1]:
            # What all objects of the namespace share: of a ConfigMap, the names of its files.
            whole = {**outline(body), "data": dict.fromkeys([*(body.get("data") or ())][:MOST_FILES], "")}
        elif self._is_ours(home, body):
            whole = of_same_spec(trim(body), held)
        elif home in self._owners and kind != POD.kind:
            whole = outline(body)
        else:
            return None
        return self._sizes.fit(whole)

    def _is_ours(self, home: Key, body: Body) -> bool:
        """True for what a known SpeculativeDeployment owns, or what one of its children does; and for pods with
        somebody who made them, as `_serving` decides whose they are."""
        owners = owners_of(body)
        if body["kind"] == POD.kind:
            return home in self._owners and bool(owners)
        return any(self._home.get(uid) == home for uid in owners)

    def remove(self, body: Body) -> Key | None:
        """Remove an object that is gone; returns the key to reconcile, or None when it was not held or was replaced."""
        meta = body["metadata"]
        self._folders.get(meta["namespace"], {}).pop(meta["uid"], None)
        home = self._home.get(meta["uid"])
        if home is None:
            return None
        self._drop(body)
        return self._woken(home, body)

    def snapshot(self, key: Key) -> Snapshot | None:
        """The object and what belongs to it; None when the object is not there."""
        owner, namespace = self._owners.get(key), key[0]
        if owner is None:
            return None
        kept, shared = self._bodies[key], self._bodies.get((namespace, ""), {})
        children = {slot: body for slot, body in kept.items() if slot[0] not in (OWNER.kind, POD.kind)}
        pods = [body for (kind, _), body in kept.items() if kind == POD.kind]
        workers = {
            name: tuple(pod for pod in pods if job["metadata"]["uid"] in owners_of(pod))
            for (kind, name), job in children.items()
            if kind == JOB.kind
        }
        excess = next((str(body[OVERSIZE]) for body in kept.values() if OVERSIZE in body), "")
        if not excess and self._sizes.is_full(namespace):
            excess = f"namespace {namespace} has more objects than the operator can know: delete what is not needed"
        claims = {name: body for (kind, name), body in shared.items() if kind == CLAIM.kind}
        payloads = {name: body for (kind, name), body in shared.items() if kind == CONFIG_MAP.kind}
        return Snapshot(owner, MappingProxyType(children), self._serving(key), workers, claims, excess, payloads)

    def owner(self, key: Key) -> Body | None:
        return self._owners.get(key)

    def keys(self) -> list[Key]:
        """Every SpeculativeDeployment held."""
        return list(self._owners)

    def ready_objects(self) -> dict[str, list[Key]]:
        """Objects with a ready pod, by namespace: those whose metrics are worth a query."""
        found: dict[str, list[Key]] = {}
        for key in self._owners:
            if any(map(is_ready, self._serving(key))):
                found.setdefault(key[0], []).append(key)
        return found

    def addresses(self, keys: Iterable[Key]) -> dict[str, Reached]:
        """Ready serving pods of these objects, and where each is reached."""
        pods = [pod for key in keys for pod in self._serving(key) if is_ready(pod)]
        return {pod["metadata"]["name"]: engine_address(pod) for pod in pods}

    def objects_of(self, wanted: str) -> dict[str, Body]:
        """uid -> object of one kind."""
        every = (entry for shelf in self._bodies.values() for entry in shelf.items())
        return {body["metadata"]["uid"]: body for (kind, _), body in every if kind == wanted}

    def folders_in_use(self, key: Key) -> frozenset[str]:
        """Folders of caches that a Job of this object must keep: other objects of the namespace use them, or a pod or
        Deployment there loads from them. Status may have lost them, and its object may be gone before its pods."""
        own = self._owners.get(key, {}).get("metadata", {}).get("uid")
        return frozenset[str]().union(*(used for uid, used in self._folders.get(key[0], {}).items() if uid != own))

    def payloads(self) -> list[Body]:
        """Every ConfigMap of the plug-in, of all namespaces."""
        shared = (entry for home, shelf in self._bodies.items() if not home[1] for entry in shelf.items())
        return [body for (kind, _), body in shared if kind == CONFIG_MAP.kind]

    def inspections(self) -> dict[Key, Body]:
        """Jobs that read models and have not ended, by object."""
        return {self._home[uid]: job for uid, job in self._inspections.items()}

    def __len__(self) -> int:
        return len(self._owners)

    def _serving(self, key: Key) -> tuple[Body, ...]:
        target = ((self._owners.get(key) or {}).get("spec") or {}).get("target")
        maker = _MAKERS.get(target, names.child)(key[1])

        def serves(pod: Body) -> bool:
            if target == Target.LEADER_WORKER_SET:
                return is_made_by(pod, "StatefulSet", maker)  # that of leaders; workers have one each
            # Called after the hash of the template, which the Deployment's controller writes over what a template says.
            marks = pod["metadata"].get("labels") or {}
            return is_made_by(pod, "ReplicaSet", f"{maker}-{marks.get('pod-template-hash', '')}")

        kept = self._bodies.get(key, {}).items()
        return tuple(body for (kind, _), body in kept if kind == POD.kind and serves(body))

    def _note_folders(self, body: Body) -> None:
        """Note the folders that an object uses by its status, or a Deployment or serving pod by what it loads, which an
        engine looks for when it is started again."""
        meta, kind = body["metadata"], body["kind"]
        noted = self._folders.setdefault(meta["namespace"], {})
        if OVERSIZE in body or (kind == POD.kind and (is_worker(body) or meta["uid"] in noted)):
            return  # what is too large is not read, and what a pod loads never changes
        if kind == OWNER.kind:
            found = keys(body.get("status") or {})
        elif kind in (DEPLOYMENT.kind, POD.kind):
            found = _loaded(body if kind == POD.kind else (body.get("spec") or {}).get("template") or {})
        else:
            return
        noted[meta["uid"]] = found

    def _woken(self, home: Key, body: Body) -> Key | None:
        """The key to reconcile after news of `body`: for a payload an object that mounts it, and makes it anew. None
        for a claim: its Job waits for it, and tells."""
        if body["kind"] == CLAIM.kind:
            return None
        if not home[1]:
            within = (key for key in self._owners if key[0] == home[0])
            return next((key for key in within if body["metadata"]["name"] in str(self._bodies[key])), None)
        return home

    def _drop(self, body: Body) -> None:
        uid = body["metadata"]["uid"]
        self._sizes.forget(uid)
        self._inspections.pop(uid, None)
        home = self._home.pop(uid, None)
        if home is None:
            return
        self._bodies[home].pop(slot_of(body), None)
        if not self._bodies[home]:
            del self._bodies[home]
        if body["kind"] == OWNER.kind:
            del self._owners[home]


def _loaded(template: Body) -> frozenset[str]:
    """Folders of caches that pods of `template`, or a pod itself, load models from."""
    parts: list[Any] = [(template.get("metadata") or {}).get("annotations"), template.get("spec")]
    return frozenset(found.rpartition("/")[2] for found in VERSION_FOLDER.findall(json.dumps(parts, default=str)))


def _differs(kind: str, held: Body, body: Body) -> bool:
    """True when `body` says something new; a SpeculativeDeployment's status does not count: the operator writes it."""
    ours = ("metadata", "status") if kind == OWNER.kind else ("metadata",)
    if any(held.get(part) != body.get(part) for part in {*held, *body} - set(ours)):
        return True
    old, new = held["metadata"], body["metadata"]
    return any(old.get(part) != new.get(part) for part in ({*old, *new} - _IGNORED))
