"""Writing status: whole, beside what somebody else has written into it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.shell.fakeapi import Call, FakeApi, FaultError
from tests.unit.shell.scene import owner

from speculative_operator.domain import names
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.errors import InvalidError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.report import Reporter, missing_fields, surplus, without
from speculative_operator.shell.resources import OWNER
from speculative_operator.shell.telemetry import Telemetry

OLD = {"replicas": 1, "pair": {"hash": "a", "failure": {"time": "2000-01-01T00:00:00Z"}}, "weights": {"text": "x"}}
NEW: dict[str, Any] = {"replicas": 2, "pair": {"hash": "a"}}


@pytest.fixture
def reporter(kube: Kube, telemetry: Telemetry) -> Reporter:
    return Reporter(kube, Cache(), telemetry, lambda: True)


async def written(api: FakeApi, reporter: Reporter) -> Any:
    body = await api.put(OWNER, {**owner(), "status": OLD})
    assert await reporter.status(body, NEW)
    return api.find(names.KIND)[0]["status"]


async def test_what_somebody_else_wrote_does_not_stay(api: FakeApi, reporter: Reporter) -> None:
    """An apply takes away what it applied before, and nothing of others."""
    api.theirs = ("pair", "weights")
    assert await written(api, reporter) == NEW
    assert len(api.writes()) == 2
    (body,) = api.find(names.KIND)
    assert await reporter.status(body, {**NEW, "replicas": 3})
    assert len(api.writes()) == 3, "once taken away it is gone"


async def test_where_nobody_else_wrote_one_write_does(api: FakeApi, reporter: Reporter) -> None:
    assert await written(api, reporter) == NEW
    assert len(api.writes()) == 1


async def test_what_somebody_else_wrote_may_make_the_rest_invalid(api: FakeApi, reporter: Reporter) -> None:
    """Half a failure lacks what is required of a whole one."""
    api.theirs = ("pair",)

    def half(call: Call) -> FaultError | None:
        (held,) = api.find(names.KIND)
        applied = "apply" in call.headers["Content-Type"] and "failure" in held["status"]["pair"]
        return FaultError(422, "status.pair.failure.reason: Required value", "Invalid") if applied else None

    api.failures.append(half)
    assert await written(api, reporter) == NEW


async def test_what_is_invalid_by_itself_is_raised(api: FakeApi, reporter: Reporter) -> None:
    api.failures.append(lambda call: FaultError(422, "status.replicas: Invalid value", "Invalid"))
    body = await api.put(OWNER, {**owner(), "status": NEW})
    with pytest.raises(InvalidError):
        await reporter.status(body, NEW)
    assert [bool(call.query.get("dryRun")) for call in api.writes()] == [False, True], "nothing was stored"


async def test_a_field_that_the_definition_does_not_declare_holds_up_no_status(
    api: FakeApi, reporter: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    """A CRD that is older than the operator refuses the whole of an apply for one field."""
    api.undeclared = ("ready",)
    wanted = {**NEW, "ready": "1/1"}
    body = await api.put(OWNER, {**owner(), "status": OLD})
    assert reporter.storable(wanted) == wanted
    assert await reporter.status(body, wanted)
    (body,) = api.find(names.KIND)
    assert body["status"] == reporter.storable(wanted) == NEW, "a reconcile finds nothing left to write"
    assert "without the fields ready" in caplog.text
    caplog.clear()
    assert await reporter.status(body, {**wanted, "replicas": 3})
    assert not caplog.text, "said once"
    (body,) = api.find(names.KIND)
    assert await reporter.status(body, NEW)
    assert reporter.storable(wanted) == NEW, "a status without the field tells nothing of it"
    api.undeclared = ()
    (body,) = api.find(names.KIND)
    assert await reporter.status(body, wanted)
    assert api.find(names.KIND)[0]["status"] == reporter.storable(wanted) == wanted, "the definition was applied"


def test_fields_that_are_not_stored_are_named_within_lists_too() -> None:
    sent = {"a": 1, "b": {"c": 1, "d": 2}, "e": [{"f": 1, "g": 1}, {"f": 2}]}
    stored = {"b": {"c": 1}, "e": [{"f": 1}, {"f": 2}]}
    missing = missing_fields(sent, stored)
    assert missing == {"a": None, "b": {"d": None}, "e": {"g": None}}
    assert without(sent, missing) == stored
    assert missing_fields(stored, stored) == {}


def test_surplus_names_what_is_to_go() -> None:
    found = {"a": {"b": 1, "c": {"d": 1}}, "e": 1, "conditions": [{"type": "Theirs"}]}
    assert surplus(found, {"a": {"b": 2}, "conditions": []}) == {"a": {"c": None}, "e": None}
    assert surplus(found, found) == {}
