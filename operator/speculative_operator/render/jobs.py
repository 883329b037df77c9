"""Jobs that read and fetch models, and the claim that they fetch into. Called by `reconcile.pair.jobs`.

A Job's pod bears none of the labels by which Deployment and Service find serving pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.jobs import Exit, Purpose
from speculative_operator.domain.spec import Cache, DeploymentSpec
from speculative_operator.engines.shared.container import TOKEN_KEY, authorities, reach
from speculative_operator.render import metadata, podspec
from speculative_operator.render.environment import render_manifest
from speculative_operator.render.metadata import with_hash
from speculative_operator.render.podspec import Placed, claim_at, volume_at

COMMAND = "speculative-weights"
CLAIMS = "/claims"
"""Claims that hold models are mounted below it by their names, read-only."""
CACHE = "/cache"
USER = 65532
"""User id that the operator's image runs as."""
KEPT_SECONDS = 3600
"""Seconds for which a failed Job is kept for its log."""
TMP = "/tmp"  # noqa: S108  (a path in the pod)
_REGISTRIES = "/etc/speculative/registries"
SECRET_KEYS = (TOKEN_KEY, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")
_REACHING = frozenset(
    {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy",
     "http_proxy", "no_proxy"}
)  # fmt: skip
_DOCKER_KEY = ".dockerconfigjson"


@dataclass(frozen=True, slots=True)
class _Size:
    """Resources and time that a Job may take."""

    requests: Mapping[str, str]
    limits: Mapping[str, str]
    deadline: int
    """Seconds for the Job as a whole."""
    tries: int
    """Number of pods that may follow when the first has failed."""
    grace: int


SIZES = {
    # Headers by range: seconds, and less than 200 MB of memory whatever the model's size. A Job that no node takes
    # ends with the deadline, so that pods do not wait for ever for a look at their files.
    Purpose.INSPECT: _Size({"cpu": "100m", "memory": "128Mi"}, {"cpu": "1", "memory": "512Mi"}, 300, 1, 5),
    # A day for hundreds of GB over a slow line; each further pod goes on where the last one ended.
    Purpose.FETCH: _Size({"cpu": "500m", "memory": "512Mi"}, {"cpu": "4", "memory": "2Gi"}, 86400, 6, 30),
}


@dataclass(frozen=True, slots=True)
class JobInput:
    """All values from which one Job is made."""

    spec: DeploymentSpec
    purpose: Purpose
    wanted: str
    """Hash of what the Job is made for."""
    image: str
    args: tuple[str, ...]
    claims: tuple[str, ...] = ()
    """Claims that hold models for the Job to read."""
    cache: str = ""
    """Claim that the Job writes to; empty: none."""
    owns_cache: bool = False
    """True where the operator made the claim: files in one of others keep their group."""
    assigns_uids: bool = True
    env: tuple[tuple[str, str], ...] = ()
    """Variables by the operator's settings: no spec may set them."""


def job_name(spec: DeploymentSpec, purpose: Purpose) -> str:
    """Name of the object's Job for `purpose`: one at a time."""
    return names.child(spec.name, purpose.value)


def job(inp: JobInput) -> dict[str, Any]:
    """The Job: whole intent, labelled, owned by the object, and hashed. Raises RenderError."""
    spec, size = inp.spec, SIZES[inp.purpose]
    volumes, mounts = _volumes(inp)
    purpose = {names.LABEL_JOB: inp.purpose.value}
    env, resources = [*job_env(inp.env), *variables(spec)], {"requests": size.requests, "limits": size.limits}
    values = {
        "name": job_name(spec, inp.purpose),
        "namespace": spec.namespace,
        "labels": {**metadata.common(spec), **purpose},
        "annotations": {names.ANNOTATION_WANTED: inp.wanted},
        "owner": metadata.owner(spec),
        "pod_labels": {names.LABEL_MANAGED_BY: names.OPERATOR, **purpose},
        "tries": size.tries,
        "deadline": size.deadline,
        "kept_for": KEPT_SECONDS,
        "grace_seconds": size.grace,
        "run_as_user": None if inp.assigns_uids else USER,
        "gives_group": inp.owns_cache,
        "container": confined(names.JOB_CONTAINER, inp.image, [COMMAND], env, mounts, resources, inp.args),
        "volumes": volumes,
    }
    return with_hash(render_job(values, imagePullSecrets=pull_secrets(spec)))


def render_job(values: Mapping[str, Any], **pod: Any) -> dict[str, Any]:
    """A Job with the values of its template, and more fields of its pod, of which empty ones are left out. Where
    another pod may follow one that failed, some exit statuses end the Job at once, and a pod that was taken away does
    not count. Raises RenderError."""
    containers = [*pod.get("initContainers", ()), values["container"]]
    found = {
        "run_as_user": None, "gives_group": True, **values,
        "final_exits": [Exit.MISUSED.value, Exit.FINAL.value],
        "containers_that_end": [one["name"] for one in containers if one.get("restartPolicy") is None],
        "more": [(field, value) for field, value in pod.items() if value],
    }  # fmt: skip
    return render_manifest("job", found)


def confined(
    name: str,
    image: str,
    command: Sequence[str],
    env: Sequence[Mapping[str, Any]],
    mounts: Sequence[Mapping[str, Any]],
    resources: Mapping[str, Any],
    args: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """A container that gains no privileges and writes to its volumes alone. `more`: further fields."""
    security = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    return {
        "name": name, "image": image, "command": command, **({"args": args} if args else {}), "env": env,
        **more, "resources": resources, "securityContext": security, "volumeMounts": mounts,
    }  # fmt: skip


def cache_claim(spec: DeploymentSpec, cache: Cache) -> dict[str, Any]:
    """The claim of a cache. No object owns it: it outlives them all. Raises RenderError."""
    values = {
        "name": cache.claim,
        "namespace": spec.namespace,
        "labels": {names.LABEL_MANAGED_BY: names.OPERATOR},
        "owner": None,
        "access_mode": cache.access_mode.value,
        "storage_class": cache.storage_class,
        "size": cache.size,
    }
    return with_hash(render_manifest("persistentvolumeclaim", values))


def user(spec: DeploymentSpec) -> str:
    """The object's name in marks of use in a cache. The uid tells the same name in two clusters apart."""
    return f"{spec.namespace}/{spec.name}/{spec.uid}"


def variables(spec: DeploymentSpec) -> list[dict[str, Any]]:
    """EnvVar objects of a container that reads sources, in a Job or in a serving pod."""
    return podspec.environment((*_environment(spec), *of_engine(spec), *spec.weights.env))


def job_env(settings: tuple[tuple[str, str], ...]) -> list[Mapping[str, Any]]:
    """EnvVar objects from the operator's settings, for a container that reads sources."""
    return [_variable(name, value) for name, value in settings]


def credentials(spec: DeploymentSpec) -> list[Placed]:
    """Volumes and mounts of a container that reads sources: logins to registries, certificate authorities."""
    weights, found = spec.weights, []
    if weights.secret_name:
        items = [{"key": _DOCKER_KEY, "path": "config.json"}]
        secret = {"secretName": weights.secret_name, "optional": True, "items": items}
        found.append(volume_at("registries", {"secret": secret}, _REGISTRIES))
    if weights.ca_config_map:
        found.append(volume_at("authorities", {"configMap": {"name": weights.ca_config_map}}, names.AUTHORITIES_MOUNT))
    return found


def of_engine(spec: DeploymentSpec) -> tuple[Mapping[str, Any], ...]:
    """Variables of the engine that say how it reaches the hub: what it may load, a Job may read."""
    return tuple(variable for variable in spec.engine.env if variable.get("name") in _REACHING)


def pull_secrets(spec: DeploymentSpec) -> list[Any]:
    """Pull secrets of a Job's pod: those of the serving pods, whose registry mostly holds the operator's image."""
    pod = spec.template.get("spec")
    found = pod.get("imagePullSecrets") if isinstance(pod, Mapping) else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, Sequence) else []


def _environment(spec: DeploymentSpec) -> Iterator[Mapping[str, Any]]:
    """Variables in the order of the contract with `weights`; the user's come after and win."""
    weights = spec.weights
    yield _variable("HOME", TMP)
    yield _variable("HF_HOME", f"{TMP}/huggingface")
    if weights.secret_name:
        for key in SECRET_KEYS:
            reference = {"name": weights.secret_name, "key": key, "optional": True}
            yield {"name": key, "valueFrom": {"secretKeyRef": reference}}
        yield _variable("DOCKER_CONFIG", _REGISTRIES)
    yield from reach(spec)
    if weights.s3_endpoint:
        yield _variable("AWS_ENDPOINT_URL", weights.s3_endpoint)
    if weights.ca_config_map:
        yield from authorities()


def _variable(name: str, value: str) -> Mapping[str, Any]:
    return {"name": name, "value": value}


def _volumes(inp: JobInput) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    pairs = [volume_at("tmp", {"emptyDir": {}}, TMP, read_only=False)]
    if inp.cache:
        claim = {"persistentVolumeClaim": {"claimName": inp.cache}}
        pairs.append(volume_at("cache", claim, CACHE, read_only=False))
    pairs += [claim_at(index, claim, f"{CLAIMS}/{claim}") for index, claim in enumerate(inp.claims)]
    pairs += credentials(inp.spec)
    return [volume for volume, _ in pairs], [mount for _, mount in pairs]
