"""Metadata of an object's children: labels, owner, pair, and one hash per manifest, so that an unchanged child costs no
call. Used by the whole of `render`, and by `reconcile`, which compares hashes and writes the pair into status.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.spec import DeploymentSpec, ModelSource

COMPONENT = "inference"


def pair_hash(spec: DeploymentSpec) -> str:
    """Ten hexadecimal digits that change whenever verifier, speculator, a revision or the method changes.

    The pod template carries it, so that both models change together or not at all.
    """
    speculator = spec.speculator if spec.speculates else None
    parts = [
        _pin(spec.verifier.source),
        _pin(speculator.source) if speculator else "",
        str(speculator.method) if speculator else "",
    ]
    return digest(parts, 10)


def common(spec: DeploymentSpec) -> dict[str, str]:
    """Labels of every child: none of them changes in the life of the object unless its engine does."""
    return {
        "app.kubernetes.io/name": label_value(spec.engine.type.lower()),
        "app.kubernetes.io/instance": spec.name,
        "app.kubernetes.io/component": COMPONENT,
        **names.selector(spec.name, spec.candidate_of),
    }


def of_pods(spec: DeploymentSpec) -> dict[str, str]:
    """Labels of serving pods: the common ones, variant, pair and engine version."""
    labels = {
        **common(spec),
        names.LABEL_VARIANT: names.VARIANT_SPECULATIVE,
        names.LABEL_PAIR: pair_hash(spec),
    }
    version = label_value(spec.engine.version)
    return {**labels, names.LABEL_VERSION: version} if version else labels


def owner(spec: DeploymentSpec) -> dict[str, Any]:
    """The reference that makes a child belong to the object: the garbage collector deletes it with its owner."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": spec.name,
        "uid": spec.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def label_value(text: str) -> str:
    """`text` as a legal label value: at most 63 of letters, digits, `-_.`, beginning and ending with a letter or digit.

    Versions such as `0.11.0+rhai5` are common and illegal as they stand.
    """
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("-_.")


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


def _pin(source: ModelSource | None) -> str:
    if source is None:
        return ""
    # Where in a cache a version lies is no part of what it is.
    uri = source.uri.replace(f"/{names.CACHE_FOLDER}/", "/", 1)
    return f"{uri}@{source.revision}" + (f"#{source.content}" if source.content else "")
