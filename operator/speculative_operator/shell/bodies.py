"""What the bodies of objects tell: whose an object is, which pods serve and where they are reached, and what of a body
is worth keeping. Asked by `cache`, and by all who read what the cache holds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.jobs import Phase, Purpose
from speculative_operator.domain.reading import seconds_of
from speculative_operator.render.payload import is_payload
from speculative_operator.shell.podseries import Reached
from speculative_operator.shell.resources import CHILD_BY_KIND, CLAIM, CONFIG_MAP, DEPLOYMENT, JOB, OWNER, POD

Key = tuple[str, str]
"""(namespace, name) of a SpeculativeDeployment."""
Slot = tuple[str, str]
"""Kind and name of an object."""
Body = Mapping[str, Any]
JOB_ENDS = {"Complete": Phase.SUCCEEDED, "Failed": Phase.FAILED}
"""Condition of a Job that is over -> its phase."""
_COPY = "kubectl.kubernetes.io/last-applied-configuration"
_PART_BYTES = 50
"""Bytes of memory that a place in a map or list takes."""
_KEPT_OF_WORKERS = ("phase", "reason", "message", "conditions", "containerStatuses")


def key_of(body: Body) -> Key:
    """Namespace and name of an object: its key, where it is a SpeculativeDeployment."""
    return body["metadata"]["namespace"], body["metadata"]["name"]


def slot_of(body: Body) -> Slot:
    """Kind and name of an object."""
    return body["kind"], body["metadata"]["name"]


def tags(key: Key) -> dict[str, str]:
    """Fields that tell in a line of the log which object it is about."""
    return {"namespace": key[0], "object": key[1]}


def owner_key(body: Body) -> Key | None:
    """The SpeculativeDeployment that an object is or belongs to: by owner reference, else by label; None without
    one."""
    meta = body["metadata"]
    if body["kind"] == OWNER.kind:
        return key_of(body)
    if body["kind"] != POD.kind and body["kind"] not in CHILD_BY_KIND:
        return None
    for reference in meta.get("ownerReferences") or ():
        if reference.get("kind") == OWNER.kind and reference.get("apiVersion", "").startswith(f"{names.GROUP}/"):
            return meta["namespace"], reference["name"]
    labels = meta.get("labels") or {}
    name = labels.get(names.LABEL_CANDIDATE) or labels.get(names.LABEL_DEPLOYMENT)
    return (meta["namespace"], name) if name else None


def home_of(body: Body) -> Key | None:
    """The key under which the cache files an object, pods of Jobs aside; None for one that is not the operator's."""
    meta = body["metadata"]
    if body["kind"] == CLAIM.kind:
        ours = (meta.get("labels") or {}).get(names.LABEL_MANAGED_BY) == names.OPERATOR
        return (meta["namespace"], "") if ours else None
    if body["kind"] == CONFIG_MAP.kind and is_payload(body):
        return meta["namespace"], ""
    return owner_key(body)


def is_worker(body: Body) -> bool:
    """True for the pod of a Job, whatever labels it bears."""
    labels = body["metadata"].get("labels") or {}
    return body["kind"] == POD.kind and bool(job_name(body) or labels.get(names.LABEL_JOB))


def is_made_by(pod: Body, kind: str, name: str) -> bool:
    """True for a pod that the ReplicaSet or StatefulSet `name` controls. Labels alone prove nothing: a copy made for
    debugging keeps them and has no controller, and the pods of a canary bear them under another Deployment."""
    return any(
        (one.get("name") == name and one.get("kind") == kind)
        and (one.get("apiVersion") == "apps/v1" and one.get("controller") is True)
        for one in pod["metadata"].get("ownerReferences") or ()
    )


def job_name(pod: Body) -> str:
    """Name of the Job that owns a pod; empty where none does."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(one["name"]) for one in owners if one.get("kind") == JOB.kind), "")


def purpose_of(job: Body) -> Purpose | None:
    """What a Job is for; None where its label does not say."""
    value = (job["metadata"].get("labels") or {}).get(names.LABEL_JOB)
    return Purpose(value) if value in set(Purpose) else None


def end_of(job: Body) -> Mapping[str, Any] | None:
    """The condition that says that a Job is over; None where it is not."""
    conditions: Sequence[Mapping[str, Any]] = (job.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") in JOB_ENDS and one.get("status") == "True"), None)


def version_of(body: Body) -> int:
    """The version of an object: the later, the higher (Kubernetes 1.35 promises it); 0 where it is no number."""
    version = str(body["metadata"].get("resourceVersion", ""))
    return int(version) if version.isdecimal() else 0


def owners_of(body: Body) -> list[str]:
    """uids of the objects that own `body`."""
    return [one["uid"] for one in body["metadata"].get("ownerReferences") or () if one.get("uid")]


def is_ready(pod: Body) -> bool:
    """True when the pod's condition Ready holds and it is not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    return any(entry.get("status") == "True" for entry in _ready_conditions(pod))


def ready_since(pod: Body) -> float:
    """Unix seconds of the last change of the pod's condition Ready; 0 where it says none."""
    times = (seconds_of(str(entry.get("lastTransitionTime", ""))) for entry in _ready_conditions(pod))
    return max((time for time in times if time is not None), default=0.0)


def _ready_conditions(pod: Body) -> list[Mapping[str, Any]]:
    conditions: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("conditions") or ()
    return [entry for entry in conditions if entry.get("type") == "Ready"]


def addresses_of(pod: Body) -> tuple[str, ...]:
    """The pod's IP addresses, of either family."""
    status = pod.get("status") or {}
    found = [status.get("podIP"), *(entry.get("ip") for entry in status.get("podIPs") or ())]
    return tuple(dict.fromkeys(address for address in found if address))


def engine_address(pod: Body) -> Reached:
    """Address and port of the pod's engine, and whether it speaks TLS, by the annotation for Prometheus."""
    scheme = (pod["metadata"].get("annotations") or {}).get("prometheus.io/scheme")
    return Reached.at_port(addresses_of(pod), port_of(pod), encrypted=scheme == "https")


def port_of(pod: Body) -> int:
    """Port of the pod's engine; the usual one where no container names it."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == names.SERVING_PORT_NAME and isinstance(port.get("containerPort"), int):
                return int(port["containerPort"])
    return names.SERVING_PORT


def trim(body: Body) -> Body:
    """The body without parts that nobody reads: managed fields except those of scaling, the copy that kubectl keeps in
    an annotation, templates of Jobs, specs of Jobs' pods. What is in it shares memory with what equals it in others."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    if _COPY in (metadata.get("annotations") or {}):
        metadata["annotations"] = {name: text for name, text in metadata["annotations"].items() if name != _COPY}
    scaling = [entry for entry in body["metadata"].get("managedFields") or () if entry.get("subresource") == "scale"]
    if scaling:
        metadata["managedFields"] = scaling
    slim = {**body, "metadata": metadata}
    if body["kind"] == JOB.kind:
        # Never read: what a Job was made for is an annotation.
        slim["spec"] = {name: value for name, value in (body.get("spec") or {}).items() if name != "template"}
    if is_worker(body):
        slim.pop("spec", None)
        status = body.get("status") or {}
        slim["status"] = {name: status[name] for name in _KEPT_OF_WORKERS if name in status}
    shared: Body = _COPIES.copy_of(slim)
    return shared


class _Copies:
    """One copy of each text, map and list in the bodies of all objects: most of an object is in every other, and its
    pods have it once more. Of maps and lists it holds so many bytes itself, and begins anew beyond them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._known: dict[tuple[Any, ...], Any] = {}

    def copy_of(self, value: Any) -> Any:
        """What equals `value`, made of such copies."""
        if type(value) is str:
            return sys.intern(value)
        if isinstance(value, dict):
            value = {sys.intern(name): self.copy_of(part) for name, part in value.items()}
            return self._first_copy((*value, *map(_identity, value.values())), value)
        if isinstance(value, list):
            value = [self.copy_of(part) for part in value]
            return self._first_copy((list, *map(_identity, value)), value)
        return value

    def _first_copy(self, key: tuple[Any, ...], value: Any) -> Any:
        known = self._known.get(key)
        if known is not None:
            return known
        parts = value.values() if isinstance(value, dict) else value
        size = _PART_BYTES * (1 + len(key)) + sum(len(part) for part in parts if isinstance(part, str))
        if self._bytes + size > self._most:
            self._known, self._bytes = {}, 0
        self._known[key] = value
        self._bytes += size
        return value


def _identity(part: Any) -> Any:
    """What tells a part from others: of a text, map or list, that it is the same copy."""
    return id(part) if isinstance(part, str | dict | list) else (type(part), part)


_COPIES = _Copies(2 * 2**20)


def of_same_spec(body: Body, held: Body | None) -> Body:
    """`body`; a Deployment counts as seen by its controller where `held`, the version before, was seen and has the same
    spec.

    The API server raises a Deployment's generation with each change of its annotations, whoever makes it. Until the
    controller has looked again, its status would count for one of other pods, and an object whose pods all serve would
    be told as rolling out, with every such write.
    """
    if held is None or held["metadata"]["uid"] != body["metadata"]["uid"]:
        return body
    if body["kind"] != DEPLOYMENT.kind:
        return body
    if not _is_seen(held) or _is_seen(body) or held.get("spec") != body.get("spec"):
        return body
    return {**body, "status": {**(body.get("status") or {}), "observedGeneration": _generation(body)}}


def _is_seen(body: Body) -> bool:
    return int((body.get("status") or {}).get("observedGeneration") or 0) >= _generation(body)


def _generation(body: Body) -> int:
    return int(body["metadata"].get("generation") or 0)
