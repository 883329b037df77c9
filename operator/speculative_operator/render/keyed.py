"""Which lists of the Kubernetes API are maps in disguise, and by which fields their items are told apart.

From the API's own list-map keys. Used by `merge` to lay user overrides over the pod template and by `reconcile` to find
drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEYS: dict[str, tuple[tuple[str, ...], ...]] = {
    "containers": (("name",),),
    "initContainers": (("name",),),
    "ephemeralContainers": (("name",),),
    "volumes": (("name",),),
    "env": (("name",),),
    "volumeMounts": (("mountPath",),),
    "volumeDevices": (("devicePath",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
    "imagePullSecrets": (("name",),),
    "hostAliases": (("ip",),),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
    "resourceClaims": (("name",),),
    "claims": (("name",),),
    "schedulingGates": (("name",),),
    "readinessGates": (("conditionType",),),
    "ownerReferences": (("uid",),),
}
"""Name of the list -> the keys its items may be told apart by; the first field of each is required."""
_DEFAULTS = {"protocol": "TCP", "whenUnsatisfiable": "DoNotSchedule"}


def is_keyed(field: str) -> bool:
    """True when the items of the list `field` are told apart by a key instead of by their place."""
    return field in KEYS


def key_of(field: str, item: Any) -> tuple[Any, ...] | None:
    """Key of one item of the list `field`; None when it lacks the required field."""
    if not isinstance(item, Mapping):
        return None
    for fields in KEYS.get(field, ()):
        if isinstance(item.get(fields[0]), str | int):
            return tuple(str(item.get(name, _DEFAULTS.get(name))) for name in fields)
    return None


def key_field(field: str) -> str:
    """The field without which an item of the list `field` cannot be told apart, for messages."""
    return KEYS[field][0][0]
