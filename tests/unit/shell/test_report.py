"""Writing status: whole, beside what somebody else has written into it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.shell.fakeapi import FakeApi, FaultError, merged
from tests.unit.shell.scene import KEY, owner
from tests.unit.shell.test_reconciler import Rig

from speculative_operator.domain import names
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.errors import InvalidError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.report import Reporter, replacing
from speculative_operator.shell.resources import OWNER
from speculative_operator.shell.telemetry import Telemetry

OLD = {"replicas": 1, "pair": {"hash": "a", "failure": {"time": "2000-01-01T00:00:00Z"}}, "weights": {"text": "x"}}
NEW: dict[str, Any] = {"replicas": 2, "pair": {"hash": "a"}}
STATUSES = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(st.integers() | st.lists(st.integers()), lambda one: st.dictionaries(st.sampled_from("abc"), one)),
)


@pytest.fixture
def reporter(kube: Kube, telemetry: Telemetry) -> Reporter:
    return Reporter(kube, Cache(), telemetry, lambda: True)


async def test_one_write_leaves_nothing_of_what_somebody_else_wrote(api: FakeApi, reporter: Reporter) -> None:
    """Half a failure lacks what is required of a whole one, and would make every status invalid."""
    body = await api.put(OWNER, {**owner(), "status": OLD})
    assert await reporter.status(body, NEW) == NEW
    assert api.find(names.KIND)[0]["status"] == NEW
    (call,) = api.writes()
    assert (call.subresource, call.body["metadata"]) == ("status", {"uid": body["metadata"]["uid"]})


async def test_another_object_by_the_same_name_gets_no_status(api: FakeApi, reporter: Reporter) -> None:
    body = await api.put(OWNER, owner())
    await api.drop(OWNER, "gemma")
    assert await reporter.status(body, NEW) is None
    await api.put(OWNER, owner())
    assert await reporter.status(body, NEW) is None
    assert "status" not in api.find(names.KIND)[0]


async def test_what_is_invalid_by_itself_is_raised(api: FakeApi, reporter: Reporter) -> None:
    api.failures.append(lambda call: FaultError(422, "status.replicas: Invalid value", "Invalid"))
    body = await api.put(OWNER, {**owner(), "status": NEW})
    with pytest.raises(InvalidError):
        await reporter.status(body, NEW)


async def test_a_field_that_the_definition_does_not_declare_is_not_written_again_and_again(
    api: FakeApi, kube: Kube, telemetry: Telemetry
) -> None:
    """The definition may be older than the operator: helm upgrades no definitions."""
    rig = Rig(api, kube, telemetry)
    api.undeclared = ("ready",)
    await rig.begin(status=OLD)
    rig.plan = lambda _: ((), {**NEW, "ready": "1/1"}, ())
    for _ in range(3):
        await rig.reconciler.reconcile(KEY)
    assert rig.status == NEW
    assert len(api.writes()) == 1
    rig.plan = lambda _: ((), {**NEW, "ready": "2/2"}, ())
    api.undeclared = ()
    await rig.reconciler.reconcile(KEY)
    assert rig.status == {**NEW, "ready": "2/2"}


@given(STATUSES, STATUSES)
def test_the_patch_makes_what_is_wanted_of_what_was_found(found: Any, wanted: Any) -> None:
    assert merged(found, replacing(found, wanted)) == wanted
