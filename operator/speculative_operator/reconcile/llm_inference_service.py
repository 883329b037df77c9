"""The workload as an LLMInferenceService and KServe's Deployment have it. Used by `targets`.

What others have written stands beside what the operator applied, and is compared with nothing. KServe's Deployment is
only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import at, items, mapping, mappings, text
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.reconcile import inference_service as kserve
from speculative_operator.render.kserve import unescape
from speculative_operator.render.llm_inference_service import (
    ALL_AT_ONCE,
    CONTAINER,
    EXPOSED,
    KIND,
    OF_OBJECT,
    OF_PODS,
    PLATFORM,
    container_as_rendered,
)

Body = Mapping[str, Any]


def parts(name: str) -> tuple[tuple[str, str], ...]:
    """(kind, name) of each object that `read` looks at."""
    return ((KIND, name), ("Deployment", names.kserve_llm_deployment(name)))


def read(spec: DeploymentSpec, objects: kserve.Objects, now: float) -> Body | None:
    """The workload as a Deployment; None where there is no LLMInferenceService."""
    service, made = (objects.get(part) for part in parts(spec.name))
    stranger = kserve.stranger_among(spec, objects, parts(spec.name)[:1])
    if service is None or stranger is not None:
        return stranger
    body = {
        "replicas": at(service, "spec", "replicas"),
        "strategy": _strategy(mapping(service, "spec", "rolloutStrategy")),
        "progressDeadlineSeconds": kserve.deadline_of(service),
        "template": {"metadata": _of_pods(service), "spec": _pod(service)},
    }
    workload = kserve.workload_of(spec, kserve.metadata_of(service, service), body)
    workload = kserve.with_status(workload, made, service, now, _follows)
    status = workload["status"]
    return {**workload, "status": {**status, "platform": status["platform"] or _wrong_scheme(spec, service)}}


def _wrong_scheme(spec: DeploymentSpec, service: Body) -> str:
    """A sentence where KServe calls the pods by another scheme than they answer by; empty where it does not, or names
    no URL."""
    own = f"://{names.kserve_llm_deployment(spec.name)}-workload-svc."
    told = spec.inference_service
    urls = [text(one, "url") for one in mappings(service, "status", "addresses")]
    other = next((url for url in urls if own in url and not url.startswith(f"{told.scheme}:")), "")
    asked = str(not told.tls).lower()
    return other and f"it calls them at {other}, and they answer by {told.scheme}; set inferenceService.tls: {asked}"


def with_labels(pod: Body) -> Body:
    """A pod with the labels of the workload that KServe gave it as annotations."""
    annotations = mapping(pod, "metadata", "annotations")
    more = {key: annotations[key] for key in OF_PODS if key in annotations}
    metadata = mapping(pod, "metadata")
    return {**pod, "metadata": {**metadata, "labels": {**mapping(metadata, "labels"), **more}}}


def _of_pods(service: Body) -> dict[str, Any]:
    own, annotations = mapping(service, "metadata"), unescape(mapping(service, "spec", "annotations"))
    exposed = {EXPOSED: "exposed"} if at(service, "spec", "router", "route") is not None else {}
    return {
        "labels": {
            **{key: value for key, value in mapping(own, "labels").items() if key in OF_OBJECT},
            **mapping(service, "spec", "labels"),
            **{key: value for key, value in annotations.items() if key in OF_PODS},
            **exposed,
        },
        "annotations": {
            **{key: value for key, value in mapping(own, "annotations").items() if key.startswith(PLATFORM)},
            **{key: value for key, value in annotations.items() if key not in OF_PODS},
        },
    }


def _pod(service: Body) -> dict[str, Any]:
    pod = unescape(mapping(service, "spec", "template"))
    containers = [
        container_as_rendered(one) if text(one, "name") == CONTAINER else one for one in items(pod, "containers")
    ]
    return {**pod, "containers": containers}


def _strategy(found: Body) -> dict[str, Any]:
    if not found:
        return {}
    return {"type": "Recreate"} if found == ALL_AT_ONCE else {"type": "RollingUpdate", "rollingUpdate": found}


def _follows(workload: Body, made: Body) -> bool:
    """True where the Deployment's template is made of what the LLMInferenceService asks for now."""
    wanted, found = mapping(workload, "spec", "template"), mapping(made, "spec", "template")
    engine, asked = (
        next((one for one in mappings(pod, "spec", "containers") if text(one, "name") == name), {})
        for pod, name in ((found, CONTAINER), (wanted, names.CONTAINER))
    )
    annotations = {
        **mapping(wanted, "metadata", "annotations"),
        **{key: value for key, value in mapping(wanted, "metadata", "labels").items() if key in OF_PODS},
    }
    return kserve.starts_alike(engine, asked) and all(
        text(found, "metadata", "annotations", key) == value
        for key, value in annotations.items()
        if not key.startswith(PLATFORM)
    )
