"""One object that nests without end ends the operator for all objects, at once and after each restart."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.shell.fakeapi import DEEP, FakeApi, eventually
from tests.unit.shell.scene import owner
from tests.unit.shell.test_operator import running

from speculative_operator.api.convert import SpecError, to_domain
from speculative_operator.shell.errors import DEEPEST, parse
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import OWNER

LEVELS = (60, 200, 600, 1200, 9990)


def poison(name: str = "poison") -> dict[str, Any]:
    body = owner(name=name)
    return {**body, "spec": {**body["spec"], "template": {"spec": {"x": DEEP}}}}


def refused(api: FakeApi, name: str) -> bool:
    conditions = (api.find(OWNER.kind, name)[0].get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["reason"] == "SpecInvalid" for one in conditions)


def served(api: FakeApi, name: str) -> bool:
    return bool(api.find("Deployment", name))


@pytest.mark.parametrize("levels", [600, 1200, 9990])
async def test_a_poisonous_object_never_hides_the_others_of_a_list(api: FakeApi, kube: Kube, levels: int) -> None:
    api.levels = levels
    await api.put(OWNER, poison())
    await api.put(OWNER, owner(name="good"))
    assert [one["metadata"]["name"] async for one in kube.list(OWNER)] == ["good", "poison"]


@pytest.mark.parametrize("levels", [600, 9990])
async def test_a_poisonous_object_costs_nobody_else_anything(
    api: FakeApi, levels: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    api.levels = levels
    await api.put(OWNER, poison("listed"))
    await api.put(OWNER, owner(name="before"))
    async with running() as run:
        await eventually(lambda: served(api, "before") and refused(api, "listed"))
        await eventually(run.operator.informer.started.is_set)
        await api.put(OWNER, poison("watched"))
        await api.put(OWNER, owner(name="after"))
        await eventually(lambda: served(api, "after") and refused(api, "watched"))
        assert not served(api, "listed")
        assert not served(api, "watched")
        assert not run.task.done()
        assert run.operator.informer.watches.failing == frozenset()
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("levels", LEVELS)
def test_what_nests_too_deep_is_refused_by_name(levels: int) -> None:
    nested = parse(json.dumps(poison()).replace(f'"{DEEP}"', '{"a":' * levels + "1" + "}" * levels).encode())
    if levels <= 60:
        to_domain(nested)
        return
    with pytest.raises(SpecError, match=r"^spec\.template\.spec\.x.* is .*64 levels.*: use at most 64 levels"):
        to_domain(nested)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(['}{"', "[[[[", "\\", '\\"]']),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(VALUES, st.sampled_from(['{"a":', "["]), st.integers(0, 3000))
def test_cutting_what_nests_too_deep_changes_nothing_else(value: Any, opener: str, levels: int) -> None:
    assume('"D"' not in json.dumps(value))
    closer = "}" if "{" in opener else "]"
    text = json.dumps({"before": value, "deep": "D", "after": value})
    data = text.replace('"D"', opener * levels + "1" + closer * levels).encode()
    found = parse(data)
    assert found["before"] == value == found["after"]
    inner, depth = found["deep"], 0
    while isinstance(inner, dict | list):
        inner, depth = (inner["a"] if isinstance(inner, dict) else inner[0]), depth + 1
    assert depth == min(levels, DEEPEST - 1)
    assert inner == (1 if levels < DEEPEST else None)


@given(st.binary(max_size=200))
def test_what_is_not_json_is_never_worse_than_not_json(data: bytes) -> None:
    try:
        parse(b"[" * 200 + data)
    except ValueError:
        return
