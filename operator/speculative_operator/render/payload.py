"""The plug-in's files as one ConfigMap a namespace, which pods of all its objects mount. Used by `podspec`, by
`reconcile`, and by `shell`, which collects what no pod mounts any more.

The name holds the digest of the content and the ConfigMap is immutable, so that no pod runs code that its template was
not made with. It is nobody's child: docs/decisions/0006-files-of-pods.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import at, mapping, text
from speculative_operator.render.environment import render_manifest
from speculative_operator.render.metadata import digest, with_hash

PREFIX = "speculative-payload-"


@cache
def files() -> dict[str, str]:
    """File name -> text of the plug-in's files, which are part of this distribution. A test holds them to the
    package's own list."""
    folder = resources.files("speculative_operator.payload")
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".py"))
    return {name: folder.joinpath(name).read_text(encoding="utf-8") for name in found if name != "__init__.py"}


@cache
def name() -> str:
    """Name of the ConfigMap that holds the files of this release."""
    return name_of(files())


def name_of(content: Mapping[str, str]) -> str:
    """Name of the ConfigMap that holds `content`."""
    return f"{PREFIX}{digest(dict(content), 12)}"


def payload_config(namespace: str) -> dict[str, Any]:
    """The ConfigMap that holds the files of this release."""
    values = {"name": name(), "namespace": namespace, "labels": {names.LABEL_MANAGED_BY: names.OPERATOR}}
    return with_hash(render_manifest("configmap", {**values, "owner": None, "data": files(), "immutable": True}))


def is_payload(body: Mapping[str, Any]) -> bool:
    """True for a ConfigMap that an operator of any release has made of its plug-in's files: it bears our label, nobody
    can change it, and its name is that of its content."""
    told = text(body, "metadata", "name")
    if not told.startswith(PREFIX) or text(body, "metadata", "labels", names.LABEL_MANAGED_BY) != names.OPERATOR:
        return False
    return at(body, "immutable") is True and name_of({**mapping(body, "data")}) == told
