"""etcd is restored from a snapshot, and the operator goes on in the world from before: it ignores what is edited after,
and makes again what no longer exists."""

from __future__ import annotations

import asyncio
import copy
import itertools

import pytest
from tests.unit.shell.fakeapi import FakeApi, eventually
from tests.unit.shell.scene import owner
from tests.unit.shell.test_operator import ready, running

from speculative_operator.shell.resources import CHILD_BY_KIND, OWNER

DEPLOYMENT = CHILD_BY_KIND["Deployment"]
KEY = ("ns", "gemma")


def restore(api: FakeApi, snapshot: dict[tuple[str, str, str], dict[str, object]], version: int) -> None:
    """As a restore of etcd: objects and versions go back, and watches know nothing of it."""
    lease = {ref: body for ref, body in api.objects.items() if ref[0] == "leases"}
    api.objects = {**snapshot, **lease}
    api._log.clear()
    api._versions, api.version = itertools.count(version + 1), version


@pytest.mark.parametrize("writes", [0, 2000])
async def test_after_a_restore_of_etcd_the_operator_starts_over(
    api: FakeApi, writes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`writes` of others that the restore undid: with many, the list is older than what is known; else it is the
    truth, because as many came after the restore."""
    await api.put(OWNER, owner())
    async with running() as run:
        await eventually(ready(api))
        await asyncio.sleep(1.5)
        snapshot, at = copy.deepcopy(api.objects), api.version
        for _ in range(writes):
            next(api._versions)
        await api.put(OWNER, {**owner(generation=3), "status": api.find(OWNER.kind)[0]["status"]})
        await eventually(lambda: api.find("Deployment")[0]["spec"]["replicas"] == 3)
        await asyncio.sleep(1.0)
        restore(api, snapshot, at if writes else api.version)
        await api.put(OWNER, {**owner(generation=2), "status": api.find(OWNER.kind)[0]["status"]})
        # A restored API server is a restarted one: its watches end, and begin anew with a list.
        run.operator.resync.asked.set()
        await eventually(lambda: (run.operator.cache.owner(KEY) or {}).get("spec", {}).get("replicas") == 2)
        await eventually(lambda: api.find("Deployment")[0]["spec"]["replicas"] == 2)
        await api.drop(DEPLOYMENT, "gemma")
        await eventually(lambda: bool(api.find("Deployment")))
        assert api.find("Deployment")[0]["spec"]["replicas"] == 2
        assert (await run.get("/healthz"))[0] == 200
        assert not run.task.done()
    assert ("starting over" in caplog.text) == bool(writes)
