"""Values of the pod template: ports, probes, volumes, times. Called by `values`; every figure has its reason here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import mappings
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.images import accelerators_of_pod
from speculative_operator.render import payload
from speculative_operator.render.inputs import RenderInput
from speculative_operator.render.metadata import pair_hash

PRE_STOP_SECONDS = 10
"""A pod leaves the endpoints while it still serves: the time proxies need to hear of it, even on busy nodes."""
STOP_MARGIN_SECONDS = 10
"""Seconds between the engine's own end of draining and SIGKILL."""
STARTUP_PERIOD_SECONDS = 2
"""Short, so that a pod is ready within two seconds of its engine; the budget is in the number of failures."""
PROGRESS_MARGIN_SECONDS = 600
"""Seconds for scheduling and for pulling an image of several GiB, on top of the startup budget."""
TABLE_VOLUME, PAYLOAD_VOLUME = "table", "payload"
_VOLUMES = re.compile(
    "cache|tmp|dshm|config|table|payload|authorities|registries|weights|weights-tmp|(claim|image)-[0-9]+"
)
"""Names of all volumes that a pod may have of the operator."""
TELEMETRY_PATH = "/metrics"
Placed = tuple[dict[str, Any], dict[str, Any]]
"""A volume and its mount."""
SHARED_MEMORY_GIB = 2
"""Size of /dev/shm where workers of several accelerators talk through it."""


def engine_of(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The engine's container in `pod`, a pod's spec; None where a template took it away."""
    return next((one for one in mappings(pod, "containers") if one.get("name") == names.CONTAINER), None)


def startup_failures(startup_seconds: int) -> int:
    """Failures of the startup probe that make up its budget."""
    return max(1, math.ceil(startup_seconds / STARTUP_PERIOD_SECONDS))


def grace_seconds(shutdown_seconds: int) -> int:
    """Seconds until SIGKILL: preStop, then draining, then a margin, so that it hits only an engine that is stuck."""
    return PRE_STOP_SECONDS + shutdown_seconds + STOP_MARGIN_SECONDS


def run_as_user(inp: RenderInput) -> int | None:
    """User id to ask for; None where the platform assigns one, and for the user's own image, which sets it itself."""
    if inp.capabilities.assigns_uids or inp.spec.engine.image:
        return None
    return inp.container.user


def limits(inp: RenderInput) -> dict[str, str]:
    """Resource limits of the engine's container: accelerators, if any are asked for, and what the engine names."""
    count = accelerators_of_pod(inp.spec)
    accelerators = {inp.spec.accelerator.resource: str(count)} if count else {}
    return {**accelerators, **inp.container.limits}


def ports(inp: RenderInput) -> list[dict[str, Any]]:
    """Name and number of each port of the pod, the serving port first. `encrypted`: the port answers by HTTPS."""
    serving = {"name": names.SERVING_PORT_NAME, "number": inp.spec.port, "path": inp.container.metrics_path}
    found: list[dict[str, Any]] = [{**serving, "encrypted": inp.spec.inference_service.tls}]
    if inp.container.payload:
        telemetry = {"name": names.TELEMETRY_PORT_NAME, "number": names.TELEMETRY_PORT, "path": TELEMETRY_PATH}
        found.append({**telemetry, "encrypted": False})
    return found


def file_annotations(inp: RenderInput) -> dict[str, str]:
    """Annotations of the pod that hold the engine's files."""
    return {f"{names.ANNOTATION_FILE}{name}": text for name, text in sorted(inp.container.files.items())}


def environment(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Environment variables, each name once: the last one given wins, at the place of the first."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        found[str(entry.get("name", ""))] = dict(entry)
    return list(found.values())


def is_rendered(volume: str) -> bool:
    """Whether a volume of this name in a pod is one that the operator renders."""
    return _VOLUMES.fullmatch(volume) is not None


def volumes_and_mounts(inp: RenderInput) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes of the pod and mounts of the engine's container.

    Directories, never `subPath`: files below a `subPath` never change in a running pod.
    """
    scratch: list[tuple[str, str, dict[str, str]]]
    scratch = [("cache", names.CACHE_MOUNT, {}), ("tmp", "/tmp", {})]  # noqa: S108  (a path in the pod)
    if inp.container.shared_memory:
        scratch.append(("dshm", "/dev/shm", {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_GIB}Gi"}))  # noqa: S108
    pairs = [volume_at(name, {"emptyDir": source}, path, read_only=False) for name, path, source in scratch]
    if inp.container.files:
        pairs.append(_files(inp))
    if inp.live:
        # Without its table an engine starts by the one that its arguments name: a pod must not wait for the operator.
        table = inp.table_config or table_name(inp.spec)
        pairs.append(volume_at(TABLE_VOLUME, {"configMap": {"name": table, "optional": True}}, names.TABLE_MOUNT))
        pairs.append(volume_at(PAYLOAD_VOLUME, {"configMap": {"name": payload.name()}}, names.PAYLOAD_MOUNT))
    if _trusts_others(inp):
        trusted = {"configMap": {"name": inp.spec.weights.ca_config_map}}
        pairs.append(volume_at("authorities", trusted, names.AUTHORITIES_MOUNT))
    pairs += [claim_at(index, one.claim, one.mount_path) for index, one in enumerate(inp.container.pvc_mounts)]
    for index, image in enumerate(inp.container.image_mounts):
        source = {"image": {"reference": image.reference, "pullPolicy": "IfNotPresent"}}
        pairs.append(volume_at(f"image-{index}", source, image.mount_path))
    return [volume for volume, _ in pairs], [mount for _, mount in pairs]


def _trusts_others(inp: RenderInput) -> bool:
    """True where the engine trusts the user's own certificate authorities to reach a source."""
    told = any(str(one.get("value", "")).startswith(f"{names.AUTHORITIES_MOUNT}/") for one in inp.container.env)
    return told and bool(inp.spec.weights.ca_config_map)


def table_name(spec: DeploymentSpec) -> str:
    """Name of the ConfigMap that holds the table of this pair."""
    return names.child(spec.name, f"table-{pair_hash(spec)}")


def volume_at(name: str, source: Mapping[str, Any], path: str, *, read_only: bool = True) -> Placed:
    """A volume and its mount at `path`."""
    mount: dict[str, Any] = {"name": name, "mountPath": path}
    return {"name": name, **source}, mount | ({"readOnly": True} if read_only else {})


def claim_at(index: int, claim: str, path: str) -> Placed:
    """The volume of a claim that holds models, and its mount at `path`, both read-only."""
    return volume_at(f"claim-{index}", {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}, path)


def _files(inp: RenderInput) -> Placed:
    """The engine's files out of the pod's own annotations, so that each pod has those of its own template."""
    items = [
        {
            "path": name,
            "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.ANNOTATION_FILE}{name}']"},
        }
        for name in sorted(inp.container.files)
    ]
    return volume_at("config", {"downwardAPI": {"items": items}}, names.CONFIG_MOUNT)
