"""Specs of the engines beside vLLM, for their tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.engines.building import spec

from speculative_operator.domain.spec import DEFAULT_VERSIONS, DeploymentSpec, EngineType, Method, Speculator
from speculative_operator.engines.registry import ENGINES


def of(kind: EngineType, method: Method | None, /, version: str = "", **others: Any) -> DeploymentSpec:
    """As `building.spec`, of another engine; `drafting` holds further fields of the speculator."""
    drafting: dict[str, Any] = others.pop("drafting", {})
    subject = spec(method, version=version or DEFAULT_VERSIONS[kind], **others)
    speculator: Speculator | None = subject.speculator
    if speculator is not None:
        speculator = replace(speculator, **drafting)
    return replace(subject, engine=replace(subject.engine, type=kind), speculator=speculator)


def refused(subject: DeploymentSpec, *parts: str, field: str = "") -> None:
    """`subject` is refused once, at `field`, in a text that holds all `parts`."""
    found = ENGINES[subject.engine.type].refusals(subject)
    assert len(found) == 1, found
    assert field in ("", found[0].field), found
    assert [part for part in parts if part not in found[0].message] == [], found[0].message
