"""What pods were made of, by literal values: no release may replace the pods of every object by accident.

A Deployment bears a hash of what was asked of its pods (`upgrade.made_of`). A release that tells another hash
for the same request replaces the pods of every such object as soon as it starts. The literals are borne by
Deployments that run, so there is no `--regenerate` for them: another one is a decision, told in CHANGELOG.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from tests.golden.case import HERE, Case

from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.reconcile.children import upgrade
from speculative_operator.reconcile.pair.pinning import unpinned
from speculative_operator.reconcile.pair.verdicts import tuner_facts
from speculative_operator.reconcile.table.active_table import ActiveTable
from speculative_operator.reconcile.table.deciding import policy_of
from speculative_operator.render.metadata import digest, manifest_hash, pair_hash

SOURCE = HERE / "made-of.yaml"
PINNED: dict[str, Any] = yaml.safe_load(SOURCE.read_text())
OBJECTS: dict[str, dict[str, Any]] = {one["name"]: one for one in PINNED["objects"]}
REMEDY = (
    "with this the next release replaces the pods of every object like it as soon as it starts. Have the hash told as "
    f"before. Where these pods must really be replaced: change {SOURCE.name} by hand and say so in CHANGELOG.md"
)


def made_of(name: str) -> tuple[str, str]:
    """What the Deployment of one object bears, and the hash of its pair."""
    one = OBJECTS[name]
    case = Case({"metadata": {"name": name}, "spec": one["spec"]}, one)
    assert case.engine.refusals(case.spec) == ()
    knobs = case.engine.knobs(case.spec)
    policy = policy_of(case.spec, knobs=knobs, facts=tuner_facts(case.spec, None))
    active = ActiveTable(None if knobs.actuator is Actuator.NONE else case.table, version=3)
    return upgrade.made_of(unpinned(resolve(case.spec)), policy, active), pair_hash(case.spec)


@pytest.mark.parametrize("name", OBJECTS)
def test_what_pods_were_made_of_is_told_as_by_the_release_before(name: str) -> None:
    one = OBJECTS[name]
    assert made_of(name) == (one["madeOf"], one["pair"]), REMEDY


def test_the_hashes_themselves_are_made_as_before() -> None:
    value = {"b": [1, 2.5, None, True], "a": {"ü": "text"}}
    manifest = {"kind": "Service", "metadata": {"name": "x", "annotations": {"a": "b"}}, "spec": value}
    assert digest(value, 16) == "e1478369f4a4a584", REMEDY
    assert manifest_hash(manifest) == "f1d32789fe4740d6d88ee1fd053efb138b41566fe7265b5f6ce5bbf7d0beebf6", REMEDY


def leaves(kind: Any, path: str = "", told: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Each field that is hashed, by the name under which it is, with the value that counts for nothing."""
    hints = get_type_hints(kind)
    for one in fields(kind):
        below = f"{path}.{one.name}" if path else one.name
        if upgrade.is_not_of_pods(one) or below == "engine.version":  # what goes without saying changes with releases
            continue
        plain = one.default if one.default_factory is MISSING else one.default_factory()
        hashed = (*told, one.name)
        yield ".".join(hashed), shown(plain)
        for part in get_args(hints[one.name]) or (hints[one.name],):
            if is_dataclass(part) and part is not KTable:
                yield from leaves(part, below, hashed)


def shown(value: Any) -> str:
    if value is MISSING:
        return "must be given"
    if is_dataclass(value):
        return "of its fields"
    return str(value.value) if isinstance(value, Enum) else str(value)


def test_no_field_that_is_hashed_is_renamed_and_none_gets_another_default() -> None:
    found = dict(leaves(ResolvedSpec))
    gone = {name: default for name, default in PINNED["fields"].items() if found.get(name) != default}
    assert gone == {}, f"gone, renamed or with another default; {REMEDY}"
    new = {name: default for name, default in found.items() if name not in PINNED["fields"]}
    assert new == {}, f"write each new field with its default into {SOURCE.name}: from then on it keeps both"
