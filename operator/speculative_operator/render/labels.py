"""Labels, owner and pair of an object's children. Used by `values` and by `reconcile` for status."""

from __future__ import annotations

import re
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.spec import DeploymentSpec, ModelSource
from speculative_operator.render.hashing import digest

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
        **names.selector(spec.name),
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


def _pin(source: ModelSource | None) -> str:
    if source is None:
        return ""
    # Where in a cache a version lies is no part of what it is: earlier releases kept them elsewhere.
    uri = source.uri.replace(f"/{names.CACHE_FOLDER}/", "/", 1)
    return f"{uri}@{source.revision}" + (f"#{source.content}" if source.content else "")
