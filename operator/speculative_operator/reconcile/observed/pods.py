"""What serving pods and the workload tell of themselves that people should hear first."""

from __future__ import annotations

from collections.abc import Iterable

from speculative_operator.domain import names
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.snapshot.pods import Pod


def first_trouble(pods: Iterable[Pod]) -> str:
    """Name and state of the first pod that is not ready and says why; empty when none does."""
    return next((f"{pod.name} {pod.trouble}" for pod in pods if not pod.ready and pod.trouble), "")


def first_ended_by_probe(pods: Iterable[Pod]) -> Pod | None:
    """The first pod whose engine was ended by its startup probe; None without one."""
    return next((pod for pod in pods if pod.outlasted), None)


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
