"""What a user can do to an object while it is written fills the log with tracebacks, in which real faults drown."""

from __future__ import annotations

import logging

import pytest
from tests.unit.shell.fakeapi import Call, FakeApi, FaultError, eventually
from tests.unit.shell.scene import owner
from tests.unit.shell.test_operator import ready, running

from speculative_operator.shell.resources import OWNER

TERMINATING = FaultError(403, "unable to create: because it is being terminated", "Forbidden")
FAULTS = {
    "conflict": FaultError(409, "the object has been modified", "Conflict"),
    "gone": FaultError(404, "not found", "NotFound"),
    "terminating": TERMINATING,
    "forbidden": FaultError(403, "may not", "Forbidden"),
    "invalid": FaultError(422, "status is invalid", "Invalid"),
    "too large": FaultError(413, "request is too large", "RequestEntityTooLarge"),
    "throttled": FaultError(429, "too many", "TooManyRequests", {"Retry-After": "1"}),
    "broken": FaultError(500, "failed calling webhook", "InternalError"),
}


@pytest.mark.parametrize("target", ["status", "deployments"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_no_fault_of_a_write_leaves_a_traceback_or_stops_another_object(
    api: FakeApi, fault: str, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hit: list[Call] = []

    def failing(call: Call) -> FaultError | None:
        about = call.name or str(((call.body or {}).get("regarding") or {}).get("name", ""))
        if not call.write or not about.startswith("bad") or target not in (call.plural, call.subresource):
            return None
        hit.append(call)
        return FAULTS[fault]

    api.failures.append(failing)
    await api.put(OWNER, owner(name="bad"))
    async with running() as run:
        await eventually(lambda: bool(hit))
        await api.put(OWNER, owner(name="gemma"))
        await eventually(lambda: bool((api.find(OWNER.kind, "gemma")[0].get("status") or {}).get("conditions")))
        await api.drop(OWNER, "bad")
        await api.put(OWNER, owner(generation=2, name="gemma"))
        await eventually(lambda: api.find("Deployment", "gemma")[0]["spec"]["replicas"] == 2)
        assert not run.task.done()
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.exc_info]


async def test_an_object_deleted_under_its_visit_is_forgotten(api: FakeApi, caplog: pytest.LogCaptureFixture) -> None:
    await api.put(OWNER, owner())
    async with running() as run:
        await eventually(ready(api))
        await api.drop(OWNER, "gemma", silently=True)
        run.operator.queue.add(("ns", "gemma"), urgent=True)
        run.operator.resync.asked.set()
        await eventually(lambda: len(run.operator.cache) == 0)
    assert not [record for record in caplog.records if record.exc_info]
