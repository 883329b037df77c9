"""How far the Deployment is: replicas, whether the current template runs everywhere, if it is stuck, who scales it.

Used by `conditions`, `plan` and `deciding`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain.reading import at, mappings, seconds_of, text, whole
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.base import Notice


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
