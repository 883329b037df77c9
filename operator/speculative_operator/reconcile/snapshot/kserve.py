"""The workload as the objects of KServe have it: an InferenceService with its ServingRuntime, or an
LLMInferenceService; and KServe's Deployment. Used by `by_target`.

What others have written stands beside what the operator applied, and is compared with nothing: the platform's webhooks
add node selectors, tolerations, resources and storage. KServe's Deployment is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import (
    at,
    conditions_of,
    is_controlled_by,
    items,
    mapping,
    mappings,
    seconds_of,
    text,
    whole,
)
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.render.inference_service import (
    CONTAINER,
    CONTAINER_FIELDS,
    MODE,
    POD_FIELDS,
    RAW,
    RUNTIME,
    SERVICE,
)
from speculative_operator.render.llm_inference_service import CONTAINER as LLM_CONTAINER
from speculative_operator.render.llm_inference_service import KIND, OF_OBJECT, OF_PODS, PLATFORM, container_as_rendered
from speculative_operator.render.target import EXPOSED, strategy_of, unescape

Body = Mapping[str, Any]
Objects = Mapping[tuple[str, str], Body]
_OF_KSERVE = frozenset({"app", "component", "serving.kserve.io/inferenceservice"})
"""Labels of pods that KServe sets, whatever the InferenceService says of them."""
_OF_METADATA = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "deletionTimestamp")


def parts(name: str) -> tuple[tuple[str, str], ...]:
    """(kind, name) of each object that `read` looks at."""
    return ((RUNTIME, name), (SERVICE, name), ("Deployment", names.kserve_deployment(name)))


def read_service(spec: DeploymentSpec, objects: Objects, now: float) -> Body | None:
    """The workload as a Deployment; None where there is no InferenceService."""
    runtime, service, made = (objects.get(part) for part in parts(spec.name))
    stranger = stranger_among(spec, objects, parts(spec.name)[:2])
    if service is None or stranger is not None:
        return stranger
    workload = workload_of(spec, metadata_of(service, runtime), _spec(runtime, service))
    return with_status(workload, made, service, now, _follows)


def stranger_among(spec: DeploymentSpec, objects: Objects, keys: Iterable[tuple[str, str]]) -> Body | None:
    """Kind and metadata of the first object among `keys` that belongs to somebody else; None where there is none."""
    for kind, name in keys:
        found = objects.get((kind, name))
        if found is not None and not is_controlled_by(found, spec.uid):
            return {"kind": kind, "metadata": mapping(found, "metadata")}
    return None


def workload_of(spec: DeploymentSpec, metadata: Body, body: Body) -> dict[str, Any]:
    """The workload as a Deployment without status; `body` holds the fields of its spec that differ by target."""
    of_all = {"selector": {"matchLabels": names.selector(spec.name)}, "revisionHistoryLimit": 3}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {**of_all, **body}}


def metadata_of(service: Body, noted: Body | None) -> dict[str, Any]:
    """Metadata of the workload that stands for `service` of KServe; `noted` is the object with the operator's labels
    and annotations."""
    own = {key: value for key, value in mapping(service, "metadata").items() if key in _OF_METADATA}
    return {**own, **{part: mapping(noted, "metadata", part) for part in ("labels", "annotations")}, "generation": 1}


def with_status(
    workload: Body, made: Body | None, service: Body, now: float, follows: Callable[[Body, Body], bool]
) -> dict[str, Any]:
    """`workload` with the status of KServe's Deployment, where that is made of it (`follows`)."""
    ours = made if made is not None and is_controlled_by(made, text(service, "metadata", "uid")) else None
    followed = ours is not None and follows(workload, ours)
    return {**workload, "status": _status(workload, ours, service, now, followed)}


def _spec(runtime: Body | None, service: Body) -> dict[str, Any]:
    predictor = mapping(service, "spec", "predictor")
    model = {key: value for key, value in mapping(predictor, "model").items() if key in CONTAINER_FIELDS}
    annotations = dict(mapping(service, "metadata", "annotations"))
    annotations |= {MODE: RAW} if annotations.get(MODE) == "Standard" else {}
    return {
        "replicas": predictor.get("minReplicas"),
        "strategy": mapping(predictor, "deploymentStrategy"),
        "progressDeadlineSeconds": deadline_of(runtime),
        "template": {
            "metadata": {"labels": mapping(service, "metadata", "labels"), "annotations": annotations},
            "spec": {
                **{key: value for key, value in predictor.items() if key in POD_FIELDS},
                "containers": [{**unescape(model), "name": names.CONTAINER}, *items(predictor, "containers")],
            },
        },
    }


def deadline_of(body: Body | None) -> int:
    """Progress deadline of the pods in seconds, from the annotation of an object whose kind has no field for it; 0
    without one."""
    found = text(body, "metadata", "annotations", names.ANNOTATION_DEADLINE)
    return int(found) if found.isascii() and found.isdecimal() else 0


def _status(workload: Body, made: Body | None, service: Body, now: float, follows: bool) -> dict[str, Any]:
    """The workload's status: that of KServe's Deployment, which counts no pod as updated until it is made of what the
    object of KServe asks for (`follows`)."""
    said = {"url": _url(service), "platform": _trouble(service)}
    if made is None or not follows:
        message = _trouble(service) or _failure(service)
        refused = [{"type": "ReplicaFailure", "status": "True", "message": message}] if message else []
        before = {**mapping(made, "status"), "updatedReplicas": 0}
        return {**before, **said, "observedGeneration": 1, "conditions": refused}
    seen = whole(made, "status", "observedGeneration") >= whole(made, "metadata", "generation")
    more = whole(workload, "spec", "progressDeadlineSeconds") - whole(made, "spec", "progressDeadlineSeconds")
    conditions = [one for one in mappings(made, "status", "conditions") if not _is_early(one, more, now)]
    return {**mapping(made, "status"), **said, "observedGeneration": int(seen), "conditions": conditions}


def _follows(workload: Body, made: Body) -> bool:
    """True where the Deployment's template is made of what the InferenceService asks for now."""
    wanted, found = mapping(workload, "spec", "template"), mapping(made, "spec", "template")
    labels = mapping(found, "metadata", "labels")
    return _starts_alike(wanted, found, CONTAINER) and all(
        labels.get(key) == value
        for key, value in mapping(wanted, "metadata", "labels").items()
        if key not in _OF_KSERVE
    )


def _starts_alike(wanted: Body, found: Body, container: str) -> bool:
    """True where the engines of two pod templates have the same image, command and arguments. `container`: name of
    the engine's in the template that was `found`."""
    one, other = (
        next((one for one in mappings(template, "spec", "containers") if text(one, "name") == name), {})
        for template, name in ((wanted, names.CONTAINER), (found, container))
    )
    return all((one.get(key) or None) == (other.get(key) or None) for key in ("image", "command", "args"))


def _is_early(condition: Body, more: int, now: float) -> bool:
    """True for the condition that pods made no progress in time, while they have `more` seconds left by the object's
    own deadline: that of KServe's Deployments is always ten minutes."""
    if text(condition, "reason") != "ProgressDeadlineExceeded":
        return False
    since = seconds_of(text(condition, "lastUpdateTime"))
    return since is not None and now < since + more


def _url(service: Body) -> str:
    others = (text(one, "url") for one in mappings(service, "status", "addresses"))
    return text(service, "status", "url") or text(service, "status", "address", "url") or next(others, "")


def _trouble(service: Body) -> str:
    """What keeps the InferenceService from being ready, in its own words; empty where nothing does."""
    conditions = conditions_of(mapping(service, "status"))
    ready = conditions.pop("Ready", {})
    if text(ready, "status") != "False":
        return ""
    worst = next((one for one in conditions.values() if text(one, "status") == "False"), ready)
    return ": ".join(part for part in (text(worst, key) for key in ("type", "reason", "message")) if part)


def _failure(service: Body) -> str:
    """The last failure of the model that KServe reports; empty without one."""
    failure = at(service, "status", "modelStatus", "lastFailureInfo")
    return ": ".join(part for part in (text(failure, key) for key in ("reason", "message")) if part)


def llm_parts(name: str) -> tuple[tuple[str, str], ...]:
    """(kind, name) of each object that `read` looks at."""
    return ((KIND, name), ("Deployment", names.kserve_llm_deployment(name)))


def read_llm(spec: DeploymentSpec, objects: Objects, now: float) -> Body | None:
    """The workload as a Deployment; None where there is no LLMInferenceService."""
    service, made = (objects.get(part) for part in llm_parts(spec.name))
    stranger = stranger_among(spec, objects, llm_parts(spec.name)[:1])
    if service is None or stranger is not None:
        return stranger
    strategy = mapping(service, "spec", "rolloutStrategy")
    body = {
        "replicas": at(service, "spec", "replicas"),
        "strategy": strategy_of(strategy) if strategy else {},
        "progressDeadlineSeconds": deadline_of(service),
        "template": {"metadata": _of_pods(service), "spec": _pod(service)},
    }
    workload = workload_of(spec, metadata_of(service, service), body)
    workload = with_status(workload, made, service, now, _follows_llm)
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
        container_as_rendered(one) if text(one, "name") == LLM_CONTAINER else one for one in items(pod, "containers")
    ]
    return {**pod, "containers": containers}


def _follows_llm(workload: Body, made: Body) -> bool:
    """True where the Deployment's template is made of what the LLMInferenceService asks for now."""
    wanted, found = mapping(workload, "spec", "template"), mapping(made, "spec", "template")
    annotations = {
        **mapping(wanted, "metadata", "annotations"),
        **{key: value for key, value in mapping(wanted, "metadata", "labels").items() if key in OF_PODS},
    }
    return _starts_alike(wanted, found, LLM_CONTAINER) and all(
        text(found, "metadata", "annotations", key) == value
        for key, value in annotations.items()
        if not key.startswith(PLATFORM)
    )
