"""Downward API: what a fieldRef stands for, for environment variables and volumes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class FieldError(ValueError):
    """A reference that does not exist; the text names it."""


def pod_field(pod: Mapping[str, Any], path: str, address: str = "", node_address: str = "") -> str:
    """The text of a fieldRef, e.g. ``metadata.name``, ``metadata.labels['a']``, ``status.podIP``. Raises FieldError."""
    meta, spec = pod["metadata"], pod["spec"]
    for group in ("labels", "annotations"):
        prefix = f"metadata.{group}['"
        if path.startswith(prefix) and path.endswith("']"):
            return str(meta.get(group, {}).get(path[len(prefix) : -2], ""))
    known = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": address,
        "status.hostIP": node_address,
    }
    if path not in known:
        raise FieldError(
            f"fieldRef {path!r} is not supported; supported are {', '.join(sorted(known))}, "
            "single labels and annotations"
        )
    return str(known[path])
