"""What is particular to one case, taken out of its rendered manifests: the compact form that outlines/ expects.

Whole manifests differ between cases in a tenth of their lines. An outline holds that tenth: the engine's container
without what all containers share (ports of the API, paths of probes, security, folders of caches), the pod's volumes,
the knob space, and which other children there are. The shared nine tenths are held by the whole manifests in expected/.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.golden.case import Case

from speculative_operator.domain import names

_SHARED_MOUNTS = ("cache", "tmp")
_SHARED_ENV = (names.CACHE_MOUNT, names.TABLE_MOUNT, names.PAYLOAD_MOUNT)


def outline(case: Case) -> dict[str, Any]:
    """The case's outline: plain values in a fixed order, nothing that is empty."""
    children = case.children()
    deployment = next(child for child in children if child["kind"] == "Deployment")
    pod = deployment["spec"]["template"]
    container = next(one for one in pod["spec"]["containers"] if one["name"] == names.CONTAINER)
    found = {
        "case": case.name,
        "actuator": str(case.knobs.actuator),
        "k": " ".join(map(str, case.knobs.ks)),
        "graphs": _graphs(case),
        "notices": [str(notice.reason) for notice in case.engine.notices(case.spec)],
        "children": [_other(child) for child in children if child["kind"] not in ("Deployment", "Service")],
        "files": sorted(_files(pod["metadata"].get("annotations", {}))),
        "image": container["image"],
        "command": " ".join(container.get("command", [])),
        "args": list(_lines(container["args"])),
        "env": [_variable(entry) for entry in container["env"] if not _is_shared(entry)],
        "ports": [f"{port['name']} {port['containerPort']}" for port in container["ports"]],
        "resources": container.get("resources", {}),
        "startup": f"{container['startupProbe']['failureThreshold'] * container['startupProbe']['periodSeconds']} s",
        "grace": f"{pod['spec']['terminationGracePeriodSeconds']} s",
        "user": pod["spec"]["securityContext"].get("runAsUser"),
        "volumes": list(_volumes(pod["spec"]["volumes"], container["volumeMounts"])),
        "nodeSelector": pod["spec"].get("nodeSelector", {}),
        "strategy": deployment["spec"]["strategy"],
    }
    return {key: value for key, value in found.items() if value not in (None, [], {}, "")}


def _lines(words: list[str]) -> Iterator[str]:
    """A flag and its values on one line."""
    line: list[str] = []
    for word in words:
        if word.startswith("-") and line:
            yield " ".join(line)
            line = []
        line.append(word)
    yield " ".join(line)


def _volumes(volumes: list[dict[str, Any]], mounts: list[dict[str, Any]]) -> Iterator[str]:
    """Where each volume is mounted, and what it is: one line each."""
    sources = {volume["name"]: {key: value for key, value in volume.items() if key != "name"} for volume in volumes}
    for mount in mounts:
        if mount["name"] not in _SHARED_MOUNTS:
            yield f"{mount['mountPath']}: {json.dumps(sources[mount['name']], sort_keys=True)}"


def _graphs(case: Case) -> str:
    sizes = case.knobs.capture_sizes
    return f"{len(sizes)} sizes up to {sizes[-1]} tokens" if sizes else ""


def _other(child: dict[str, Any]) -> str:
    return f"{child['kind']} {child['metadata']['name']}"


def _files(annotations: dict[str, str]) -> list[str]:
    """Each file of the engine with its lines, K among them."""
    prefix = names.ANNOTATION_FILE
    return [f"{key.removeprefix(prefix)}: {text}" for key, text in annotations.items() if key.startswith(prefix)]


def _is_shared(entry: dict[str, Any]) -> bool:
    """True for the folders below the operator's own mounts, and for what every pod is told."""
    value = entry.get("value", "")
    return (value.startswith(_SHARED_ENV) and ":" not in value) or entry["name"] in ("USER", "VLLM_NO_USAGE_STATS")


def _variable(entry: dict[str, Any]) -> str:
    if "value" in entry:
        return f"{entry['name']}={entry['value']}"
    secret = entry.get("valueFrom", {}).get("secretKeyRef", {})
    return f"{entry['name']} from {secret.get('name', '?')}/{secret.get('key', '?')}"
