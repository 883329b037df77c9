"""The workload as a LeaderWorkerSet has it, and what cannot be served over several nodes. Used by `targets`.

LWS reports groups: one is ready once all of its pods are. It knows no deadline, so the operator holds the time since
which groups make progress against its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.conditions import Condition, Truth
from speculative_operator.domain.reading import at, is_controlled_by, mapping, mappings, seconds_of, text, whole
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Target
from speculative_operator.reconcile.inference_service import deadline_of
from speculative_operator.render.leader_worker_set import SET, strategy_of

Body = Mapping[str, Any]


def read(spec: DeploymentSpec, objects: Mapping[tuple[str, str], Body], now: float) -> Body | None:
    """The workload; None where there is no LeaderWorkerSet. One of somebody else with no more than its metadata."""
    found = objects.get((SET, names.group(spec.name)))
    if found is None or not is_controlled_by(found, spec.uid):
        return found and {"kind": SET, "metadata": mapping(found, "metadata")}
    seconds = deadline_of(found)
    body: dict[str, Any] = {
        "replicas": at(found, "spec", "replicas"),
        "selector": {"matchLabels": names.selector(spec.name)},
        "progressDeadlineSeconds": seconds,
        "revisionHistoryLimit": 3,
        "template": mapping(found, "spec", "leaderWorkerTemplate", "leaderTemplate"),
    }
    rolling = mapping(found, "spec", "rolloutStrategy", "rollingUpdateConfiguration")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": mapping(found, "metadata"),
        "spec": {**body, "strategy": strategy_of(rolling.get("maxSurge"), rolling.get("maxUnavailable"))},
        "status": _status(found, seconds, now),
    }


def _status(found: Body, seconds: int, now: float) -> dict[str, Any]:
    ready = whole(found, "status", "readyReplicas")
    return {
        **{key: whole(found, "status", key) for key in ("observedGeneration", "replicas", "updatedReplicas")},
        "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": list(_conditions(found, seconds, now)),
    }


def _conditions(found: Body, seconds: int, now: float) -> Iterator[dict[str, str]]:
    """In a Deployment's words."""
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
