"""The workload of each target as a Deployment, made of the objects that stand for it, and pods as the workload names
their parts. Called by `take`.

LWS reports groups: one is ready once all of its pods are. It knows no deadline, so the operator holds the time since
which groups make progress against its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import at, is_controlled_by, mapping, mappings, seconds_of, text, whole
from speculative_operator.domain.spec import DeploymentSpec, Target
from speculative_operator.reconcile.snapshot import kserve
from speculative_operator.reconcile.snapshot.kserve import Objects
from speculative_operator.render.leader_worker_set import SET
from speculative_operator.render.target import ALL_AT_ONCE, strategy_of
from speculative_operator.render.targets import TARGETS


def read_group(spec: DeploymentSpec, objects: Objects, now: float) -> Mapping[str, Any] | None:
    """The workload as a Deployment; None where there is no LeaderWorkerSet."""
    key = (SET, names.group(spec.name))
    found, stranger = objects.get(key), kserve.stranger_among(spec, objects, (key,))
    if found is None or stranger is not None:
        return stranger
    seconds = kserve.deadline_of(found)
    rolling = mapping(found, "spec", "rolloutStrategy", "rollingUpdateConfiguration")
    body = {
        "replicas": at(found, "spec", "replicas"),
        "strategy": strategy_of({key: rolling.get(key) for key in ALL_AT_ONCE}),
        "progressDeadlineSeconds": seconds,
        "template": mapping(found, "spec", "leaderWorkerTemplate", "leaderTemplate"),
    }
    workload = kserve.workload_of(spec, mapping(found, "metadata"), body)
    return {**workload, "status": _group_status(found, seconds, now)}


def _group_status(found: Mapping[str, Any], seconds: int, now: float) -> dict[str, Any]:
    ready = whole(found, "status", "readyReplicas")
    return {
        **{key: whole(found, "status", key) for key in ("observedGeneration", "replicas", "updatedReplicas")},
        "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": list(_group_conditions(found, seconds, now)),
    }


def _group_conditions(found: Mapping[str, Any], seconds: int, now: float) -> Iterator[dict[str, str]]:
    """The conditions of the LeaderWorkerSet in the words of a Deployment."""
    for one in mappings(found, "status", "conditions"):
        stamp = text(one, "lastTransitionTime")
        if text(one, "status") != "True":
            continue
        if text(one, "type") == "Available":
            yield {"type": "Progressing", "reason": "NewReplicaSetAvailable", "lastUpdateTime": stamp}
        since = seconds_of(stamp)
        if text(one, "type") == "Progressing" and since is not None and now >= since + seconds > since:
            message = f"groups are not ready after {seconds} s: {text(one, 'message')}"
            yield {"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": message}


_READERS: Mapping[Target, Callable[[DeploymentSpec, Objects, float], Mapping[str, Any] | None]] = {
    Target.INFERENCE_SERVICE: kserve.read_service,
    Target.LLM_INFERENCE_SERVICE: kserve.read_llm,
    Target.LEADER_WORKER_SET: read_group,
}
"""The reader of each target whose workload is no object itself."""


def with_workload(spec: DeploymentSpec, objects: Objects, now: float) -> Objects:
    """`objects` with the workload in the Deployment's place, and without the objects that it is made of."""
    if spec.target not in _READERS:
        return objects
    found = _READERS[spec.target](spec, objects, now)
    parts = (*kserve.parts(spec.name), *kserve.llm_parts(spec.name))
    hidden = {*parts, ("Deployment", names.child(spec.name))}
    others = {key: one for key, one in objects.items() if key not in hidden}
    return others if found is None else {**others, ("Deployment", names.child(spec.name)): found}


def find_elsewhere(spec: DeploymentSpec, objects: Objects) -> str:
    """Kind of the workload that the object has by a target that is not its own; empty without one. Its pods must keep
    their Service."""
    kinds = [one.kind for target, one in TARGETS.items() if target is not spec.target]
    name_of = {SET: names.group(spec.name)}
    found = ((kind, objects.get((kind, name_of.get(kind, names.child(spec.name))))) for kind in kinds)
    return next((kind for kind, one in found if one is not None and is_controlled_by(one, spec.uid)), "")
