"""Objects that belong to a SpeculativeDeployment, or that stand where one of its own would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import is_controlled_by, mapping, mappings, seconds_of, text, whole
from speculative_operator.reconcile.snapshot.tables import Written, read_table

_ASKED = ("Accepted", "ResolvedRefs")


@dataclass(frozen=True, slots=True)
class Child:
    """One such object."""

    kind: str
    """Its own kind: that of a stand-in for the workload is not the one that it is looked up by."""
    name: str
    uid: str = ""
    owned: bool = False
    """True when the SpeculativeDeployment is its controller."""
    owner: str = ""
    """Kind and name of its controller; empty without one."""
    deleting: bool = False
    created: float | None = None
    """unix seconds"""
    hash: str = ""
    """Hash of the manifest that it was last made of by the operator."""
    wanted: str = ""
    """Of a Job, the inputs that it was made for."""
    labels: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    """Of a ConfigMap."""
    table: Written = field(default_factory=Written)
    """Of a ConfigMap with a table."""
    refusal: str = ""
    """Why a Gateway does not take a route as it is now, in its words; empty where none says so."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The object as it is: to be compared with its manifest, not read."""


def read_child(key: tuple[str, str], body: Mapping[str, Any], uid: str) -> Child:
    """The child that is looked up by `key`, of the object `uid`."""
    annotations, data = mapping(body, "metadata", "annotations"), mapping(body, "data")
    owners = mappings(body, "metadata", "ownerReferences")
    owner = next((one for one in owners if one.get("controller") is True), None)
    return Child(
        kind=text(body, "kind") or key[0],
        name=key[1],
        uid=text(body, "metadata", "uid"),
        owned=is_controlled_by(body, uid),
        owner=f"{text(owner, 'kind')} {text(owner, 'name')}" if owner else "",
        deleting=bool(text(body, "metadata", "deletionTimestamp")),
        created=seconds_of(text(body, "metadata", "creationTimestamp")),
        hash=text(annotations, names.ANNOTATION_HASH),
        wanted=text(annotations, names.ANNOTATION_WANTED),
        labels=mapping(body, "metadata", "labels"),
        data=data,
        table=read_table(text(data, names.TABLE_KEY)) if names.TABLE_KEY in data else Written(),
        refusal=_refusal(body),
        body=body,
    )


def _refusal(route: Mapping[str, Any]) -> str:
    """Reason and message of the first Gateway that does not take this generation of a route; empty without one."""
    generation = whole(route, "metadata", "generation")
    for parent in mappings(route, "status", "parents"):
        for one in mappings(parent, "conditions"):
            refused = text(one, "type") in _ASKED and text(one, "status") == "False"
            if refused and whole(one, "observedGeneration") in (0, generation):
                return f"{text(one, 'reason')}: {text(one, 'message')}"
    return ""
