"""The workload of an object, read as a Deployment whatever the target is, and how far its rollout is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import at, is_controlled_by, mapping, mappings, seconds_of, text, whole
from speculative_operator.reconcile.snapshot.pods import configs_of
from speculative_operator.reconcile.snapshot.privileges import Asked, privileges_of
from speculative_operator.reconcile.snapshot.tables import Written, read_table
from speculative_operator.render import resolved
from speculative_operator.render.resolved import Resolved


@dataclass(frozen=True, slots=True)
class Workload:
    """What makes the pods of an object; where there is none, everything here is empty."""

    exists: bool = False
    pair: str = ""
    """Label of the pair that its template was made of; empty if it bears none."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Volume -> ConfigMap that its template mounts."""
    made_of: str = ""
    """What its pods were made of (`upgrade.made_of`); empty where nothing says so."""
    resolved: Resolved | None = None
    """The record of what its pods were made of; None without one that this release can have written."""
    table: Written = field(default_factory=Written)
    """The table that its template was rendered for."""
    privileges: tuple[Asked, ...] = ()
    """Privileges that its template has; none where the workload is another's."""
    replicas: int | None = None
    scaler: str = ""
    """The writer, other than kubectl, that holds the replicas through the scale subresource; empty without one. Writing
    them back would undo it at every reconcile (kserve#3768). A deleted autoscaler is still named: only another writer
    takes its entry away."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The operator's own annotations."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)
    """Its spec and its pod template as they are: to be compared and written again, not read."""

    @property
    def made_as(self) -> str:
        """Hash of the pod template that it was rendered with; empty where no record tells."""
        return self.resolved.template if self.resolved is not None else ""


@dataclass(frozen=True, slots=True)
class Stuck:
    """The new pod of a rollout for which the scheduler has found no node for a while (`surge`)."""

    pod: str
    replaceable: bool
    """True where the end of an old pod makes room for it: it may run where old ones run, and asks for no more of what
    the scheduler says is lacking."""
    restarted: bool = False
    """True where somebody restarted the pods with kubectl."""
    idle: bool = False
    """True where fewer pods are ready than asked for, and the engine of an old one has never come up."""
    unasked: bool = False
    """True where no user asked for the rollout."""
    why_not: str = ""
    """Why no old pod may end for it; empty where one may."""

    @property
    def goes_back(self) -> bool:
        """True where the rollout is to be undone: nobody asked for it, and it cannot go on."""
        return self.unasked and bool(self.why_not) and not self.restarted


@dataclass(frozen=True, slots=True)
class Rollout:
    """The state of the Deployment's rollout, as the Deployment itself reports it."""

    exists: bool
    wanted: int
    """Replicas that it is to have."""
    replicas: int = 0
    ready: int = 0
    updated: int = 0
    complete: bool = False
    """Every replica runs the current template and is available, and no other is left."""
    stalled: str = ""
    """The controller's message once no progress was made within the deadline."""
    refused: str = ""
    """The controller's message where it may not make a pod: a quota, an admission rule, Pod Security."""
    completed_at: float | None = None
    """When the last rollout was complete, unix seconds; None when the controller does not say."""
    url: str = ""
    """Where the platform says that the model is reached; empty where it says nothing."""
    platform: str = ""
    """Why the platform does not count the workload as ready, in its words; empty where it says nothing."""
    stuck: Stuck | None = None
    """The new pod that finds no node; None without one, and once the rollout is complete."""


def read_workload(body: Mapping[str, Any], uid: str) -> Workload:
    """The workload of the object `uid`."""
    annotations, template = mapping(body, "metadata", "annotations"), mapping(body, "spec", "template")
    return Workload(
        exists=True,
        pair=text(template, "metadata", "labels", names.LABEL_PAIR),
        configs=configs_of(template),
        made_of=text(annotations, names.ANNOTATION_MADE_OF),
        resolved=resolved.read(body, uid),
        table=read_table(text(annotations, names.ANNOTATION_TABLE)),
        privileges=privileges_of(template, of_node=True) if is_controlled_by(body, uid) else (),
        replicas=_count(at(body, "spec", "replicas")),
        scaler=_scaler(body),
        annotations={key: value for key, value in annotations.items() if key.startswith(f"{names.GROUP}/")},
        spec=mapping(body, "spec"),
        template=template,
    )


def read_rollout(body: Mapping[str, Any] | None, wanted: int) -> Rollout:
    """The rollout of the workload as it is; `wanted` replicas count where the workload names none."""
    if body is None:
        return Rollout(exists=False, wanted=wanted)
    asked, status = _count(at(body, "spec", "replicas")), mapping(body, "status")
    wanted = asked if asked is not None else wanted
    replicas, updated = whole(status, "replicas"), whole(status, "updatedReplicas")
    seen = whole(status, "observedGeneration") >= whole(body, "metadata", "generation")
    complete = seen and updated >= wanted and replicas <= updated and whole(status, "availableReplicas") >= wanted
    under_way = seen and not complete
    made, stalled = (_find(status, reason) for reason in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"))
    refused = _find(status, None)
    return Rollout(
        exists=True,
        wanted=wanted,
        replicas=replicas,
        ready=whole(status, "readyReplicas"),
        updated=updated,
        complete=complete,
        stalled=(text(stalled, "message") or "no progress within the deadline") if stalled and under_way else "",
        refused=(text(refused, "message") or text(refused, "reason")) if under_way else "",
        completed_at=seconds_of(text(made, "lastUpdateTime")) if complete else None,
        url=text(status, "url"),
        platform=text(status, "platform"),
    )


def _find(status: Mapping[str, Any], reason: str | None) -> Mapping[str, Any]:
    """The condition Progressing with this reason, or ReplicaFailure where none is named; empty without one."""
    for one in mappings(status, "conditions"):
        kind = text(one, "type")
        if reason is None and (kind, text(one, "status")) == ("ReplicaFailure", "True"):
            return one
        if reason is not None and (kind, text(one, "reason")) == ("Progressing", reason):
            return one
    return {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _scaler(body: Mapping[str, Any]) -> str:
    for entry in mappings(body, "metadata", "managedFields"):
        if text(entry, "subresource") != "scale" or text(entry, "manager").startswith("kubectl"):
            continue
        if at(entry, "fieldsV1", "f:spec", "f:replicas") is not None:
            return text(entry, "manager") or "somebody"
    return ""
