"""What serving pods, and the Deployment that makes them, say of themselves: which pod is in trouble, how far the
rollout is, whether it is stuck, who scales it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import at, mapping, mappings, seconds_of, text, whole
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.observed import startup
from speculative_operator.reconcile.observed.surge import Stuck


@dataclass(frozen=True, slots=True)
class Pod:
    """One serving pod."""

    name: str
    ready: bool
    running: bool
    """Its volumes are mounted and it is not on its way out."""
    terminating: bool
    pair: str
    """Hash of the pair that its template was made for; empty if it bears none."""
    poked: str
    """Table version that it was last poked with; empty if never."""
    trouble: str
    """Why it is not ready, such as `ImagePullBackOff: ...`; empty when its status does not say."""
    outlasted: int = 0
    """Startup budget in seconds, where the startup probe ended the engine before it was ready; else 0."""


def read_pods(pods: Iterable[Mapping[str, Any]]) -> tuple[Pod, ...]:
    """The pods that have a name, sorted by name."""
    found = (_pod(pod) for pod in pods)
    return tuple(sorted((pod for pod in found if pod.name), key=lambda pod: pod.name))


def configs_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """Volume -> ConfigMap that a pod, or a pod template, mounts."""
    found = ((text(one, "name"), text(one, "configMap", "name")) for one in mappings(pod, "spec", "volumes"))
    return {volume: config for volume, config in found if config}


def first_trouble(pods: Iterable[Pod]) -> str:
    """Name and state of the first pod that is not ready and says why; empty when none does."""
    return next((f"{pod.name} {pod.trouble}" for pod in pods if not pod.ready and pod.trouble), "")


def first_ended_by_probe(pods: Iterable[Pod]) -> Pod | None:
    """The first pod whose engine was ended by its startup probe; None without one."""
    return next((pod for pod in pods if pod.outlasted), None)


def _pod(pod: Mapping[str, Any]) -> Pod:
    terminating = bool(text(pod, "metadata", "deletionTimestamp"))
    ready = any(
        text(condition, "type") == "Ready" and text(condition, "status") == "True"
        for condition in mappings(pod, "status", "conditions")
    )
    outlasted = 0 if ready or terminating else startup.outlasted_budget(pod)
    return Pod(
        name=text(pod, "metadata", "name"),
        ready=ready and not terminating,
        running=text(pod, "status", "phase") == "Running" and not terminating,
        terminating=terminating,
        pair=text(pod, "metadata", "labels", names.LABEL_PAIR),
        poked=text(pod, "metadata", "annotations", names.ANNOTATION_POKE),
        trouble="is terminating" if terminating else _late(outlasted) or _trouble(pod),
        outlasted=outlasted,
    )


def _late(outlasted: int) -> str:
    return f"was stopped by its startup probe: it was not ready within {outlasted} s" if outlasted else ""


def _trouble(pod: Mapping[str, Any]) -> str:
    for condition in mappings(pod, "status", "conditions"):
        if text(condition, "type") == "PodScheduled" and text(condition, "status") == "False":
            return _sentence(text(condition, "reason") or "Unschedulable", text(condition, "message"))
    statuses = (*mappings(pod, "status", "initContainerStatuses"), *mappings(pod, "status", "containerStatuses"))
    for container in statuses:
        state = _container_trouble(container)
        if state:
            return state
    phase = text(pod, "status", "phase")
    if phase == "Running":
        return "is starting: its probe does not succeed yet"
    return _sentence(text(pod, "status", "reason") or phase, text(pod, "status", "message"))


def _container_trouble(container: Mapping[str, Any]) -> str:
    waiting = mapping(container, "state", "waiting")
    reason = text(waiting, "reason")
    if reason == "CrashLoopBackOff":
        last = mapping(container, "lastState", "terminated")
        # The waiting message counts the back-off up: it would make a new status every few minutes.
        return _sentence(reason, f"last ended with {text(last, 'reason') or 'Error'}, exit code {last.get('exitCode')}")
    if reason and reason not in ("ContainerCreating", "PodInitializing"):
        return _sentence(reason, text(waiting, "message"))
    terminated = mapping(container, "state", "terminated")
    if terminated and terminated.get("exitCode") not in (0, None):
        return _sentence(text(terminated, "reason") or "Error", f"exit code {terminated.get('exitCode')}")
    return ""


def _sentence(reason: str, message: str) -> str:
    message = " ".join(message.split())[:300]
    return f"{reason}: {message}" if message else reason


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


def read_rollout(deployment: Mapping[str, Any] | None, wanted: int) -> Rollout:
    """The rollout of the Deployment as it is; `wanted` replicas count where the Deployment names none."""
    if deployment is None:
        return Rollout(exists=False, wanted=wanted)
    asked = at(deployment, "spec", "replicas")
    if isinstance(asked, int) and not isinstance(asked, bool) and asked >= 0:
        wanted = asked
    replicas = whole(deployment, "status", "replicas")
    updated = whole(deployment, "status", "updatedReplicas")
    seen = whole(deployment, "status", "observedGeneration") >= whole(deployment, "metadata", "generation")
    complete = (
        seen
        and updated >= wanted
        and replicas <= updated
        and whole(deployment, "status", "availableReplicas") >= wanted
    )
    return Rollout(
        exists=True,
        wanted=wanted,
        replicas=replicas,
        ready=whole(deployment, "status", "readyReplicas"),
        updated=updated,
        complete=complete,
        stalled="" if complete or not seen else _stall(deployment),
        refused="" if complete or not seen else _refusal(deployment),
        completed_at=_completed_at(deployment) if complete else None,
        url=text(deployment, "status", "url"),
        platform=text(deployment, "status", "platform"),
    )


def has_other_scaler(deployment: Mapping[str, Any] | None) -> bool:
    """True when an autoscaler holds the Deployment's replicas through its scale subresource.

    Writing them back would undo it at every reconcile (kserve#3768). `kubectl scale` is a hand edit and is undone.
    """
    return bool(scaler(deployment))


def scaler(deployment: Mapping[str, Any] | None) -> str:
    """Name of the writer, other than kubectl, that holds the replicas through the scale subresource; empty without one.
    A deleted autoscaler is still named: only another writer takes its entry away."""
    for entry in mappings(deployment, "metadata", "managedFields"):
        if text(entry, "subresource") != "scale" or text(entry, "manager").startswith("kubectl"):
            continue
        if at(entry, "fieldsV1", "f:spec", "f:replicas") is not None:
            return text(entry, "manager") or "somebody"
    return ""


def scaling_notices(deployment: Mapping[str, Any] | None) -> tuple[Notice, ...]:
    """One notice where spec.replicas is not used, with the way to have it used again; else none."""
    who = scaler(deployment)
    if not who:
        return ()
    name, namespace = (text(deployment, "metadata", part) for part in ("name", "namespace"))
    message = (
        f"{who} sets the replicas of Deployment {name}, so the operator ignores spec.replicas; point autoscalers at "
        "the SpeculativeDeployment. If that writer no longer exists, set another number than the current one, and "
        f"spec.replicas applies again: kubectl scale -n {namespace} deployment {name} --replicas=NUMBER"
    )
    return (Notice(Reason.SCALED_ELSEWHERE, message),)


def _completed_at(deployment: Mapping[str, Any]) -> float | None:
    for condition in mappings(deployment, "status", "conditions"):
        if text(condition, "type") == "Progressing" and text(condition, "reason") == "NewReplicaSetAvailable":
            return seconds_of(text(condition, "lastUpdateTime"))
    return None


def _refusal(deployment: Mapping[str, Any]) -> str:
    for condition in mappings(deployment, "status", "conditions"):
        if text(condition, "type") == "ReplicaFailure" and text(condition, "status") == "True":
            return text(condition, "message") or text(condition, "reason")
    return ""


def _stall(deployment: Mapping[str, Any]) -> str:
    for condition in mappings(deployment, "status", "conditions"):
        if text(condition, "type") == "Progressing" and text(condition, "reason") == "ProgressDeadlineExceeded":
            return text(condition, "message") or "no progress within the deadline"
    return ""
