"""Lays `spec.template` over the rendered pod template, the way a strategic merge patch does. Called by `manifests`, and
by `reconcile` to see which privileges a template asks for.

Maps merge key by key; lists that are maps in disguise merge by the API's own list-map keys, by which `reconcile` finds
drift as well; other lists and scalars are replaced; null removes. `$patch: delete` removes a map or an item, `$patch:
replace` takes it as it stands, and as an item of a keyed list replaces the whole list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speculative_operator.render.environment import RenderError

DIRECTIVE = "$patch"
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


def merge(base: Any, patch: Any, path: str = "", field: str = "") -> Any:
    """`base` with `patch` laid over it; neither is changed. `field` is the last part of `path`. How deep `patch`
    nests is bounded where specs are read (`api.convert`).

    Raises RenderError naming the path of what cannot be merged.
    """
    if isinstance(patch, Mapping):
        return _merge_maps(base if isinstance(base, Mapping) else {}, patch, path)
    if isinstance(patch, list | tuple):
        if is_keyed(field):
            return _merge_keyed(base if isinstance(base, list | tuple) else (), patch, path, field)
        return [merge(None, item, f"{path}[{index}]") for index, item in enumerate(patch)]
    return patch


def _merge_maps(base: Mapping[str, Any], patch: Mapping[str, Any], path: str) -> dict[str, Any]:
    merged = {} if _directive(patch, path) == "replace" else dict(base)
    for key, value in patch.items():
        if key == DIRECTIVE:
            continue
        where = f"{path}.{key}" if path else str(key)
        if value is None or (isinstance(value, Mapping) and _directive(value, where) == "delete"):
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value, where, str(key))
    return merged


def _merge_keyed(base: Sequence[Any], patch: Sequence[Any], path: str, field: str) -> list[Any]:
    whole = any(isinstance(item, Mapping) and dict(item) == {DIRECTIVE: "replace"} for item in patch)
    merged: dict[Any, Any] = {} if whole else {key_of(field, item): item for item in base}
    for index, item in enumerate(patch):
        if whole and isinstance(item, Mapping) and dict(item) == {DIRECTIVE: "replace"}:
            continue
        key = key_of(field, item)
        if key is None:
            raise RenderError(f"{path}[{index}] has no {KEYS[field][0][0]}; items of {field} are merged by it")
        where = f"{path}[{'/'.join(key)}]"
        if _directive(item, where) == "delete":
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), item, where)
    return list(merged.values())


def _directive(patch: Mapping[str, Any], path: str) -> str:
    """`merge`, `replace` or `delete`. Raises RenderError for any other directive: silence would mislead."""
    unknown = next((key for key in patch if isinstance(key, str) and key.startswith("$") and key != DIRECTIVE), None)
    if unknown is not None:
        raise RenderError(f"{path}.{unknown} is not supported; use `{DIRECTIVE}: delete` or `{DIRECTIVE}: replace`")
    found = patch.get(DIRECTIVE, "merge")
    if found not in ("merge", "replace", "delete"):
        raise RenderError(f"{path}.{DIRECTIVE} is {found!r}; use merge, replace or delete")
    return str(found)


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
