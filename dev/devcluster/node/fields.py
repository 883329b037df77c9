"""Downward API: what fieldRef and resourceFieldRef stand for, for environment variables and volumes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .quantity import in_units


class FieldError(ValueError):
    """A reference that does not exist; the text names it."""


def pod_field(pod: Mapping[str, Any], path: str, address: str = "", node_address: str = "") -> str:
    """The text of a fieldRef, e.g. ``metadata.name``, ``metadata.labels['a']``, ``status.podIP``. Raises FieldError."""
    meta, spec = pod["metadata"], pod["spec"]
    for group in ("labels", "annotations"):
        prefix = f"metadata.{group}['"
        if path.startswith(prefix) and path.endswith("']"):
            return str(meta.get(group, {}).get(path[len(prefix) : -2], ""))
        if path == f"metadata.{group}":
            return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(meta.get(group, {}).items()))
    known = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": node_address,
        "status.hostIPs": node_address,
    }
    if path not in known:
        raise FieldError(
            f"fieldRef {path!r} is not supported; supported are {', '.join(sorted(known))}, labels and annotations"
        )
    return str(known[path])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def resource_field(
    spec: Mapping[str, Any], reference: Mapping[str, Any], allocatable: Mapping[str, str], container: str
) -> str:
    """The number of a resourceFieldRef, e.g. ``limits.memory`` in units of its divisor. Raises FieldError.

    `container` names the container meant where the reference does not; a missing limit is what the node has.
    """
    name = reference.get("containerName") or container
    found = next((c for c in [*spec["containers"], *spec.get("initContainers", ())] if c["name"] == name), None)
    if found is None:
        raise FieldError(f"resourceFieldRef: no container {name!r}")
    kind, _, resource = str(reference["resource"]).partition(".")
    given = found.get("resources", {})
    text = given.get(kind, {}).get(resource)
    if text is None and kind == "limits":
        text = allocatable.get(resource)
    try:
        return str(in_units(str(text or "0"), str(reference.get("divisor", "1"))))
    except ValueError as error:
        raise FieldError(f"resourceFieldRef {reference['resource']}: {error}") from error
