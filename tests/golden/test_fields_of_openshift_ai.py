"""What OpenShift AI itself writes for a model on vLLM, against what the operator writes for the same: field by field
equal, or here with the reason why not.

Its sources are public: opendatahub-io/odh-model-controller, config/runtimes/vllm-cuda-template.yaml (57b43aa), for the
ServingRuntime; opendatahub-io/odh-dashboard (b9d0963), which copies it for each model, adds /dev/shm and writes the
InferenceService; opendatahub-io/opendatahub-operator, internal/webhook (0c0c991), for what annotations stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
import yaml
from tests.golden.case import Case

IMAGE = "registry.redhat.io/rhaiis/vllm-cuda-rhel9:3"
PLATFORM = f"""
kind: ServingRuntime
apiVersion: serving.kserve.io/v1alpha1
metadata:
  name: granite
  labels: {{opendatahub.io/dashboard: "true"}}
  annotations:
    openshift.io/display-name: vLLM NVIDIA GPU ServingRuntime for KServe
    opendatahub.io/template-name: vllm-cuda-runtime
    opendatahub.io/template-display-name: vLLM NVIDIA GPU ServingRuntime for KServe
    opendatahub.io/runtime-version: v0.21.0
    opendatahub.io/recommended-accelerators: '["nvidia.com/gpu"]'
    opendatahub.io/apiProtocol: REST
spec:
  annotations:
    opendatahub.io/kserve-runtime: vllm
    prometheus.io/port: "8080"
    prometheus.io/path: /metrics
  multiModel: false
  supportedModelFormats: [{{name: vLLM, autoSelect: true}}]
  containers:
  - name: kserve-container
    image: {IMAGE}
    command: [python, -m, vllm.entrypoints.openai.api_server]
    args: ["--port=8080", "--model=/mnt/models", "--served-model-name={{{{.Name}}}}"]
    env: [{{name: HF_HOME, value: /tmp/hf_home}}]
    ports: [{{containerPort: 8080, protocol: TCP}}]
    volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
  volumes: [{{name: shm, emptyDir: {{medium: Memory, sizeLimit: 2Gi}}}}]
---
kind: InferenceService
apiVersion: serving.kserve.io/v1beta1
metadata:
  name: granite
  labels:
    opendatahub.io/dashboard: "true"
    networking.kserve.io/visibility: exposed
    opendatahub.io/genai-asset: "true"
    kueue.x-k8s.io/queue-name: team-a
  annotations:
    openshift.io/display-name: Granite
    openshift.io/description: Answers for the support desk
    opendatahub.io/model-type: generative
    serving.kserve.io/deploymentMode: RawDeployment
    security.opendatahub.io/enable-auth: "true"
    opendatahub.io/connections: models
    opendatahub.io/connection-path: granite-8b
    opendatahub.io/hardware-profile-name: gpu
    opendatahub.io/hardware-profile-namespace: redhat-ods-applications
spec:
  predictor:
    deploymentStrategy: {{type: Recreate}}
    minReplicas: 1
    maxReplicas: 1
    model:
      modelFormat: {{name: vLLM}}
      runtime: granite
      storageUri: oci://registry.example/granite-8b
      args: ["--speculative-config={{}}"]
"""
OBJECT = f"""
metadata: {{name: granite}}
spec:
  target: InferenceService
  inferenceService:
    displayName: Granite
    description: Answers for the support desk
    exposed: true
    authenticated: true
    connection: models
    hardwareProfile: {{name: gpu, namespace: redhat-ods-applications}}
    queue: team-a
  verifier: {{model: "pvc://models/granite-8b"}}
  speculator: {{method: eagle3, model: "pvc://models/granite-8b-eagle3"}}
  engine: {{version: 0.21.0, image: "{IMAGE}"}}
  weights: {{check: Disabled}}
  rollout: {{strategy: Recreate}}
  template: {{metadata: {{labels: {{opendatahub.io/genai-asset: "true"}}}}}}
"""

OTHERWISE: Mapping[str, str] = {
    "ServingRuntime metadata.annotations[openshift.io/display-name]": "a text, with the model's name in it",
    "ServingRuntime metadata.annotations[opendatahub.io/template-name]": (
        "the runtime is of no Template; the dashboard would compare releases with it, or say that it was removed"
    ),
    "ServingRuntime metadata.annotations[opendatahub.io/template-display-name]": "a text, as that template's",
    "ServingRuntime spec.supportedModelFormats[vLLM].autoSelect": (
        "other models of the project would get this model's runtime unasked"
    ),
    "ServingRuntime spec.containers[kserve-container].command": "vLLM's own images have python3 alone",
    "ServingRuntime spec.containers[kserve-container].args": (
        "in the InferenceService: all that may change is there, so that one edit is one rollout"
    ),
    "ServingRuntime spec.containers[kserve-container].env[HF_HOME]": "there too, in a volume",
    "ServingRuntime spec.containers[kserve-container].volumeMounts[/dev/shm]": "there too",
    "ServingRuntime spec.volumes[shm]": "there too: memory of the same size",
    "InferenceService metadata.annotations[opendatahub.io/connection-path]": (
        "a folder in a bucket, from which KServe would download a model into each pod; the operator pins and shares "
        "both models, and a connection gives a pull secret only"
    ),
    "InferenceService spec.predictor.model.storageUri": "as the path: both models are mounted instead",
    "InferenceService spec.predictor.model.args": "of this object, each flag and value an item",
}
"""Beginnings of fields of the platform's objects that ours have otherwise, or do not have."""

MORE: Mapping[str, str] = {
    "ServingRuntime metadata.namespace": "stated",
    "ServingRuntime metadata.ownerReferences": "it goes with its SpeculativeDeployment",
    "ServingRuntime metadata.labels[app.kubernetes.io/": "what Kubernetes recommends",
    "ServingRuntime metadata.labels[serving.speculative.dev/": "by which the operator finds it",
    "ServingRuntime metadata.annotations[serving.speculative.dev/": "what only the operator reads",
    "InferenceService metadata.namespace": "stated",
    "InferenceService metadata.ownerReferences": "it goes with its SpeculativeDeployment",
    "InferenceService metadata.labels[app.kubernetes.io/": "what Kubernetes recommends",
    "InferenceService metadata.labels[serving.speculative.dev/": "by which the operator finds it and its pods",
    "InferenceService metadata.annotations[prometheus.io/": "where metrics are, for any Prometheus",
    "InferenceService metadata.annotations[serving.kserve.io/autoscalerClass]": (
        "none: the number of replicas is the SpeculativeDeployment's, which has a scale subresource for autoscalers"
    ),
    "InferenceService spec.predictor.model.image": "with the arguments that it takes: one edit is one rollout",
    "InferenceService spec.predictor.model.command": "as the image",
    "InferenceService spec.predictor.model.ports": "named, for probes",
    "InferenceService spec.predictor.model.env": "caches and HOME in a volume, for a user without a home",
    "InferenceService spec.predictor.model.resources": "the webhooks would fill in too little for an engine",
    "InferenceService spec.predictor.model.startupProbe": "loading takes long",
    "InferenceService spec.predictor.model.readinessProbe": "no request before the engine answers",
    "InferenceService spec.predictor.model.livenessProbe": "an engine that is stuck is restarted",
    "InferenceService spec.predictor.model.lifecycle.preStop": (
        "10 s in which proxies hear that the pod goes; KServe's template for language models waits 15"
    ),
    "InferenceService spec.predictor.model.securityContext": "what restricted-v2 asks for",
    "InferenceService spec.predictor.model.volumeMounts": "caches, /dev/shm and both models",
    "InferenceService spec.predictor.volumes": "the same",
    "InferenceService spec.predictor.securityContext": "what restricted-v2 asks for; no user and no group",
    "InferenceService spec.predictor.automountServiceAccountToken": "an engine has no business with the API",
    "InferenceService spec.predictor.enableServiceLinks": "variables of Services that look like vLLM's",
    "InferenceService spec.predictor.terminationGracePeriodSeconds": "the engine ends its answers",
}
"""Beginnings of fields that ours have beside those of the platform."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything below `value`. Members of lists go by their name; a list of texts is one value."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}[{key}]" if "/" in key else f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for inner in value:
            mark = inner.get("mountPath") or inner.get("name") or inner.get("containerPort")
            yield from leaves(inner, f"{path}[{mark}]")
    else:
        yield path, value


def fields(manifests: Any) -> dict[str, Any]:
    return {f"{one['kind']} {path}": value for one in manifests for path, value in leaves(one)}


def render_object(**spec: Any) -> list[dict[str, Any]]:
    """What the operator writes for OBJECT: runtime and service."""
    body = yaml.safe_load(OBJECT)
    body["spec"] |= spec
    capabilities = {"inference_service": True, "assigns_uids": True}
    found = Case(body, {"table": [[1, 256, 3]], "capabilities": capabilities}).children()
    return [one for one in found if one["kind"] in ("ServingRuntime", "InferenceService")]


THEIRS = fields(yaml.safe_load_all(PLATFORM))
OURS = fields(render_object())


def test_a_field_of_the_platform_is_ours_too_or_there_is_a_reason() -> None:
    same = {field: field in OURS and OURS[field] == theirs for field, theirs in THEIRS.items()}
    assert [field for field in THEIRS if same[field] == field.startswith(tuple(OTHERWISE))] == []


def test_every_other_field_of_ours_has_a_reason() -> None:
    assert [one for one in OURS if one not in THEIRS and not one.startswith(tuple(MORE))] == []


@pytest.mark.parametrize(("reasons", "known"), [(OTHERWISE, THEIRS), (MORE, OURS)])
def test_no_reason_is_told_for_what_is_not_there(reasons: Mapping[str, str], known: Mapping[str, Any]) -> None:
    assert [beginning for beginning in reasons if not any(one.startswith(beginning) for one in known)] == []


def test_what_stands_elsewhere_is_there() -> None:
    """Shared memory, the writable home of the hub's files, and port, model and name among the arguments."""
    pod = "InferenceService spec.predictor"
    assert OURS[f"{pod}.model.volumeMounts[/dev/shm].name"] == "dshm"
    assert OURS[f"{pod}.volumes[dshm].emptyDir.medium"] == "Memory"
    assert OURS[f"{pod}.volumes[dshm].emptyDir.sizeLimit"] == "2Gi"
    assert OURS[f"{pod}.model.env[HF_HOME].value"].startswith("/var/cache/speculative/")
    args = OURS[f"{pod}.model.args"]
    assert args[0] == "--model=/mnt/models/models/granite-8b"
    assert {("--port", "8080"), ("--served-model-name", "granite")} <= set(pairwise(args))
    assert "--speculative-config" in args


def test_replicas_are_fixed_for_kserve() -> None:
    """Whatever their number: KServe would make an autoscaler of two numbers that differ."""
    for replicas in (1, 3):
        found = fields(render_object(replicas=replicas))
        assert {found[f"InferenceService spec.predictor.{one}Replicas"] for one in ("min", "max")} == {replicas}
