"""What each kind of object that runs pods must answer. The base of the classes that `targets` has by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.spec import DeploymentSpec

Manifest = dict[str, Any]


class TargetKind:
    """One target, with the answers of a Deployment; other targets override them. Every method is pure."""

    kind = "Deployment"
    """Kind of the object that people look at."""
    container = names.CONTAINER
    """Name of the engine's container in the pods."""
    reaches_pods = False
    """True where the platform makes the Service, and says who reaches the pods."""

    def url(self, spec: DeploymentSpec) -> str:
        """URL of the Service by its name, for use before the platform reports one."""
        return f"http://{names.child(spec.name)}.{spec.namespace}.svc:{spec.port}"

    def labels(self, spec: DeploymentSpec) -> Mapping[str, str]:
        """Labels of the pods beside the labels that every target sets."""
        return {}

    def annotations(self, spec: DeploymentSpec) -> Mapping[str, str]:
        """Annotations of the pods beside the annotations that every target sets."""
        return {}

    def group(self, spec: DeploymentSpec) -> Mapping[str, str]:
        """Labels of all pods that serve together, where a replica is several pods; empty where it is one pod."""
        return {}

    def check(self, template: Mapping[str, Any]) -> None:
        """Raises RenderError for a pod template that cannot be written."""

    def write(self, spec: DeploymentSpec, workload: Manifest) -> tuple[Manifest, ...]:
        """The objects that are applied for a rendered workload, in their order."""
        return (workload,)
