"""How a serving pod brings its weights itself, before its engine starts: into a folder of its node, or into an
emptyDir of its own. Called by `values`; `reconcile.pair.arrival` reads the state of the containers.

The init container runs the program of the Jobs, with their environment. It names a version by commit or digest, so
that every pod of a template loads the same version, whatever a branch has become since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.spec import Cache, DeploymentSpec, Medium, ModelSource, Scheme
from speculative_operator.engines.shared.container import DOWNLOAD_RATE, DOWNLOAD_SECONDS
from speculative_operator.render import podspec
from speculative_operator.render.inputs import RenderInput
from speculative_operator.render.jobs import (
    CACHE,
    COMMAND,
    SIZES,
    TMP,
    USER,
    confined,
    credentials,
    job_env,
    user,
    variables,
)
from speculative_operator.render.podspec import volume_at

VOLUME = "weights"
HOLD_REQUESTS = {"cpu": "5m", "memory": "32Mi"}
HOLD_LIMITS = {"memory": "64Mi"}
"""Limits of the container that renews marks of use: it takes 23 MB."""
_ROOT = 0


@dataclass(frozen=True, slots=True)
class Bringing:
    """The parts of a pod template that fetch the weights."""

    containers: tuple[dict[str, Any], ...]
    """Init containers, in order."""
    volumes: tuple[dict[str, Any], ...]
    mount: dict[str, Any]
    """Mount of the weights in the engine's container, read-only."""
    seconds: int
    """Seconds that the fetch may take before a rollout counts as standing still."""


def bringing(inp: RenderInput) -> Bringing | None:
    """How a pod fetches its weights before the engine starts; None where the engine finds them elsewhere."""
    cache, versions = inp.spec.weights.cache, _versions(inp.spec)
    if cache is None or not versions:
        return None
    weights = volume_at(VOLUME, _volume(cache), CACHE, read_only=False)
    read = [volume_at("weights-tmp", {"emptyDir": {}}, TMP, read_only=False), weights, *credentials(inp.spec)]
    containers = [_fetching(inp, cache, versions, [mount for _, mount in read])]
    if cache.node_path:
        containers.append(_holding(inp, cache, versions, weights[1]))
    return Bringing(
        containers=tuple(containers),
        volumes=tuple(volume for volume, _ in read),
        mount={"name": VOLUME, "mountPath": names.WEIGHTS_MOUNT, "readOnly": True},
        seconds=max(DOWNLOAD_SECONDS, ceil(inp.spec.weights.bytes / DOWNLOAD_RATE)),
    )


def join_volumes(ours: Iterable[dict[str, Any]], more: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Volumes of `ours` and `more`, each name once: engine and init container may trust the same authorities."""
    found = {volume["name"]: volume for volume in ours}
    return list((found | {volume["name"]: volume for volume in more}).values())


def _versions(spec: DeploymentSpec) -> dict[str, ModelSource]:
    """Side of the pair -> source to fetch for it, for the folders that the engine is told to load."""
    cache = spec.weights.cache
    known = {f"{cache.place}/{folder}": source for folder, source in cache.brought} if cache is not None else {}
    speculator = spec.speculator.source if spec.speculator is not None and spec.speculates else None
    found: dict[str, ModelSource] = {}
    for side, told in (("verifier", spec.verifier.source), ("speculator", speculator)):
        if told is not None and told.scheme is Scheme.POD and known[told.location] not in found.values():
            found[side] = known[told.location]
    return found


def _fetching(
    inp: RenderInput, cache: Cache, versions: Mapping[str, ModelSource], mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    args = ["fetch", "--cache", CACHE]
    if cache.node_path:
        args += ["--reserve", str(cache.reserve_percent)]
    for side, source in versions.items():
        args += [f"--{side}", source.uri, f"--{side}-revision", source.revision]
    env = podspec.environment((*job_env(inp.capabilities.job_env), *variables(inp.spec)))
    return _container(inp, cache, names.JOB_CONTAINER, args, mounts, _resources(cache), env)


def _holding(
    inp: RenderInput, cache: Cache, versions: Mapping[str, ModelSource], mount: Mapping[str, Any]
) -> dict[str, Any]:
    """The container that renews the pod's marks of use, by which pods of other objects tidy up the same folder: an
    engine that is restarted after weeks must find its weights."""
    args = ["hold", "--cache", CACHE]
    folders = {source: folder.rpartition("/")[2] for folder, source in cache.brought}
    for source in versions.values():
        args += ["--version", folders[source]]
    resources = {"requests": HOLD_REQUESTS, "limits": HOLD_LIMITS}
    return _container(inp, cache, names.HOLD_CONTAINER, args, [mount], resources, restartPolicy="Always")


def _container(
    inp: RenderInput,
    cache: Cache,
    name: str,
    args: list[str],
    mounts: Sequence[Mapping[str, Any]],
    resources: Mapping[str, Any],
    env: Sequence[Mapping[str, Any]] = (),
    **more: str,
) -> dict[str, Any]:
    wants = ["--object", user(inp.spec), *(["--collect"] if cache.collect else [])]
    found = confined(name, inp.capabilities.job_image, [COMMAND], env, mounts, resources, [*args, *wants], **more)
    security: dict[str, Any] = {}
    if cache.node_path:
        # The kubelet makes the folder as root's, and no fsGroup changes that.
        security = {"runAsNonRoot": False, "runAsUser": _ROOT}
    elif not inp.capabilities.assigns_uids:
        security = {"runAsUser": USER}
    return {**found, "securityContext": {**security, **found["securityContext"]}}


def _volume(cache: Cache) -> dict[str, Any]:
    if cache.node_path:
        return {"hostPath": {"path": cache.node_path, "type": "DirectoryOrCreate"}}
    empty = cache.empty_dir
    if empty is None:
        return {"emptyDir": {}}
    medium = {"medium": empty.medium.value} if empty.medium is not None else {}
    return {"emptyDir": {**medium, "sizeLimit": empty.size_limit}}


def _resources(cache: Cache) -> dict[str, dict[str, str]]:
    """Requests and limits: those of the Job, and room for an emptyDir, so that the scheduler takes a node with it.

    An emptyDir in memory counts as memory of the container that writes it: a limit would end the download.
    """
    size, empty = SIZES[Purpose.FETCH], cache.empty_dir
    requests, limits = dict(size.requests), dict(size.limits)
    if empty is not None and empty.medium is Medium.MEMORY:
        requests["memory"] = empty.size_limit
        del limits["memory"]
    elif empty is not None:
        requests["ephemeral-storage"] = empty.size_limit
    return {"requests": requests, "limits": limits}
