"""A stand-in for what KServe and the webhooks of OpenShift AI do with an LLMInferenceService, written after
pkg/controller/v1alpha2/llmisvc of KServe 0.20, which publishes models by a longer name, as 0.19 does; see
tests/kserve.py, whose `Controller` this one's is."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from itertools import takewhile
from typing import Any

from kubernetes import client
from tests import kserve
from tests.certificates import self_signed

Json = dict[str, Any]
_KEYS = {
    "containers": "name", "initContainers": "name", "env": "name", "ports": "containerPort",
    "volumeMounts": "mountPath", "volumes": "name", "imagePullSecrets": "name",
}  # fmt: skip
_PASSED_ON = ("k8s.v1.cni.cncf.io", "kueue.x-k8s.io", "prometheus.io")
_HANDLERS = ("exec", "grpc", "httpGet", "sleep", "tcpSocket")
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
ROUTED = "serving.kserve.io/model-based-routing-enabled"
"""Annotation of KServe's template: requests for the published name are sent to the pods as they are. No pod has it."""


def template_of_kserve(name: str, tls: bool) -> Json:
    """What stands in KServe's own template (config-llm-template), in outline."""
    probe = {"httpGet": {"path": "/health", "port": 8000, "scheme": "HTTPS" if tls else "HTTP"}, "periodSeconds": 10}
    main = {
        "name": "main",
        "image": "registry.example.com/of-the-platform:1",
        "command": ["/bin/bash", "-c", 'eval "exec vllm serve /mnt/models ${VLLM_ADDITIONAL_ARGS} $@"', "--"],
        "ports": [{"containerPort": 8000, "protocol": "TCP"}],
        "env": [{"name": "HOME", "value": "/home"}, {"name": "HF_HUB_CACHE", "value": "/models"}],
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sleep", "15"]}}},
        **{one: deepcopy(probe) for one in _PROBES},
        "volumeMounts": [
            {"name": "home", "mountPath": "/home"},
            {"name": "tmp-dir", "mountPath": "/tmp"},
            {"name": "tls-certs", "mountPath": "/var/run/kserve/tls", "readOnly": True},
        ],
    }
    return {
        "containers": [main],
        "terminationGracePeriodSeconds": 60,
        "volumes": [
            {"name": "home", "emptyDir": {}},
            {"name": "tmp-dir", "emptyDir": {}},
            {"name": "tls-certs", "secret": {"secretName": f"{name}-kserve-self-signed-certs"}},
        ],
    }


def published(service: Mapping[str, Any]) -> list[str]:
    """The names by which KServe has clients ask for the model: a second one, unless the object has its annotation say
    that pods do not serve it."""
    name = service["spec"]["model"]["name"]
    routed = {ROUTED: "true", **service["spec"].get("annotations", {})}[ROUTED]
    return [name, *([f"publishers/{service['metadata']['namespace']}/models/{name}"] if routed == "true" else [])]


def served(container: Mapping[str, Any]) -> list[str]:
    """The names for which vLLM in the container answers; others get a 404."""
    after = container["args"][container["args"].index("--served-model-name") + 1 :]
    return list(takewhile(lambda one: not one.startswith("-"), after))


def deployment_of(service: Mapping[str, Any], *, tls: bool = False) -> Json:
    """The Deployment that KServe makes of an LLMInferenceService."""
    metadata, spec = service["metadata"], kserve.executed(deepcopy(service["spec"]))
    name = metadata["name"]
    assert spec["storageInitializer"] == {"enabled": False}, "KServe would fetch the model a second time"
    pod = merged(template_of_kserve(name, tls), spec["template"])
    for container in pod["containers"]:
        _has_one_handler_each(container)
        if container["name"] == "main" and "--served-model-name" in container["args"]:
            missing = set(published(service)) - set(served(container))
            assert not missing, f"KServe sends requests for {missing}, which the engine answers with 404"
    # One map, as in KServe: what is added to the labels of pods is added to the selector.
    labels = {
        "app.kubernetes.io/component": "llminferenceservice-workload",
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/part-of": "llminferenceservice",
        "kserve.io/component": "workload",
        "llm-d.ai/role": "both",
        **_of_prefix(metadata.get("labels", {})),
        **spec.get("labels", {}),
    }
    annotations = {**_of_prefix(metadata.get("annotations", {})), **spec.get("annotations", {})}
    annotations.pop(ROUTED, None)
    body: Json = {
        "selector": {"matchLabels": dict(labels)},
        "template": {"metadata": {"labels": dict(labels), "annotations": annotations}, "spec": pod},
    }
    if "replicas" in spec:
        body["replicas"] = spec["replicas"]
    if "rolloutStrategy" in spec:
        body["strategy"] = {"type": "RollingUpdate", "rollingUpdate": spec["rolloutStrategy"]}
    owner = {
        "apiVersion": service["apiVersion"], "kind": "LLMInferenceService", "name": name, "uid": metadata["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    meta = {
        "name": f"{name}-kserve", "namespace": metadata["namespace"], "labels": dict(labels),
        "ownerReferences": [owner],
    }  # fmt: skip
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": body}


def merged(base: Any, over: Any, field: str = "") -> Any:
    """`over` laid over `base` as a strategic merge patch."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {**base, **{key: merged(base.get(key), value, key) for key, value in over.items()}}
    key = _KEYS.get(field)
    if key is None or not isinstance(base, list):
        return over
    named = {one[key]: one for one in base}
    for one in over:
        named[one[key]] = merged(named.get(one[key]), one)
    return list(named.values())


def _has_one_handler_each(container: Json) -> None:
    """As the API server would ask of a Deployment."""
    handlers = [container.get(one, {}) for one in _PROBES] + [container.get("lifecycle", {}).get("preStop", {})]
    for one in handlers:
        assert len(one.keys() & set(_HANDLERS)) <= 1, f"may not specify more than 1 handler type: {one}"


def _of_prefix(found: Mapping[str, str]) -> Json:
    return {key: value for key, value in found.items() if key.startswith(_PASSED_ON)}


def status_of(service: Mapping[str, Any], ready: bool, *, tls: bool = False) -> Json:
    """What KServe reports of the LLMInferenceService."""
    name, namespace = (service["metadata"][key] for key in ("name", "namespace"))
    truth = "True" if ready else "False"
    conditions = [
        {"type": "MainWorkloadReady", "status": truth, "reason": "" if ready else "MinimumReplicasUnavailable"},
        {"type": "PresetsCombined", "status": "True"},
        {"type": "Ready", "status": truth},
    ]
    url = f"{'https' if tls else 'http'}://{name}-kserve-workload-svc.{namespace}.svc.cluster.local"
    models = [{"name": one} for one in published(service)[1:]]
    return {"addresses": [{"url": url, "models": models}], "conditions": conditions}


def admitted(service: Mapping[str, Any]) -> Json:
    """The LLMInferenceService as the platform's webhooks store it."""
    found = deepcopy(dict(service))
    kserve.fill_in(found["metadata"].setdefault("annotations", {}), found["spec"]["template"])
    return found


def service_of(deployment: Mapping[str, Any]) -> Json:
    """The Service that KServe makes beside it, which bears the labels of pods."""
    owner, meta = deployment["metadata"]["ownerReferences"], deployment["metadata"]
    names = ("app.kubernetes.io/name", "app.kubernetes.io/part-of", "kserve.io/component")
    selector = {key: meta["labels"][key] for key in names}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"{meta['name']}-workload-svc", "namespace": meta["namespace"], "labels": meta["labels"],
            "ownerReferences": owner,
        },
        "spec": {"selector": selector, "ports": [{"name": "http", "port": 8000, "targetPort": 8000}]},
    }  # fmt: skip


def certificates_of(deployment: Mapping[str, Any]) -> Json:
    """The Secret that KServe makes beside it."""
    meta = deployment["metadata"]
    mine = {"name": f"{meta['name']}-self-signed-certs", **{key: meta[key] for key in ("namespace", "ownerReferences")}}
    certificate, key = self_signed(f"{meta['name']}-workload-svc.{meta['namespace']}.svc")
    content = {"tls.crt": certificate, "tls.key": key}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": mine, "stringData": content}


class Controller(kserve.Controller):
    """The stand-in at work in one namespace."""

    version, plural = "v1alpha2", "llminferenceservices"
    tls = False
    """Whether KServe is told to encrypt what it sends to pods (enableLLMInferenceServiceTLS)."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        super().__init__(api, namespace)
        self._certificates: dict[str, Json] = {}

    def admitted(self, service: Json) -> Json:
        return admitted(service)

    def made_of(self, service: Json) -> list[Json]:
        made = deployment_of(service, tls=self.tls)
        name = made["metadata"]["name"]
        self._certificates.setdefault(name, certificates_of(made))
        return [made, service_of(made), self._certificates[name]]

    def status_of(self, service: Json, ready: bool) -> Json:
        return status_of(service, ready, tls=self.tls)
