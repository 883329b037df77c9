"""Objects whose children's names are somebody else's, of every kind that the operator makes: each is read before it is
left alone. Used by test_rights.py, for the right to read them."""

from __future__ import annotations

from typing import Any

from tests.definitions import MONITORING
from tests.e2e.conftest import NAMESPACE

from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names
from speculative_operator.domain.jobs import Purpose
from speculative_operator.render.jobs import job_name
from speculative_operator.render.podspec import table_name

Json = dict[str, Any]


def spec_of(body: Json) -> Any:
    return to_domain({**body, "metadata": {**body["metadata"], "uid": "u", "generation": 1}})


def of_deployment(body: Json) -> list[Json]:
    """Children of a Deployment's object, which are not its."""
    name = body["metadata"]["name"]
    chosen = {"matchLabels": {"app": name}}
    return [
        made("apps/v1", "Deployment", name, {"replicas": 0, "selector": chosen, "template": template(name)}),
        made("v1", "Service", name, {"ports": [{"port": 443}]}),
        made("networking.k8s.io/v1", "NetworkPolicy", name, {"podSelector": chosen}),
        made("policy/v1", "PodDisruptionBudget", name, {"minAvailable": 0, "selector": chosen}),
        made(f"{MONITORING}/v1", "PodMonitor", name, {"selector": chosen, "podMetricsEndpoints": []}),
        made("gateway.networking.k8s.io/v1", "HTTPRoute", name, {}),
        {**made("v1", "ConfigMap", table_name(spec_of(body)), {}), "data": {"a": "b"}},
    ]


def of_pair(body: Json) -> list[Json]:
    """The Job that reads, and the claim."""
    job = template("job")
    job["spec"]["restartPolicy"] = "Never"
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return [
        made("batch/v1", "Job", job_name(spec_of(body), Purpose.INSPECT), {"suspend": True, "template": job}),
        made("v1", "PersistentVolumeClaim", body["metadata"]["name"], storage),
    ]


def of_targets(runtime: str, service: str, llm: str, group: str) -> list[Json]:
    predictor = {"model": {"modelFormat": {"name": "theirs"}, "runtime": "theirs"}}
    workers = {"size": 1, "workerTemplate": template(group)}
    return [
        made("serving.kserve.io/v1alpha1", "ServingRuntime", runtime, {"containers": [{"name": "a", "image": "b"}]}),
        made("serving.kserve.io/v1beta1", "InferenceService", service, {"predictor": predictor}),
        made("serving.kserve.io/v1alpha2", "LLMInferenceService", llm, {"model": {"uri": "hf://theirs/model"}}),
        made(
            "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", names.group(group),
            {"replicas": 0, "leaderWorkerTemplate": workers},
        ),
    ]  # fmt: skip


def template(name: str) -> Json:
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "theirs", "image": "theirs"}]}}


def made(version: str, kind: str, name: str, spec: Json) -> Json:
    body: Json = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}
    return body if kind == "ConfigMap" else {**body, "spec": spec}
