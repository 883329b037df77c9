"""What the API server was last seen to hold, as plain dicts that nobody changes: filled by informer, resync and our own
writes, read by worker and rounds.

Kept is what belongs to a known SpeculativeDeployment, within `sizes`; labels alone keep nothing. A version older than
the one held is ignored, so that a late watch event never undoes what a write already returned; only a list that is as
new as the version held is the truth, whatever it says. Pods of Jobs are kept apart from serving pods: nothing that
counts, pokes or observes pods ever sees one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.spec import Target
from speculative_operator.reconcile.snapshot.records import keys
from speculative_operator.settings import NAMESPACE_MEBIBYTES
from speculative_operator.shell.bodies import (
    Body,
    Key,
    engine_address,
    home_of,
    is_of_group,
    is_ready,
    is_serving,
    is_worker,
    newer,
    of_same_spec,
    owners_of,
    trim,
    version_of,
)
from speculative_operator.shell.loads import Loads
from speculative_operator.shell.podseries import Reached
from speculative_operator.shell.resources import CLAIM, DEPLOYMENT, JOB, OWNER, POD
from speculative_operator.shell.sizes import MIB, OVERSIZE, Sizes, outline

_IGNORED = frozenset({"resourceVersion", "managedFields", "generation"})
_MAKERS: Mapping[str | None, Callable[[str], str]] = {
    Target.INFERENCE_SERVICE: names.kserve_deployment,
    Target.LLM_INFERENCE_SERVICE: names.kserve_llm_deployment,
}
"""For each target with another Deployment than the object's own: the function that names this Deployment."""


MOST_FILES = 64


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One object and what belongs to it, at one moment."""

    owner: Body
    children: Mapping[tuple[str, str], Body]
    """(kind, name) -> object."""
    pods: tuple[Body, ...]
    """Serving pods, those of old templates included; `is_serving` decides which pods serve."""
    workers: Mapping[str, tuple[Body, ...]] = field(default_factory=dict)
    """Name of a Job -> its pods."""
    claims: Mapping[str, Body] = field(default_factory=dict)
    """Name -> claim of the namespace that bears our label."""
    excess: str = ""
    """Why something of it is not known whole, so that nothing may be decided; empty where all is known."""
    payloads: Mapping[str, Body] = field(default_factory=dict)
    """Name -> ConfigMap of the plug-in in the namespace."""


class Cache:
    """Objects by kind and uid, and an index by the SpeculativeDeployment they belong to.

    What each object is filed under, its home: (namespace, name) of the SpeculativeDeployment; of the Job for a Job's
    pod, which bears no other name; (namespace, "") for a claim or payload, which all objects there share. What is known
    of one namespace may take `namespace_bytes` of memory.
    """

    def __init__(self, namespace_bytes: int = NAMESPACE_MEBIBYTES * MIB) -> None:
        self._owners: dict[Key, Body] = {}
        self._children: dict[Key, dict[tuple[str, str], Body]] = {}
        self._pods: dict[Key, dict[str, Body]] = {}
        self._workers: dict[Key, dict[str, Body]] = {}
        self._claims: dict[Key, dict[str, Body]] = {}
        self._inspections: dict[Key, Body] = {}
        """Object -> its inspect Job, until that Job has ended."""
        self._for_whom: dict[Key, Key] = {}
        """(namespace, name) of a Job -> the object that it is for."""
        self._home: dict[str, Key] = {}
        self._folders: dict[str, dict[str, frozenset[str]]] = {}
        """Namespace -> object -> folders of caches that it uses, where it uses any."""
        self._loads = Loads()
        self._sizes = Sizes(namespace_bytes)
        self._newest: dict[str, int] = {}
        self._expected: dict[Key, str] = {}
        """uids of SpeculativeDeployments that exist, by key: their children are listed before they are."""

    def clear(self) -> None:
        """Forget everything."""
        vars(self).update(vars(Cache(self._sizes.most)))

    def expect(self, owners: Mapping[Key, str]) -> None:
        """Keep what belongs to these SpeculativeDeployments, given by key and uid, although they are not held yet."""
        self._expected = dict(owners)

    def newest(self, kind: str) -> int:
        """The highest version that was seen of a kind; 0 where none was."""
        return self._newest.get(kind, 0)

    def put(self, body: Body, listed: int = 0) -> Key | None:
        """Store a version of an object; returns the key to reconcile, or None when nothing changed that could matter.
        `listed` is the version of the list that brought it."""
        kind, home = body["kind"], home_of(body)
        if home is None:
            return None
        uid, version = body["metadata"]["uid"], version_of(body)
        self._newest[kind] = max(version, self._newest.get(kind, 0))
        before = self._home.get(uid)
        if before is not None and before != home:
            self._drop(before, body)
        held = self._held(home, body)
        same = held is not None and held["metadata"]["uid"] == uid
        if held is not None and not newer(body, held) and listed < version_of(held):
            return None
        if held is not None and not same:
            self.remove(held)
        slim = self._kept(home, body, held if same else None)
        if slim is None:
            if same:
                self._drop(home, body)
            return self._woken(home, body) if held is not None else None
        if held == slim:
            return None
        shelf, slot = self._shelf(home, body)
        shelf[slot] = slim
        self._home[uid] = home
        if kind == JOB.kind and self._is_ours(home, body):
            self._for_whom[body["metadata"]["namespace"], body["metadata"]["name"]] = home
            self._note_inspection(home, slim)
        if kind == OWNER.kind:
            self._note_folders(home, keys(body.get("status") or {}))
        return self._woken(home, body) if held is None or _differs(kind, held, slim) else None

    def _kept(self, home: Key, body: Body, held: Body | None) -> Body | None:
        """What is kept of an object, in place of `held`: the parts that are read of what belongs to a known
        SpeculativeDeployment, an outline of what only bears its name, nothing of anything else."""
        kind, whole = body["kind"], body
        if OVERSIZE not in body and (kind == DEPLOYMENT.kind or (kind == POD.kind and not is_worker(body))):
            self._loads.note(body)
        if kind == OWNER.kind:
            # Of an event that is too large to be parsed the status is not known; we are the only one who writes it.
            status = {"status": held.get("status")} if OVERSIZE in body and held is not None else {}
            whole = {**trim(body), **status}
        elif not home[1]:
            # What all objects of the namespace share: of a ConfigMap, the names of its files.
            whole = {**outline(body), "data": dict.fromkeys([*(body.get("data") or ())][:MOST_FILES], "")}
        elif self._is_ours(home, body):
            whole = of_same_spec(trim(body), held)
        elif self._is_known(home) and kind != POD.kind:
            whole = outline(body)
        else:
            return None
        return self._sizes.fit(whole)

    def _is_known(self, home: Key) -> bool:
        return home in self._owners or home in self._expected

    def _is_ours(self, home: Key, body: Body) -> bool:
        """True for what a known SpeculativeDeployment owns, or what one of its children does; and for pods with
        somebody who made them, as `is_serving` decides whose they are."""
        owners = owners_of(body)
        if is_worker(body):
            jobs = {held["metadata"]["uid"] for held in self._children.get(self._for_whom.get(home, home), {}).values()}
            return not jobs.isdisjoint(owners)
        if body["kind"] == POD.kind:
            return self._is_known(home) and bool(owners)
        return any(self._home.get(uid) == home or self._expected.get(home) == uid for uid in owners)

    def remove(self, body: Body) -> Key | None:
        """Remove an object that is gone; returns the key to reconcile, or None when it was not held or was replaced."""
        uid = body["metadata"]["uid"]
        self._loads.forget(uid)
        home = self._home.get(uid)
        if home is None:
            return None
        self._drop(home, body)
        return self._woken(home, body)

    def snapshot(self, key: Key) -> Snapshot | None:
        """The object and what belongs to it; None when the object is not there."""
        owner = self._owners.get(key)
        if owner is None:
            return None
        children, namespace = MappingProxyType(dict(self._children.get(key, {}))), key[0]
        jobs = [name for kind, name in children if kind == JOB.kind]
        workers = {name: self._workers_of(children["Job", name]) for name in jobs}
        claims = MappingProxyType(dict(self._claims.get((namespace, ""), {})))
        known = (owner, *children.values(), *self._pods.get(key, {}).values(), *chain(*workers.values()))
        excess = next((str(body[OVERSIZE]) for body in known if OVERSIZE in body), "")
        if not excess and self._sizes.is_full(namespace):
            excess = f"namespace {namespace} has more objects than the operator can know: delete what is not needed"
        payloads = {name: body for (_, name), body in self._children.get((namespace, ""), {}).items()}
        return Snapshot(owner, children, self._serving(key), workers, claims, excess, payloads)

    def _workers_of(self, job: Body) -> tuple[Body, ...]:
        """Pods that the Job controller made of `job`: anybody may give a pod the labels of one."""
        meta = job["metadata"]
        return tuple(
            pod
            for pod in self._workers.get((meta["namespace"], meta["name"]), {}).values()
            if any(one.get("uid") == meta["uid"] for one in pod["metadata"].get("ownerReferences") or ())
        )

    def owner(self, key: Key) -> Body | None:
        return self._owners.get(key)

    def keys(self) -> list[Key]:
        """Every SpeculativeDeployment held."""
        return list(self._owners)

    def ready_objects(self) -> dict[str, list[Key]]:
        """Objects with a ready pod, by namespace: those whose metrics are worth a query."""
        found: dict[str, list[Key]] = {}
        for key in self._pods:
            if key in self._owners and any(map(is_ready, self._serving(key))):
                found.setdefault(key[0], []).append(key)
        return found

    def addresses(self, keys: Iterable[Key]) -> dict[str, Reached]:
        """Ready serving pods of these objects, and where each is reached."""
        pods = [pod for key in keys for pod in self._serving(key) if is_ready(pod)]
        return {pod["metadata"]["name"]: engine_address(pod) for pod in pods}

    def objects_of(self, kind: str) -> dict[str, Body]:
        """uid -> object of one kind."""
        shelves: Iterable[Mapping[Any, Body]]
        if kind == OWNER.kind:
            shelves = (self._owners,)
        elif kind == POD.kind:
            shelves = (*self._pods.values(), *self._workers.values())
        elif kind == CLAIM.kind:
            shelves = self._claims.values()
        else:
            shelves = self._children.values()
        found = {body["metadata"]["uid"]: body for shelf in shelves for body in shelf.values() if body["kind"] == kind}
        return {**self._loads.noted(kind), **found}

    def folders_in_use(self, key: Key) -> frozenset[str]:
        """Folders of caches that a Job of this object must keep: other objects of the namespace use them, or a pod or
        Deployment there loads from them. Status may have lost them, and its object may be gone before its pods."""
        others = self._folders.get(key[0], {}).items()
        used = (folder for name, found in others if name != key[1] for folder in found)
        return frozenset((*used, *self._loads.within(key[0])))

    def payloads(self) -> tuple[Body, ...]:
        """Every ConfigMap of the plug-in, of all namespaces."""
        return tuple(body for home, shelf in self._children.items() if not home[1] for body in shelf.values())

    def inspections(self) -> Mapping[Key, Body]:
        """Jobs that read models and have not ended, by object."""
        return self._inspections

    def __len__(self) -> int:
        return len(self._owners)

    def _serving(self, key: Key) -> tuple[Body, ...]:
        target = ((self._owners.get(key) or {}).get("spec") or {}).get("target")
        if target == Target.LEADER_WORKER_SET:
            return tuple(pod for pod in self._pods.get(key, {}).values() if is_of_group(pod, key[1], leaders=True))
        maker = _MAKERS.get(target, names.child)(key[1])
        return tuple(pod for pod in self._pods.get(key, {}).values() if is_serving(pod, (maker,)))

    def _note_folders(self, home: Key, folders: frozenset[str]) -> None:
        namespace, name = home
        if folders:
            self._folders.setdefault(namespace, {})[name] = folders
        elif namespace in self._folders:
            self._folders[namespace].pop(name, None)

    def _note_inspection(self, home: Key, job: Body) -> None:
        ends = (job.get("status") or {}).get("conditions") or ()
        ended = any(one.get("type") in ("Complete", "Failed") and one.get("status") == "True" for one in ends)
        if (job["metadata"].get("labels") or {}).get(names.LABEL_JOB) == Purpose.INSPECT.value and not ended:
            self._inspections[home] = job
        else:
            self._forget_inspection(home, job["metadata"]["uid"])

    def _forget_inspection(self, home: Key, uid: str) -> None:
        held = self._inspections.get(home)
        if held is not None and held["metadata"]["uid"] == uid:
            del self._inspections[home]

    def _woken(self, home: Key, body: Body) -> Key | None:
        """The key to reconcile after news of `body`: for a payload an object that mounts it, and makes it anew. None
        for a claim: its Job waits for it, and tells."""
        if body["kind"] == CLAIM.kind:
            return None
        if not home[1]:
            within = (key for key in self._owners if key[0] == home[0])
            return next((key for key in within if body["metadata"]["name"] in str(self._children.get(key))), None)
        return self._for_whom.get(home) if is_worker(body) else home

    def _index(self, body: Body) -> dict[Key, dict[Any, Body]]:
        kind = body["kind"]
        if kind == POD.kind:
            return self._workers if is_worker(body) else self._pods
        return self._claims if kind == CLAIM.kind else self._children

    def _held(self, home: Key, body: Body) -> Body | None:
        if body["kind"] == OWNER.kind:
            return self._owners.get(home)
        return self._index(body).get(home, {}).get(_slot(body))

    def _shelf(self, home: Key, body: Body) -> tuple[dict[Any, Body], Any]:
        if body["kind"] == OWNER.kind:
            return self._owners, home
        return self._index(body).setdefault(home, {}), _slot(body)

    def _drop(self, home: Key, body: Body) -> None:
        uid = body["metadata"]["uid"]
        self._home.pop(uid, None)
        self._sizes.forget(uid)
        shelf, slot = self._shelf(home, body)
        held = shelf.get(slot)
        if held is not None and held["metadata"]["uid"] == uid:
            del shelf[slot]
            if body["kind"] == OWNER.kind:
                self._note_folders(home, frozenset())
            if body["kind"] == JOB.kind:
                self._for_whom.pop((body["metadata"]["namespace"], body["metadata"]["name"]), None)
                self._forget_inspection(home, uid)
        for index in (self._children, self._pods, self._workers, self._claims):
            if home in index and not index[home]:
                del index[home]


def _slot(body: Body) -> Any:
    name = body["metadata"]["name"]
    return name if body["kind"] in (POD.kind, CLAIM.kind) else (body["kind"], name)


def _differs(kind: str, held: Body, body: Body) -> bool:
    """True when `body` says something new; a SpeculativeDeployment's status does not count: the operator writes it."""
    ours = ("metadata", "status") if kind == OWNER.kind else ("metadata",)
    if any(held.get(part) != body.get(part) for part in {*held, *body} - set(ours)):
        return True
    old, new = held["metadata"], body["metadata"]
    return any(old.get(part) != new.get(part) for part in ({*old, *new} - _IGNORED))
