"""What the user asked and what the operator found out are two types, and neither takes the other's place."""

from __future__ import annotations

import ast
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.reconcile.choosing import LEFT, Choosing
from tests.unit.reconcile.paired import COMMITS, EAGLE, VERIFIER, advance, serving

from speculative_operator import reconcile
from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.reconcile.children.desired import desired_children
from speculative_operator.reconcile.pair.pinning import PairedSpec
from speculative_operator.reconcile.snapshot.take import Snapshot


def leaves(value: Any, path: str = "") -> set[str]:
    found = set()
    for one in fields(value):
        inner, below = getattr(value, one.name), f"{path}{one.name}"
        found |= leaves(inner, f"{below}.") if is_dataclass(inner) else {below}
    return found


def test_a_spec_of_the_user_has_no_place_for_what_was_found() -> None:
    spec = serving().spec
    resolved = resolve(spec)
    found = leaves(resolved) - leaves(spec)
    assert found == {"engine.live", "engine.startup_seconds", "weights.bytes", "weights.verifier_bytes"}
    with pytest.raises(TypeError):
        replace(spec.weights, bytes=1)  # type: ignore[call-arg]


def test_what_holds_until_something_is_found_is_the_same_for_both() -> None:
    spec = serving().spec
    resolved = resolve(spec)
    assert (spec.engine.live, spec.engine.startup_seconds, spec.weights.bytes) == (True, 0, 0)
    assert (resolved.engine.live, resolved.engine.startup_seconds, resolved.weights.bytes) == (True, 0, 0)
    assert resolve(replace(resolved, weights=replace(resolved.weights, bytes=7))).weights.bytes == 7


def test_children_are_made_of_a_resolved_spec_beside_the_spec_as_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[DeploymentSpec, ResolvedSpec]] = []

    def watched(world: Snapshot, choice: PairedSpec, *rest: Any, **more: Any) -> Any:
        seen.append((world.spec, choice.pinned))
        return desired_children(world, choice, *rest, **more)

    monkeypatch.setattr("speculative_operator.reconcile.tick.desired_children", watched)
    cluster = Choosing()
    advance(cluster)
    asked, resolved = seen[-1]
    assert asked is cluster.spec
    assert asked == LEFT
    assert type(resolved) is ResolvedSpec
    assert resolved.speculator is not None
    assert resolved.speculator.source is not None
    versions = (resolved.verifier.source.revision, resolved.speculator.source.revision)
    assert versions == (COMMITS[VERIFIER], COMMITS[EAGLE])


def test_no_part_of_reconcile_puts_another_spec_into_the_world() -> None:
    put = [
        module.name
        for module in sorted(Path(str(reconcile.__file__)).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "replace" and node.args
        if ast.unparse(node.args[0]).rpartition(".")[2].lstrip("_") in ("world", "asked")
        if any(one.arg == "spec" for one in node.keywords)
    ]
    assert put == ["canary.py"], "but for the weight that the user leaves to an analysis"
