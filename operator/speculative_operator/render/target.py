"""What each kind of object that runs pods must answer, and what both kinds of KServe answer alike. The base of the
classes that `targets` has by name.

For KServe a container is written so that neither KServe nor the webhooks of its platform change it. Both kinds, and the
LeaderWorkerSet, are modules of their own; `reconcile.snapshot.kserve` reads back what was written here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import mapping
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.render.environment import RenderError
from speculative_operator.render.podspec import engine_of

Manifest = dict[str, Any]
DASHBOARD = "opendatahub.io/dashboard"
QUEUE = "kueue.x-k8s.io/queue-name"
EXPOSED = "networking.kserve.io/visibility"
"""In the workload of an LLMInferenceService it stands for `spec.router`."""
GENEROUS = 4
"""Limits of processors and memory, in multiples of what is requested: KServe fills in one processor and 2 GiB where
there are none."""
ALL_AT_ONCE: Mapping[str, Any] = {"maxSurge": 0, "maxUnavailable": "100%"}
"""What Recreate is for a kind that has no such strategy."""


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

    def has_pod(self, spec: DeploymentSpec, labels: Mapping[str, Any]) -> bool:
        """True for the labels of a pod of this workload: its platform may make others that bear its labels, too."""
        return True

    def check(self, template: Mapping[str, Any]) -> None:
        """Raises RenderError for a pod template that cannot be written."""

    def write(self, spec: DeploymentSpec, workload: Manifest) -> tuple[Manifest, ...]:
        """The objects that are applied for a rendered workload, in their order."""
        return (workload,)


class KServeTarget(TargetKind):
    """Base of both targets whose pods KServe makes."""

    reaches_pods = True

    def labels(self, spec: DeploymentSpec) -> Mapping[str, str]:
        told = spec.inference_service
        found = {DASHBOARD: "true", EXPOSED: "exposed" if told.exposed else "", QUEUE: told.queue}
        return {key: value for key, value in found.items() if value}

    def engine_in(self, template: Mapping[str, Any]) -> Mapping[str, Any]:
        """The engine's container, of which KServe's object is made. Raises RenderError without it or its image."""
        engine = engine_of(mapping(template, "spec"))
        if engine is None or not isinstance(engine.get("image"), str):
            raise RenderError(
                f"spec.template takes away the container {names.CONTAINER}, or its image; an {self.kind} is made of "
                "it: leave it in"
            )
        return engine

    def annotations_of_dashboard(self, spec: DeploymentSpec, authenticated: str, **more: str) -> dict[str, str]:
        """Annotations by which the platform shows and admits the model. `authenticated`: whether clients need a token,
        as KServe spells it; empty: KServe's default. `more`: annotations of one kind of KServe."""
        told = spec.inference_service
        found = {
            "openshift.io/display-name": told.display_name or spec.name,
            "openshift.io/description": told.description,
            "opendatahub.io/model-type": "generative",
            **more,
            "security.opendatahub.io/enable-auth": authenticated,
            "opendatahub.io/connections": told.connection,
            "opendatahub.io/hardware-profile-name": told.hardware_profile,
            "opendatahub.io/hardware-profile-namespace": told.hardware_profile
            and (told.hardware_profile_namespace or spec.namespace),
        }
        return {key: value for key, value in found.items() if value}


def common_values(workload: Manifest, spec: DeploymentSpec) -> dict[str, Any]:
    """Values of an object that stands for a workload and is named like its SpeculativeDeployment. No such kind has a
    field for the deadline."""
    metadata, body = workload["metadata"], workload["spec"]
    deadline = {names.ANNOTATION_DEADLINE: str(body["progressDeadlineSeconds"])}
    return {
        "name": spec.name,
        "namespace": spec.namespace,
        "labels": metadata["labels"],
        "annotations": {**metadata["annotations"], **deadline},
        "owner": metadata["ownerReferences"][0],
        "replicas": body.get("replicas"),
    }


def steps(strategy: Mapping[str, Any]) -> Mapping[str, Any]:
    """maxSurge and maxUnavailable of a Deployment's strategy."""
    return strategy.get("rollingUpdate") or ALL_AT_ONCE


def strategy_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """The Deployment's strategy that has these `steps`."""
    return {"type": "Recreate"} if found == ALL_AT_ONCE else {"type": "RollingUpdate", "rollingUpdate": found}


def without_name(container: Mapping[str, Any]) -> dict[str, Any]:
    """`container` without its name, which is another in the pods that KServe makes."""
    return {key: value for key, value in container.items() if key != "name"}


def resources(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Requests and limits of each resource that `asked` names: webhooks of the platform fill in missing ones with too
    little for an engine."""
    limits, requests = mapping(asked, "limits"), mapping(asked, "requests")
    more = {name: _generous(str(requests[name])) for name in ("cpu", "memory") if name in requests}
    return {"requests": {**limits, **requests}, "limits": {**more, **limits}}


def _generous(quantity: str) -> str:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", quantity)
    return f"{Decimal(found[1]) * GENEROUS:f}{found[2]}" if found else quantity


def escape(value: Any) -> Any:
    """`value` as a Go template that gives it."""
    return _replace(value, "{{", "{{`{{`}}")


def unescape(value: Any) -> Any:
    """The value that KServe reads from the result of `escape`."""
    return _replace(value, "{{`{{`}}", "{{")


def _replace(value: Any, old: str, new: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _replace(one, old, new) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_replace(one, old, new) for one in value]
    return value.replace(old, new) if isinstance(value, str) else value
