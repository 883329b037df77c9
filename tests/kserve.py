"""A stand-in for KServe and for the webhooks of OpenShift AI, written after what they do to these objects: mode
Standard of KServe 0.17 (pkg/controller/v1beta1/inferenceservice), hardware profiles and connections of
opendatahub-operator (internal/webhook). It is neither; no test here shows that the real ones agree.

`deployment_of` and the webhooks are functions of objects; `Controller` runs them beside a real API server.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from threading import Event
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from devcluster import Cluster

Json = dict[str, Any]
GROUP = "serving.kserve.io"
DEFINITIONS = Path(__file__).parent / "fixtures" / "kserve" / "definitions.json.gz"
MODE = "serving.kserve.io/deploymentMode"
_COMPONENT = ("minReplicas", "maxReplicas", "deploymentStrategy", "model", "labels", "annotations")
TEMPLATES = ("vllm-cuda-runtime", "vllm-cuda-runtime-fast-1", "vllm-cuda-runtime-fast-2", "vllm-rocm-runtime")
"""Runtimes for which the platform has a Template (odh-model-controller, config/runtimes/vllm and runtimes-fast-1)."""
_MODEL = ("modelFormat", "runtime", "storageUri", "protocolVersion")


def deployment_of(service: Mapping[str, Any], runtime: Mapping[str, Any]) -> Json:
    """The Deployment that KServe makes of an InferenceService and its ServingRuntime."""
    named = runtime["metadata"].get("annotations", {}).get("opendatahub.io/template-name")
    assert named is None or named in TEMPLATES, f"the dashboard would say of {named}: Template removed"
    name, namespace = (service["metadata"][key] for key in ("name", "namespace"))
    predictor = service["spec"]["predictor"]
    labels = {
        **service["metadata"].get("labels", {}),
        "serving.kserve.io/inferenceservice": name,
        "component": "predictor",
        "app": f"isvc.{name}-predictor",
    }
    annotations = {**runtime["spec"].get("annotations", {}), **service["metadata"].get("annotations", {})}
    annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)  # as KServe does
    pod = {key: deepcopy(value) for key, value in predictor.items() if key not in _COMPONENT}
    pod["containers"] = [_container(service, runtime), *pod.get("containers", [])]
    spec: Json = {
        "selector": {"matchLabels": {"app": f"isvc.{name}-predictor"}},
        "strategy": predictor["deploymentStrategy"],
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
    }
    if annotations.get("serving.kserve.io/autoscalerClass") == "none":
        spec["replicas"] = predictor["minReplicas"]
    owner = {
        "apiVersion": service["apiVersion"], "kind": "InferenceService", "name": name,
        "uid": service["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    meta = {
        "name": f"{name}-predictor", "namespace": namespace, "labels": labels, "annotations": annotations,
        "ownerReferences": [owner],
    }  # fmt: skip
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def status_of(service: Mapping[str, Any], ready: bool) -> Json:
    """What KServe reports of the InferenceService."""
    name, namespace = (service["metadata"][key] for key in ("name", "namespace"))
    truth = "True" if ready else "False"
    conditions = [
        {"type": "PredictorReady", "status": truth, "reason": "" if ready else "MinimumReplicasUnavailable"},
        {"type": "Ready", "status": truth},
    ]
    return {"url": f"http://{name}-predictor.{namespace}.svc.cluster.local", "conditions": conditions}


def admitted(service: Mapping[str, Any]) -> Json:
    """The InferenceService as the platform's webhooks store it: each fills in what it finds missing."""
    found = deepcopy(dict(service))
    annotations = found["metadata"].setdefault("annotations", {})
    if annotations.get(MODE) == "RawDeployment":
        annotations[MODE] = "Standard"
    predictor = found["spec"]["predictor"]
    resources = predictor["model"].setdefault("resources", {})
    for kind, defaults in (("requests", {"cpu": "1", "memory": "2Gi"}), ("limits", {"cpu": "1", "memory": "2Gi"})):
        resources[kind] = {**defaults, **resources.get(kind, {})}
    fill_in(annotations, predictor)
    return found


def fill_in(annotations: Mapping[str, str], pod: Json) -> None:
    """What webhooks add to a pod's spec by the annotations of its object."""
    if "opendatahub.io/hardware-profile-name" in annotations:
        pod["nodeSelector"] = {**pod.get("nodeSelector", {}), "accelerator": "h100"}
        taint = {"key": "nvidia.com/gpu", "operator": "Exists"}
        tolerations = pod.setdefault("tolerations", [])
        tolerations += [] if taint in tolerations else [taint]
    if "opendatahub.io/connections" in annotations:
        pulls = pod.setdefault("imagePullSecrets", [])
        secret = {"name": annotations["opendatahub.io/connections"]}
        pulls += [] if secret in pulls else [secret]


def _container(service: Mapping[str, Any], runtime: Mapping[str, Any]) -> Json:
    """Both containers merged, then read as a Go template."""
    (base,) = runtime["spec"]["containers"]
    model = service["spec"]["predictor"]["model"]
    own = {key: value for key, value in model.items() if key not in _MODEL}
    merged = {**base, **own, "args": [*base.get("args", []), *own.get("args", [])]}
    known = {"name": "INFERENCE_SERVICE_NAME", "value": service["metadata"]["name"]}
    merged["env"] = [*own.get("env", []), known]
    return dict(executed(merged))


def executed(value: Any) -> Any:
    """Of Go's templates, the one expression that may be there: a literal in back quotes."""
    if isinstance(value, Mapping):
        return {key: executed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [executed(one) for one in value]
    if not isinstance(value, str):
        return value
    text = ""
    while "{{" in value:
        before, _, rest = value.partition("{{")
        expression, _, value = rest.partition("}}")
        assert expression[:1] == expression[-1:] == "`", f"KServe would fail to execute {expression!r}"
        text += before + expression[1:-1]
    return text + value


def definitions() -> list[Json]:
    """KServe's definitions (tests/fixtures/kserve)."""
    found: list[Json] = json.loads(gzip.decompress(DEFINITIONS.read_bytes()))
    return found


def install(cluster: Cluster) -> None:
    """Apply the definitions, and wait until they are served."""
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions()})
    cluster.kubectl("apply", "--server-side", "-f", "-", input=body)
    for _ in range(300):
        found = cluster.kubectl("get", "inferenceservices,servingruntimes,llminferenceservices", "-A", check=False)
        if found.returncode == 0:
            return
        time.sleep(0.2)
    raise AssertionError(f"KServe's kinds are not served: {found.stderr}")


@contextmanager
def gone() -> Iterator[None]:
    """Whatever is done to an object that is deleted meanwhile is needless; where somebody wrote to it, the next round
    looks again."""
    try:
        yield
    except ApiException as error:
        if error.status not in (404, 409):
            raise


class Controller:
    """The stand-in at work in one namespace. Webhooks are played by a second writer, who puts back what they would
    fill in whenever it is gone: were it removed again and again, `filled_in` would grow."""

    version, plural = "v1beta1", "inferenceservices"

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._custom, self._apps, self._core = (
            client.CustomObjectsApi(api),
            client.AppsV1Api(api),
            client.CoreV1Api(api),
        )
        self._namespace = namespace
        self._made: dict[str, list[Json]] = {}
        self.filled_in = 0

    def run(self, stop: Event) -> None:
        """Look at every object again and again."""
        while not stop.wait(0.3):
            for service in self._listed(self.version, self.plural):
                with gone():
                    self.reconcile(service)

    def admitted(self, service: Json) -> Json:
        """The object as webhooks store it."""
        return admitted(service)

    def made_of(self, service: Json) -> list[Json]:
        """What KServe makes of the object, a Deployment first; nothing as long as it cannot."""
        runtimes = {one["metadata"]["name"]: one for one in self._listed("v1alpha1", "servingruntimes")}
        runtime = runtimes.get(service["spec"]["predictor"]["model"]["runtime"])
        made = [] if runtime is None else [deployment_of(service, runtime)]
        return [*made, *map(service_of, made)]

    def status_of(self, service: Json, ready: bool) -> Json:
        """What KServe reports of the object."""
        return status_of(service, ready)

    def reconcile(self, service: Json) -> None:
        """One round for one object."""
        name = service["metadata"]["name"]
        wanted = self.admitted(service)
        if wanted != service:
            self.filled_in += 1
            patch = {"metadata": {"annotations": wanted["metadata"]["annotations"]}, "spec": wanted["spec"]}
            self._custom.patch_namespaced_custom_object(
                GROUP, self.version, self._namespace, self.plural, name, patch, field_manager="webhooks"
            )
            return
        made = self.made_of(service)
        if self._made.get(name) != made:
            writers = {
                "Deployment": self._apps.patch_namespaced_deployment,
                "Service": self._core.patch_namespaced_service,
                "Secret": self._core.patch_namespaced_secret,
            }
            for one in made:
                self._applied(writers[one["kind"]], one)
            self._made[name] = made
        if made:
            self._report(service, made[0]["metadata"]["name"])

    def _report(self, service: Json, deployment: str) -> None:
        found = self._apps.read_namespaced_deployment(deployment, self._namespace)
        status = self.status_of(service, bool(found.status and (found.status.ready_replicas or 0) >= 1))
        if service.get("status") != status:
            self._custom.patch_namespaced_custom_object_status(
                GROUP, self.version, self._namespace, self.plural, service["metadata"]["name"], {"status": status}
            )

    def _applied(self, patch: Any, body: Json) -> None:
        patch(
            body["metadata"]["name"], self._namespace, body, field_manager="kserve", force=True,
            _content_type="application/apply-patch+yaml",
        )  # fmt: skip

    def _listed(self, version: str, plural: str) -> list[Json]:
        found: Any = self._custom.list_namespaced_custom_object(GROUP, version, self._namespace, plural)
        return list(found["items"])


def service_of(deployment: Mapping[str, Any]) -> Json:
    """The Service that KServe makes beside a Deployment."""
    meta = {key: deployment["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
    spec = {"selector": deployment["spec"]["selector"]["matchLabels"], "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
