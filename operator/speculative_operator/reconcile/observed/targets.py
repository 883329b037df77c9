"""Translates between `tick` and the targets: `tick` is given the workload as a Deployment in place of the objects that
stand for it, and its actions on the workload become actions on these objects. Used by `tick`.

LWS reports groups: one is ready once all of its pods are. It knows no deadline, so the operator holds the time since
which groups make progress against its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, Condition, Truth
from speculative_operator.domain.reading import at, mapping, mappings, seconds_of, text, whole
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Target
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.observed import kserve
from speculative_operator.reconcile.observed.kserve import Objects
from speculative_operator.reconcile.observed.pods import Rollout
from speculative_operator.reconcile.world import World
from speculative_operator.render.leader_worker_set import SET, strategy_of
from speculative_operator.render.targets import TARGETS, target_of


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
        "strategy": strategy_of(rolling.get("maxSurge"), rolling.get("maxUnavailable")),
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


def _group_refusals(spec: DeploymentSpec) -> tuple[Condition, ...]:
    """Why the engine cannot serve `spec` over several nodes; empty where it can."""
    if spec.target is not Target.LEADER_WORKER_SET:
        return ()
    messages = _group_hindrances(spec)
    return tuple(Condition(ConditionType.READY, Truth.FALSE, Reason.UNSUPPORTED_BY_ENGINE, one) for one in messages)


def _group_hindrances(spec: DeploymentSpec) -> Iterator[str]:
    over = f"spec.nodes is {spec.nodes}"
    if spec.engine.type is not EngineType.VLLM:
        yield f"{over}, and only vLLM is served over several nodes: set spec.engine.type: {EngineType.VLLM}"
        return
    if spec.speculator is None or not spec.speculates:
        return
    stages, ranks = spec.verifier.pipeline_parallel_size, spec.verifier.tensor_parallel_size
    if stages > 1:
        yield (
            f"{over} and spec.verifier.pipelineParallelSize is {stages}: with drafts, stages of vLLM may disagree on "
            "what was accepted. Set tensorParallelSize to all accelerators of a replica and pipelineParallelSize: 1, "
            "or speculation.mode: Disabled"
        )
    if spec.speculator.tensor_parallel_size not in (None, ranks):
        yield (
            f"{over} and spec.speculator.tensorParallelSize is {spec.speculator.tensor_parallel_size}: over several "
            "nodes the speculator is split as the verifier is; remove it"
        )


_READERS: Mapping[Target, Callable[[DeploymentSpec, Objects, float], Mapping[str, Any] | None]] = {
    Target.INFERENCE_SERVICE: kserve.read_service,
    Target.LLM_INFERENCE_SERVICE: kserve.read_llm,
    Target.LEADER_WORKER_SET: read_group,
}
"""The reader of each target whose workload is no object itself."""


def with_workload(world: World, now: float) -> World:
    """`world` with the workload in the Deployment's place."""
    world = replace(world, elsewhere=_elsewhere(world))
    if world.spec.target not in _READERS:
        return world
    children, applied = (_with_workload(world.spec, one, now) for one in (world.children, world.applied))
    if world.spec.target is Target.LLM_INFERENCE_SERVICE:
        world = replace(world, pods=tuple(map(kserve.with_labels, world.pods)))
    pods = tuple(_with_engine(pod, target_of(world.spec).container) for pod in world.pods)
    return replace(world, children=children, applied=applied, pods=pods)


def _with_engine(pod: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """The pod, with the engine's container under the name that it has in the workload."""
    if container == names.CONTAINER:
        return pod
    parts = (("spec", "containers"), ("status", "containerStatuses"))
    return {
        **pod,
        **{part: {**mapping(pod, part), field: _rename_engine(pod, part, field, container)} for part, field in parts},
    }


def _rename_engine(pod: Mapping[str, Any], part: str, field: str, container: str) -> list[Mapping[str, Any]]:
    found = mappings(pod, part, field)
    return [{**one, "name": names.CONTAINER} if text(one, "name") == container else one for one in found]


def _elsewhere(world: World) -> str:
    """Kind of the workload that the object has by a target that is not its own; empty without one. Its pods must keep
    their Service."""
    kinds = [one.kind for target, one in TARGETS.items() if target is not world.spec.target]
    found = ((kind, world.children.get((kind, _workload_name(world.spec.name, kind)))) for kind in kinds)
    return next((kind for kind, one in found if one is not None and world.owns(one)), "")


def _workload_name(name: str, kind: str) -> str:
    return names.group(name) if kind == SET else names.child(name)


def _with_workload(spec: DeploymentSpec, objects: Objects, now: float) -> Objects:
    found = _READERS[spec.target](spec, objects, now)
    parts = (*kserve.parts(spec.name), *kserve.llm_parts(spec.name))
    hidden = {*parts, ("Deployment", names.child(spec.name))}
    others = {key: one for key, one in objects.items() if key not in hidden}
    return others if found is None else {**others, ("Deployment", names.child(spec.name)): found}


def of_objects(spec: DeploymentSpec, actions: Iterable[Action]) -> Iterator[Action]:
    """`actions`, with those on the workload turned into actions on the objects that stand for it."""
    target = target_of(spec)
    for action in actions:
        if not isinstance(action, ApplyChild) or action.manifest["kind"] != "Deployment":
            yield action
            continue
        for manifest in target.write(spec, dict(action.manifest)):
            yield replace(action, manifest=manifest)


def refusals(world: World) -> tuple[Condition, ...]:
    """Why the target of an object cannot be served; empty where it can."""
    target = world.spec.target
    if target not in TARGETS:
        known = " or ".join(TARGETS)
        message = f"spec.target {target} is not supported by this release; create the object with target: {known}"
    elif _missing(world):
        message = (
            f"spec.target {target} needs KServe, and this cluster does not serve {_missing(world)}; install KServe or "
            "OpenShift AI, or create the object with target: Deployment"
        )
    elif target is Target.LEADER_WORKER_SET and not world.capabilities.leader_worker_set:
        message = (
            f"spec.target {target} needs LWS, and this cluster does not serve the kind LeaderWorkerSet "
            "(leaderworkerset.x-k8s.io/v1); install LWS, or create the object with target: Deployment"
        )
    elif world.elsewhere:
        message = (
            f"spec.target is {target}, but this object is served by its {world.elsewhere}, which stays as it is; set "
            "spec.target back, and create a second object for the other target"
        )
    else:
        return _group_refusals(world.spec)
    return (Condition(ConditionType.READY, Truth.FALSE, Reason.UNSUPPORTED_TARGET, message),)


def _missing(world: World) -> str:
    """Kinds that the target needs and the cluster lacks; empty where it has them."""
    able = world.capabilities
    if world.spec.target is Target.INFERENCE_SERVICE and not able.inference_service:
        return "the kinds InferenceService (serving.kserve.io/v1beta1) and ServingRuntime (serving.kserve.io/v1alpha1)"
    if world.spec.target is Target.LLM_INFERENCE_SERVICE and not able.llm_inference_service:
        return "the kind LLMInferenceService (serving.kserve.io/v1alpha2), which KServe has from release 0.17 on"
    return ""


def notices(spec: DeploymentSpec, rollout: Rollout) -> tuple[Notice, ...]:
    """One notice where all pods are ready but the platform's object is not, as where no Route was made; else none."""
    if not rollout.platform or not rollout.complete:
        return ()
    message = f"all pods are ready, but the {target_of(spec).kind} is not: {rollout.platform}"
    return (Notice(Reason.INFERENCE_SERVICE_NOT_READY, message),)
