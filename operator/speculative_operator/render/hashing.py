"""One hash per manifest, an annotation on the child: an unchanged child costs no call. Used by render and reconcile."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(value: Any, digits: int = 64) -> str:
    """The first `digits` hexadecimal digits of the sha256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:digits]


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    """sha256, in hexadecimal, of the canonical JSON of `manifest` without its own hash annotation."""
    metadata = manifest["metadata"]
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if key != names.ANNOTATION_HASH}
    bare = {**manifest, "metadata": {**metadata, "annotations": annotations}}
    return digest(bare)


def with_hash(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """`manifest` with its hash annotation."""
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), names.ANNOTATION_HASH: manifest_hash(manifest)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}
