"""Where an object differs from the manifest it was made from. Used by `plan` to repair, and to name what changed.

Only what the manifest says is compared: defaults, injected containers and other managers' fields are none of our
business. The name of the first difference is the reason that people read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.formats import quantity
from speculative_operator.render.merge import is_keyed, key_of

_IDENTITY = frozenset({"name", "namespace"})
_QUANTITIES = frozenset({"limits", "requests"})
_EMPTY_MEANS = frozenset({"emptyDir"})
"""Fields whose empty map is a choice, and comes back as one."""
_ABSENT: Any = object()


def first_difference(desired: Mapping[str, Any], actual: Mapping[str, Any], applied: Any = None) -> str:
    """Path of the first field of `desired` that `actual` lacks or has with another value; empty without one.

    `applied`: the object that the API server returned when this very manifest was last applied, if known. Where it
    differs from the manifest, the server has normalised it, and `actual` is compared with it instead.
    """
    same = isinstance(applied, Mapping) and _hash(applied) == _hash(desired)
    normalised = applied if same else _ABSENT
    return _maps(desired, actual, normalised, "", "") or ""


def first_surplus(desired: Mapping[str, Any], actual: Mapping[str, Any]) -> str:
    """Path of the first item that a keyed list of `actual` has and that of `desired` has not; empty without one.

    Finds an item that the manifest no longer has, which `first_difference` cannot see.
    """
    return _surplus(desired, actual, "", "") or ""


def _hash(manifest: Mapping[str, Any]) -> Any:
    for part in ("metadata", "annotations"):
        inner = manifest.get(part)
        manifest = inner if isinstance(inner, Mapping) else {}
    return manifest.get(names.ANNOTATION_HASH)


def _compare(desired: Any, actual: Any, applied: Any, path: str, field: str) -> str | None:
    if desired == actual:
        return None
    if _empty(desired) and (actual is _ABSENT or _empty(actual)) and field not in _EMPTY_MEANS:
        return None
    if isinstance(desired, Mapping):
        return _maps(desired, actual, applied, path, field) if isinstance(actual, Mapping) else path
    if isinstance(desired, list | tuple):
        return _lists(desired, actual, applied, path, field) if isinstance(actual, list | tuple) else path
    if _equal(desired, actual, field):
        return None
    # Drift from what the server made of it, or the server's own doing.
    return None if applied is not _ABSENT and _equal(applied, actual, field) else path


def _maps(desired: Mapping[str, Any], actual: Mapping[str, Any], applied: Any, path: str, field: str) -> str | None:
    for key, value in desired.items():
        if key == names.ANNOTATION_HASH or (field == "metadata" and path == "metadata" and key in _IDENTITY):
            continue
        where = f"{path}.{key}" if path else str(key)
        known = isinstance(applied, Mapping)
        if key not in actual and known and key not in applied:
            continue  # the server dropped it when we applied it
        inner = applied.get(key, _ABSENT) if known else _ABSENT
        kind = field if field in _QUANTITIES else str(key)
        found = _compare(value, actual.get(key, _ABSENT), inner, where, kind)
        if found:
            return found
    return None


def _lists(desired: Sequence[Any], actual: Sequence[Any], applied: Any, path: str, field: str) -> str | None:
    known = applied if isinstance(applied, list | tuple) else ()
    if is_keyed(field) and all(key_of(field, item) is not None for item in desired):
        have, made = ({key_of(field, item): item for item in one} for one in (actual, known))
        places = [(item, key_of(field, item)) for item in desired]
        pairs = [(item, have.get(key, _ABSENT), made.get(key, _ABSENT), _show(key)) for item, key in places]
    elif len(desired) != len(actual):
        return None if isinstance(applied, list) and list(actual) == applied else path
    else:
        rest = (*known, *(_ABSENT for _ in desired))
        pairs = [(*three, str(index)) for index, three in enumerate(zip(desired, actual, rest, strict=False))]
    compared = (_compare(item, found, made_of, f"{path}[{where}]", "") for item, found, made_of, where in pairs)
    return next((one for one in compared if one), None)


def _surplus(desired: Any, actual: Any, path: str, field: str) -> str | None:
    if isinstance(desired, Mapping) and isinstance(actual, Mapping):
        pairs = [
            (value, actual.get(key), f"{path}.{key}" if path else str(key), str(key)) for key, value in desired.items()
        ]
    elif isinstance(desired, list | tuple) and isinstance(actual, list | tuple) and is_keyed(field):
        wanted = {key_of(field, item): item for item in desired}
        missing = next((key_of(field, item) for item in actual if key_of(field, item) not in wanted), None)
        if missing is not None:
            return f"{path}[{_show(missing)}]"
        have = {key_of(field, item): item for item in actual}
        pairs = [(item, have.get(key), f"{path}[{_show(key)}]", "") for key, item in wanted.items()]
    else:
        return None
    return next((found for pair in pairs if (found := _surplus(*pair))), None)


def _equal(desired: Any, actual: Any, field: str) -> bool:
    if desired == actual:
        return True
    if field in _QUANTITIES or field == "sizeLimit":
        value = quantity(desired)
        return value is not None and value == quantity(actual)
    return False


def _empty(value: Any) -> bool:
    """True for what Go's `omitempty` leaves out of an answer."""
    return value is None or value is False or value == 0 or value in ("", [], {}, ())


def _show(key: tuple[Any, ...] | None) -> str:
    return str(key[0]) if key else ""
