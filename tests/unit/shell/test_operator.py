"""The whole process against the fake API server, with the real tick: start, work, restart, hand-over, stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tests.unit.shell.fakeapi import FakeApi, eventually
from tests.unit.shell.scene import owner

from speculative_operator import app
from speculative_operator.domain import names
from speculative_operator.settings import Settings
from speculative_operator.shell.leader import LostLeadershipError
from speculative_operator.shell.operator import Operator
from speculative_operator.shell.resources import CHILD_BY_KIND, LEASE, OWNER, POD_MONITOR
from speculative_operator.shell.telemetry import Endpoints

DEPLOYMENT = CHILD_BY_KIND["Deployment"]
QUICK: dict[str, Any] = {
    "tick_seconds": 1.0,
    "prometheus_timeout_seconds": 0.2,
    "prometheus_url": "http://127.0.0.1:1",
    "http_host": "127.0.0.1",
    "http_port": 0,
    "lease_namespace": "ns",
    "lease_duration_seconds": 3,
    "read_timeout_seconds": 2.0,
}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speculative_operator.shell.operator.PATIENCE", 0.2)


class Running:
    def __init__(self, operator: Operator, endpoints: Endpoints, task: asyncio.Task[None]) -> None:
        self.operator = operator
        self.endpoints = endpoints
        self.task = task

    async def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.endpoints.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Running]:
    """An operator in this loop; stopped as by SIGTERM at the end, within its five seconds."""
    operator = app.compose(Settings(**{**QUICK, **settings}))
    endpoints = Endpoints("127.0.0.1", 0, operator.telemetry, operator.healthy, operator.ready)
    task = asyncio.create_task(operator.run(endpoints))
    try:
        yield Running(operator, endpoints, task)
    finally:
        operator.stop.set()
        async with asyncio.timeout(30.0):
            await asyncio.gather(task, return_exceptions=True)


def ready(api: FakeApi) -> Callable[[], bool]:
    """True once the object has a status."""
    return lambda: bool(api.find(OWNER.kind) and api.find(OWNER.kind)[0].get("status"))


async def test_an_object_gets_its_children_and_a_status_and_then_peace(api: FakeApi) -> None:
    async with running() as run:
        await eventually(run.operator.informer.started.is_set)
        await api.put(OWNER, owner())
        await eventually(ready(api))
        kinds = {plural for plural, _, _ in api.objects} - {"leases", "events", OWNER.plural}
        assert kinds == {"deployments", "services", "configmaps", "networkpolicies"}
        reference = api.find("Deployment")[0]["metadata"]["ownerReferences"][0]
        assert (reference["kind"], reference["controller"]) == (names.KIND, True)
        await asyncio.sleep(1.2)
        api.calls.clear()
        await asyncio.sleep(2.2)
        assert api.writes() == []
        assert all(call.plural == "leases" for call in api.calls), "at rest nothing is even read"
        assert await run.get("/healthz") == (200, "ok\n")
        assert await run.get("/readyz") == (200, "ok\n")
        status, text = await run.get("/metrics")
        assert status == 200
        assert 'speculative_operator_ticks_total{outcome="quiet",reason=""}' in text
        assert "speculative_operator_leader 1.0" in text


async def test_a_deleted_child_comes_back_and_a_hand_edit_goes(api: FakeApi) -> None:
    await api.put(OWNER, owner())
    async with running():
        await eventually(ready(api))
        await api.drop(DEPLOYMENT, "gemma")
        await eventually(lambda: bool(api.find("Deployment")))
        edited = api.find("Deployment")[0]
        edited = {**edited, "spec": {**edited["spec"], "replicas": 7}}
        await api.put(DEPLOYMENT, edited)
        await eventually(lambda: api.find("Deployment")[0]["spec"]["replicas"] == 1)


async def test_a_restart_changes_nothing(api: FakeApi) -> None:
    await api.put(OWNER, owner())
    async with running():
        await eventually(ready(api))
        await asyncio.sleep(1.5)
    before = dict(api.objects)
    api.calls.clear()
    async with running() as run:
        await eventually(lambda: 'outcome="quiet"' in run.operator.telemetry.render().decode())
        await asyncio.sleep(1.0)
    assert api.writes() == []
    changed = {ref for ref in before if before[ref] != api.objects.get(ref)} - {("leases", "ns", names.OPERATOR)}
    assert not changed


async def test_a_deletion_that_no_watch_told_is_found_by_listing(api: FakeApi) -> None:
    await api.put(OWNER, owner())
    async with running(resync_seconds=10.0) as run:
        await eventually(ready(api))
        await api.drop(DEPLOYMENT, "gemma", silently=True)
        run.operator.resync.asked.set()
        await eventually(lambda: bool(api.find("Deployment")))


async def test_a_deletion_between_our_listing_and_the_watches_is_found_soon(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.put(OWNER, owner())
    async with running():
        await eventually(ready(api))
    async with running() as run:
        real, listed = run.operator.informer.run, asyncio.Event()

        async def late(watched: Any, stop: asyncio.Event) -> None:
            await listed.wait()
            await real(watched, stop)

        monkeypatch.setattr(run.operator.informer, "run", late)
        await eventually(run.operator._synced.is_set)
        await api.drop(DEPLOYMENT, "gemma", silently=True)
        listed.set()
        await eventually(lambda: bool(api.find("Deployment")))


async def test_a_second_operator_waits_and_takes_over_when_the_first_stops(api: FakeApi) -> None:
    async with running() as first:
        await eventually(first.operator.leads)
        async with running() as second:
            await eventually(second.operator.informer.started.is_set)
            await api.put(OWNER, owner())
            await eventually(ready(api))
            assert not second.operator.leads()
            assert await second.get("/readyz") == (200, "ok\n"), "a replica in waiting is well"
            assert await second.get("/healthz") == (200, "ok\n")
            first.operator.stop.set()
            await eventually(second.operator.leads, 2.5)
            await api.drop(DEPLOYMENT, "gemma")
            await eventually(lambda: bool(api.find("Deployment")))


async def test_losing_the_lease_ends_the_process(api: FakeApi) -> None:
    async with running() as run:
        await eventually(run.operator.leads)
        lease = api.find("Lease")[0]
        await api.put(LEASE, {**lease, "spec": {**lease["spec"], "holderIdentity": "thief", "renewTime": "now"}})
        with pytest.raises(LostLeadershipError, match="thief"):
            async with asyncio.timeout(30.0):
                await run.task


async def test_it_waits_for_the_api_server_and_for_our_kind(api: FakeApi) -> None:
    everything, api.resources = api.resources, ()
    async with running() as run:
        await asyncio.sleep(0.3)
        assert (await run.get("/readyz"))[0] == 503
        assert (await run.get("/healthz"))[0] == 200
        api.resources = everything
        await eventually(run.operator.informer.started.is_set)
        await eventually(run.operator.leads)


async def test_an_optional_kind_that_appears_is_used_and_watched(api: FakeApi) -> None:
    await api.put(OWNER, owner())
    async with running() as run:
        await eventually(ready(api))
        api.resources = (*api.resources, POD_MONITOR)
        run.operator.resync.asked.set()
        await eventually(lambda: bool(api.find("PodMonitor")), 10.0)
        await eventually(lambda: any(c.plural == "podmonitors" and "watch" in c.query for c in api.calls), 10.0)
        await api.drop(POD_MONITOR, "gemma")
        await eventually(lambda: bool(api.find("PodMonitor")), 10.0)
        assert not run.task.done()


async def test_a_visit_that_breaks_is_logged_and_tried_again(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as run:
        await eventually(run.operator.leads)
        real, broken = run.operator.reconciler.reconcile, [RuntimeError("boom"), asyncio.CancelledError()]

        async def sometimes(key: Any) -> float | None:
            if broken:
                raise broken.pop(0)
            return await real(key)

        monkeypatch.setattr(run.operator.reconciler, "reconcile", sometimes)
        await api.put(OWNER, owner())
        await eventually(ready(api), 10.0)
    assert "boom" in caplog.text


def test_bad_settings_end_the_program_with_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("SPECULATIVE_TICK_SECONDS", "often")
    assert app.main(["--kubeconfig", "named"]) == app.EXIT_SETTINGS
    assert "SPECULATIVE_TICK_SECONDS='often'" in capsys.readouterr().err


async def test_what_is_being_written_is_finished_before_the_end(api: FakeApi) -> None:
    async with running() as run:
        await eventually(run.operator.leads)
        await eventually(run.operator.informer.started.is_set)
        api.delay = 0.4
        await api.put(OWNER, owner())
        await eventually(lambda: bool(run.operator.queue.reconciling))
        await asyncio.sleep(0.1)
    assert {plural for plural, _, _ in api.objects} >= {"deployments", "services", "configmaps", "networkpolicies"}
    assert api.find(OWNER.kind)[0]["status"]["observedGeneration"] == 1
