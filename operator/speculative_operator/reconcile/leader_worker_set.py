"""The workload as a LeaderWorkerSet has it, and what cannot be served over several nodes. Used by `targets`.

LWS reports groups: one is ready once all of its pods are. It knows no deadline, so the operator holds the time since
which groups make progress against its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.conditions import Condition, Truth
from speculative_operator.domain.reading import at, mapping, mappings, seconds_of, text, whole
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Target
from speculative_operator.reconcile import inference_service as kserve
from speculative_operator.render.leader_worker_set import SET, strategy_of

Body = Mapping[str, Any]


def read(spec: DeploymentSpec, objects: kserve.Objects, now: float) -> Body | None:
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
    return {**workload, "status": _status(found, seconds, now)}


def _status(found: Body, seconds: int, now: float) -> dict[str, Any]:
    ready = whole(found, "status", "readyReplicas")
    return {
        **{key: whole(found, "status", key) for key in ("observedGeneration", "replicas", "updatedReplicas")},
        "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": list(_conditions(found, seconds, now)),
    }


def _conditions(found: Body, seconds: int, now: float) -> Iterator[dict[str, str]]:
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


def refusals(spec: DeploymentSpec) -> tuple[Condition, ...]:
    """Why the engine cannot serve `spec` over several nodes; empty where it can."""
    if spec.target is not Target.LEADER_WORKER_SET:
        return ()
    messages = _hindrances(spec)
    return tuple(Condition(ConditionType.READY, Truth.FALSE, Reason.UNSUPPORTED_BY_ENGINE, one) for one in messages)


def _hindrances(spec: DeploymentSpec) -> Iterator[str]:
    over = f"spec.nodes is {spec.nodes}"
    if spec.engine.type is not EngineType.VLLM:
        yield f"{over}, and only vLLM is served over several nodes: set spec.engine.type: {EngineType.VLLM}"
        return
    if spec.engine.compile_cache is not None:
        yield f"{over}, and pods of several nodes compile different code: remove spec.engine.compileCache"
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
