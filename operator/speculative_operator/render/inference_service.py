"""A workload as KServe takes it: a ServingRuntime and an InferenceService of one name (mode Standard, which was called
RawDeployment). KServe makes a Deployment `NAME-predictor` of them. Used by `targets`.

Three ways of KServe shape this (pkg/controller/v1beta1/inferenceservice, release 0.17):

- Labels and annotations of the InferenceService become those of its pods, so each change of one replaces pods. What
  only the operator reads stands on the ServingRuntime, whose metadata stays where it is.
- Containers of both are merged. All that may change is in the InferenceService, so pods change once for one edit.
- The container is a Go template, in which `{{` begins an expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import mapping
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.render.environment import RenderError, render_manifest
from speculative_operator.render.podspec import engine_of
from speculative_operator.render.target import KServeTarget, common_values, escape, resources, without_name

Manifest = dict[str, Any]
SERVICE, RUNTIME = "InferenceService", "ServingRuntime"
CONTAINER = "kserve-container"
MODE = "serving.kserve.io/deploymentMode"
RAW = "RawDeployment"
"""Deployment mode that every release takes; newer ones write `Standard` in its place."""
_AUTOSCALER = "serving.kserve.io/autoscalerClass"
POD_FIELDS = frozenset(
    {
        *("activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy"),
        *("enableServiceLinks", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "hostname"),
        *("imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os", "overhead", "preemptionPolicy"),
        *("priority", "priorityClassName", "readinessGates", "resourceClaims", "resources", "restartPolicy"),
        *("runtimeClassName", "schedulerName", "schedulingGates", "securityContext", "serviceAccount"),
        *("serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain"),
        *("terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes"),
    }
)
"""Fields that a predictor shares with a pod. All others make pods in other ways, unseen by the check of templates."""
CONTAINER_FIELDS = frozenset(
    {
        *("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name"),
        *("ports", "readinessProbe", "resizePolicy", "resources", "securityContext", "startupProbe", "stdin"),
        *("stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices", "volumeMounts"),
        "workingDir",
    }
)
"""Fields that a model shares with a container."""


class InferenceServiceTarget(KServeTarget):
    """The target whose pods KServe makes for an InferenceService."""

    kind = SERVICE
    container = CONTAINER

    def url(self, spec: DeploymentSpec) -> str:
        return f"http://{names.kserve_deployment(spec.name)}.{spec.namespace}.svc"

    def annotations(self, spec: DeploymentSpec) -> Mapping[str, str]:
        # The number of replicas is the object's, which has a scale subresource for autoscalers.
        own = {MODE: RAW, _AUTOSCALER: "none"}
        return self.annotations_of_dashboard(spec, "true" if spec.inference_service.authenticated else "", **own)

    def has_pod(self, spec: DeploymentSpec, labels: Mapping[str, Any]) -> bool:
        """False for pods of a `spec.canary` that somebody adds to the InferenceService: from release 0.20 on KServe
        makes Deployments of its own for them, with the labels of all."""
        own = f"isvc.{names.kserve_deployment(spec.name)}"
        return bool(labels.get("app", own) == own)

    def check(self, template: Mapping[str, Any]) -> None:
        pod, engine = mapping(template, "spec"), self.engine_in(template)
        path = f"spec.template.spec.containers[{names.CONTAINER}]"
        for where, found, known in (("spec.template.spec", pod, POD_FIELDS), (path, engine, CONTAINER_FIELDS)):
            other = min(set(found) - known, default="")
            if other:
                message = f"{where}.{other} is no field of a pod; in an InferenceService it would say something else"
                raise RenderError(f"{message}: remove it")

        annotations = mapping(template, "metadata", "annotations")
        own = {MODE: (RAW, "Standard"), _AUTOSCALER: ("none",)}
        for key in sorted(annotations):
            if key.startswith("serving.kserve.io/") and annotations[key] not in own.get(key, ()):
                raise RenderError(
                    f"spec.template.metadata.annotations[{key}] is {annotations[key]!r}: it tells KServe how pods are "
                    "made, which the operator has to know; remove it"
                )

    def write(self, spec: DeploymentSpec, workload: Manifest) -> tuple[Manifest, ...]:
        """The runtime first: the table that pods are made for is written there, and an operator whose predecessor was
        killed in between must find it."""
        template = workload["spec"]["template"]
        engine = engine_of(template["spec"]) or {}
        common = {**common_values(workload, spec), "format": spec.engine.type.value}
        runtime = {
            **common,
            "labels": {**common["labels"], "opendatahub.io/dashboard": "true"},
            "annotations": {**_of_runtime(spec), **common["annotations"]},
            "pod_annotations": _of_monitoring(spec, template),
            "container": CONTAINER,
            "image": engine["image"],
            "command": engine.get("command"),
            "port": spec.port,
        }
        others = [one for one in template["spec"]["containers"] if one is not engine]
        pod = {key: value for key, value in template["spec"].items() if key != "containers"}
        service = {
            **common,
            "labels": template["metadata"]["labels"],
            "annotations": mapping(template["metadata"], "annotations"),
            "strategy": workload["spec"]["strategy"],
            "container": escape({**without_name(engine), "resources": resources(mapping(engine, "resources"))}),
            "pod": {**pod, "containers": others} if others else pod,
        }
        return render_manifest("servingruntime", runtime), render_manifest("inferenceservice", service)


def _of_runtime(spec: DeploymentSpec) -> dict[str, str]:
    """Annotations by which the dashboard tells one ServingRuntime from another."""
    return {
        "openshift.io/display-name": f"{spec.engine.type} with speculative decoding: {spec.name}",
        "opendatahub.io/template-display-name": "Speculative decoding",
        "opendatahub.io/runtime-version": f"v{spec.engine.version}",
        "opendatahub.io/recommended-accelerators": f'["{spec.accelerator.resource}"]',
        "opendatahub.io/apiProtocol": "REST",
    }


def _of_monitoring(spec: DeploymentSpec, template: Mapping[str, Any]) -> dict[str, str]:
    """Annotations by which the platform finds the metrics of pods."""
    found = mapping(template["metadata"], "annotations")
    port, path = (str(found.get(f"prometheus.io/{name}") or "") for name in ("port", "path"))
    kept = {"prometheus.io/port": port, "prometheus.io/path": path}
    known = {"opendatahub.io/kserve-runtime": "vllm"} if spec.engine.type.value == "vLLM" else {}
    return known | {key: value for key, value in kept.items() if value}
