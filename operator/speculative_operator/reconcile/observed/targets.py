"""Turns what `tick` does to the workload into actions on the objects that stand for it, and tells which targets cannot
be served, and who else writes the workload. Used by `tick`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, Condition, Truth
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Target
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.snapshot.workload import Rollout
from speculative_operator.render.targets import target_of

_INFERENCE_SERVICE = (
    "the kinds InferenceService (serving.kserve.io/v1beta1) and ServingRuntime (serving.kserve.io/v1alpha1)"
)
_LLM = "the kind LLMInferenceService (serving.kserve.io/v1alpha2), which KServe has from release 0.17 on"
_GROUPS = "the kind LeaderWorkerSet (leaderworkerset.x-k8s.io/v1)"


def of_objects(spec: DeploymentSpec, actions: Iterable[Action]) -> Iterator[Action]:
    """`actions`, with those on the workload turned into actions on the objects that stand for it."""
    target = target_of(spec)
    for action in actions:
        if not isinstance(action, ApplyChild) or action.manifest["kind"] != "Deployment":
            yield action
            continue
        for manifest in target.write(spec, dict(action.manifest)):
            yield replace(action, manifest=manifest)


def refusals(world: Snapshot) -> tuple[Condition, ...]:
    """Why the target of an object cannot be served; empty where it can."""
    target, able = world.spec.target, world.capabilities
    needs = {
        Target.INFERENCE_SERVICE: (able.inference_service, "KServe", _INFERENCE_SERVICE, "KServe or OpenShift AI"),
        Target.LLM_INFERENCE_SERVICE: (able.llm_inference_service, "KServe", _LLM, "KServe or OpenShift AI"),
        Target.LEADER_WORKER_SET: (able.leader_worker_set, "LWS", _GROUPS, "LWS"),
    }
    is_there, platform, kinds, remedy = needs.get(target, (True, "", "", ""))
    if not is_there:
        message = (
            f"spec.target {target} needs {platform}, and this cluster does not serve {kinds}; install {remedy}, or "
            "create the object with target: Deployment"
        )
    elif world.elsewhere:
        message = (
            f"spec.target is {target}, but this object is served by its {world.elsewhere}, which stays as it is; set "
            "spec.target back, and create a second object for the other target"
        )
    else:
        reason = Reason.UNSUPPORTED_BY_ENGINE
        hindrances = _group_hindrances(world.spec)
        return tuple(Condition(ConditionType.READY, Truth.FALSE, reason, one) for one in hindrances)
    return (Condition(ConditionType.READY, Truth.FALSE, Reason.UNSUPPORTED_TARGET, message),)


def notices(spec: DeploymentSpec, rollout: Rollout) -> tuple[Notice, ...]:
    """One notice where all pods are ready but the platform's object is not, as where no Route was made; else none."""
    if not rollout.platform or not rollout.complete:
        return ()
    message = f"all pods are ready, but the {target_of(spec).kind} is not: {rollout.platform}"
    return (Notice(Reason.INFERENCE_SERVICE_NOT_READY, message),)


def scaling_notices(spec: DeploymentSpec, scaler: str) -> tuple[Notice, ...]:
    """One notice where spec.replicas is not used because of the writer `scaler`, with the way to have it used again;
    else none."""
    if not scaler:
        return ()
    name = names.child(spec.name)
    message = (
        f"{scaler} sets the replicas of Deployment {name}, so the operator ignores spec.replicas; point autoscalers at "
        "the SpeculativeDeployment. If that writer no longer exists, set another number than the current one, and "
        f"spec.replicas applies again: kubectl scale -n {spec.namespace} deployment {name} --replicas=NUMBER"
    )
    return (Notice(Reason.SCALED_ELSEWHERE, message),)


def _group_hindrances(spec: DeploymentSpec) -> Iterator[str]:
    """Why the engine cannot serve `spec` over several nodes; nothing where it can, or is to serve on one."""
    if spec.target is not Target.LEADER_WORKER_SET:
        return
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
