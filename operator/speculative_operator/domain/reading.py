"""Reads plain JSON that others wrote (templates, status, children, pods) without ever failing. Used by `render`, by
`reconcile.snapshot` and by the shell.

A missing value, or one of another type, reads as empty: a garbled object must not stop its own repair.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

LARGEST = 2**63 - 1


def at(value: Any, *path: str) -> Any:
    """The value below `path`, or None."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def mapping(value: Any, *path: str) -> Mapping[str, Any]:
    """The map below `path`, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, Mapping) else {}


def items(value: Any, *path: str) -> Sequence[Any]:
    """The list below `path`, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, list | tuple) else ()


def mappings(value: Any, *path: str) -> Iterator[Mapping[str, Any]]:
    """The maps in the list below `path`."""
    return (item for item in items(value, *path) if isinstance(item, Mapping))


def conditions_of(status: Any) -> dict[str, Mapping[str, Any]]:
    """Type -> condition, of the list `conditions` in a status."""
    return {text(one, "type"): one for one in mappings(status, "conditions")}


def text(value: Any, *path: str) -> str:
    """The string below `path`, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def seconds_of(time: str) -> float | None:
    """Unix seconds of an RFC 3339 time; None for any other text or a time without a zone."""
    try:
        found = datetime.fromisoformat(time)
        return found.timestamp() if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def whole(value: Any, *path: str) -> int:
    """The whole number below `path`, or 0."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and abs(found) <= LARGEST else 0


def parse_json(content: str) -> Any:
    """The value of JSON text that others may have written; None where the text is no JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def is_controlled_by(body: Any, uid: str) -> bool:
    """True where the object with this uid is the controller of `body`."""
    owners = mappings(body, "metadata", "ownerReferences")
    return any(one.get("controller") is True and text(one, "uid") == uid for one in owners)
