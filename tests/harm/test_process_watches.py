"""One kind that cannot be watched ends the operator for all objects; a webhook that fails shows only in its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from aiohttp import web
from tests.unit.shell.fakeapi import Call, FakeApi, FaultError, eventually
from tests.unit.shell.scene import owner
from tests.unit.shell.test_operator import ready, running

from speculative_operator.shell.resources import CHILD_BY_KIND, OWNER, POD_MONITOR, Resource

DEPLOYMENT = CHILD_BY_KIND["Deployment"]
SOON = 20.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speculative_operator.shell.operator.PATIENCE", 0.1)
    monkeypatch.setattr("speculative_operator.shell.operator.LONGEST_PAUSE", 0.2)
    monkeypatch.setattr("speculative_operator.shell.watches.LONGEST_PAUSE", 0.2)
    monkeypatch.setattr("speculative_operator.shell.informer.BACKOFFS", (0.1,))


def fails(plural: str, status: int, *, only_watch: bool = False) -> Callable[[Call], FaultError | None]:
    def failing(call: Call) -> FaultError | None:
        reads = call.method == "GET" and not call.name and (not only_watch or "watch" in call.query)
        return FaultError(status, "no such luck") if call.plural == plural and reads else None

    return failing


@pytest.mark.parametrize("status", [403, 404, 500, 503])
async def test_an_optional_kind_that_may_not_be_read_never_stops_serving(
    api: FakeApi, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    api.resources = (*api.resources, POD_MONITOR)
    api.failures.append(fails("podmonitors", status))
    await api.put(OWNER, owner())
    async with running() as run:
        await eventually(ready(api), SOON)
        await eventually(lambda: "podmonitors" in run.operator.informer.watches.failing, SOON)
        await api.put(OWNER, owner(name="later"))
        await eventually(lambda: bool(api.find("Deployment", "later")), SOON)
        assert (await run.get("/healthz"))[0] == 200
        assert 'unwatched{resource="podmonitors"} 1.0' in (await run.get("/metrics"))[1]
        api.failures.clear()
        await eventually(lambda: not run.operator.informer.watches.failing, SOON)
        assert not run.task.done()
    assert "cannot list" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("plural", ["deployments", OWNER.plural])
async def test_a_vital_kind_that_may_not_be_watched_is_listed_instead(api: FakeApi, plural: str) -> None:
    api.failures.append(fails(plural, 403, only_watch=True))
    await api.put(OWNER, owner())
    async with running() as run:
        await eventually(ready(api), SOON)
        await eventually(lambda: plural in run.operator.informer.watches.failing, SOON)
        await api.drop(DEPLOYMENT, "gemma")
        await eventually(lambda: bool(api.find("Deployment")), SOON)
        await api.put(OWNER, owner(name="later"))
        await eventually(lambda: bool(api.find("Deployment", "later")), SOON)
        assert not run.task.done()


@pytest.mark.parametrize("plural", ["deployments", "pods", "configmaps", OWNER.plural])
async def test_nothing_is_written_while_a_vital_kind_is_out_of_sight(
    api: FakeApi, plural: str, caplog: pytest.LogCaptureFixture
) -> None:
    await api.put(OWNER, owner())
    api.failures.append(fails(plural, 403))
    async with running() as run:
        await eventually(lambda: plural in run.operator.resync.missing(), SOON)
        await eventually(lambda: plural in caplog.text, SOON)
        assert api.writes() == []
        api.failures.clear()
        await eventually(ready(api), SOON)
        assert not run.task.done()


async def test_an_error_within_a_watch_never_ends_the_process(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [
        b'{"type":"ERROR","object":{"code":500,"message":"conversion webhook failed"}}\n',
        b'{"type":"ERROR","object":{"code":410,"message":"too old"}}\n',
        b'{"type":"ERROR"}\n',
        b"<html>\n",
        b"\n",
        b'{"type":"ADDED","object":{"metadata',
    ]
    real = api._watch

    async def watch(request: web.Request, call: Call) -> web.StreamResponse:
        if call.plural != OWNER.plural or not lines:
            return await real(request, call)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(lines.pop(0))
        await response.write_eof()
        return response

    monkeypatch.setattr(api, "_watch", watch)
    async with running() as run:
        await eventually(lambda: not lines, SOON)
        await api.put(OWNER, owner())
        await eventually(ready(api), SOON)
        assert not run.task.done()
    assert "conversion webhook failed" in caplog.text


async def test_an_informer_that_breaks_never_ends_the_process(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as run:
        real, broken = run.operator.informer.run, [RuntimeError("boom")]

        async def sometimes(*given: object) -> None:
            if broken:
                raise broken.pop()
            await real(*given)  # type: ignore[arg-type]  # passed on as they came

        monkeypatch.setattr(run.operator.informer, "run", sometimes)
        await eventually(lambda: not broken, SOON)
        await api.put(OWNER, owner())
        await eventually(ready(api), SOON)
    assert "boom" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_webhook_that_fails_is_told_by_its_object_and_stops_no_other(
    api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    def failing(call: Call) -> FaultError | None:
        broken = call.write and call.plural == "deployments" and call.namespace == "bad"
        return FaultError(500, 'failed calling webhook "mutate.example.com": deadline exceeded') if broken else None

    def told(namespace: str) -> str:
        status = api.find(OWNER.kind, namespace=namespace)[0].get("status") or {}
        return str(status.get("conditions") or "")

    api.failures.append(failing)
    bad = owner()
    await api.put(OWNER, {**bad, "metadata": {**bad["metadata"], "namespace": "bad"}})
    async with running() as run:
        await api.put(OWNER, owner())
        await eventually(ready(api), SOON)
        await eventually(lambda: "WriteFailed" in told("bad"), SOON)
        assert "mutate.example.com" in told("bad")
        assert "WriteFailed" not in told("ns")
        assert (await run.get("/healthz"))[0] == 200
    assert "Traceback" not in caplog.text


async def test_a_child_that_may_not_be_read_is_told_as_such(api: FakeApi) -> None:
    await api.put(OWNER, owner())
    async with running():
        await eventually(ready(api), SOON)
    # A new process that may neither list nor read Services finds its own by the conflict alone.
    forbidden = FaultError(403, "services is forbidden")
    api.failures.append(lambda call: forbidden if (call.plural, call.method) == ("services", "GET") else None)
    async with running():
        await eventually(lambda: "services is forbidden" in str(api.find(OWNER.kind)[0]["status"]["conditions"]), SOON)


async def test_a_webhook_that_hangs_is_told_by_its_object_and_stops_no_other(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = api._answer

    async def answer(resource: Resource, call: Call) -> web.Response:
        if call.write and call.plural == "deployments" and call.namespace == "bad":
            await asyncio.Event().wait()
        return await real(resource, call)

    monkeypatch.setattr(api, "_answer", answer)
    monkeypatch.setattr("speculative_operator.shell.kube.SLOW", 0.05)
    for number in range(4):
        bad = owner(name=f"bad-{number}")
        await api.put(OWNER, {**bad, "metadata": {**bad["metadata"], "namespace": "bad"}})
    async with running(write_slots=2, workers=4, read_timeout_seconds=1.0) as run:
        await eventually(lambda: any(call.namespace == "bad" for call in api.writes("deployments")), SOON)
        await api.put(OWNER, owner())
        await eventually(ready(api), SOON)
        await eventually(lambda: "WriteFailed" in str(api.find(OWNER.kind, namespace="bad")), 60.0)
        assert (await run.get("/healthz"))[0] == 200
