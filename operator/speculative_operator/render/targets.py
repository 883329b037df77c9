"""What runs the pods: one renderer for each `spec.target`. Used by `values`, `manifests` and `reconcile.targets`.

The operator renders, compares and judges one form, the Deployment of `templates/deployment.yaml.j2`, called the
workload. A target writes it as the objects that a cluster runs pods by; `reconcile.targets` reads it back from them. So
tables, pairs, upgrades and rollouts know no targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from speculative_operator.domain import names
from speculative_operator.domain.spec import DeploymentSpec, Target
from speculative_operator.render.inference_service import InferenceServiceTarget
from speculative_operator.render.leader_worker_set import LeaderWorkerSetTarget
from speculative_operator.render.llm_inference_service import LLMInferenceServiceTarget

Manifest = dict[str, Any]


class TargetKind(Protocol):
    """One target. Every method is pure."""

    kind: str
    """Kind of the object that people look at."""
    reaches_pods: bool
    """True where the platform makes the Service, and says who reaches the pods."""

    def url(self, spec: DeploymentSpec) -> str:
        """Where the Service is, before anybody has said so."""

    def labels(self, spec: DeploymentSpec) -> Mapping[str, str]:
        """Labels of the pods beside those of every target."""

    def annotations(self, spec: DeploymentSpec) -> Mapping[str, str]:
        """Annotations of the pods, likewise."""

    def group(self, spec: DeploymentSpec) -> Mapping[str, str]:
        """Labels of all pods that serve together, where a replica is several pods; empty where it is one."""

    def check(self, template: Mapping[str, Any]) -> None:
        """Raises RenderError for a pod template that cannot be written."""

    def write(self, spec: DeploymentSpec, workload: Manifest) -> tuple[Manifest, ...]:
        """The objects that are applied for a rendered workload, in their order."""


class DeploymentTarget:
    """The workload as it is."""

    kind = "Deployment"
    reaches_pods = False

    def url(self, spec: DeploymentSpec) -> str:
        return f"http://{names.child(spec.name)}.{spec.namespace}.svc:{spec.port}"

    def labels(self, spec: DeploymentSpec) -> Mapping[str, str]:
        return {}

    def annotations(self, spec: DeploymentSpec) -> Mapping[str, str]:
        return {}

    def group(self, spec: DeploymentSpec) -> Mapping[str, str]:
        return {}

    def check(self, template: Mapping[str, Any]) -> None:
        return None

    def write(self, spec: DeploymentSpec, workload: Manifest) -> tuple[Manifest, ...]:
        return (workload,)


TARGETS: Mapping[Target, TargetKind] = {
    Target.DEPLOYMENT: DeploymentTarget(),
    Target.INFERENCE_SERVICE: InferenceServiceTarget(),
    Target.LLM_INFERENCE_SERVICE: LLMInferenceServiceTarget(),
    Target.LEADER_WORKER_SET: LeaderWorkerSetTarget(),
}


def target_of(spec: DeploymentSpec) -> TargetKind:
    """The target of an object; that of a Deployment for one that is refused because of its target."""
    return TARGETS.get(spec.target, TARGETS[Target.DEPLOYMENT])
