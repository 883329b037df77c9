"""kopf against the fake API server: what is watched, what reaches the cache, and what wakes whom."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.unit.shell.fakeapi import FakeApi, eventually
from tests.unit.shell.scene import KEY, manifest, owner

from speculative_operator.settings import Settings
from speculative_operator.shell.bodies import Key
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.informer import Informer
from speculative_operator.shell.queue import Queue
from speculative_operator.shell.resources import CHILD_BY_KIND, CHILD_SELECTOR, OWNER, POD
from speculative_operator.shell.telemetry import Telemetry

SERVICE = CHILD_BY_KIND["Service"]


class Rig:
    def __init__(self, api: FakeApi, telemetry: Telemetry, settings: Settings) -> None:
        self.api = api
        self.cache = Cache()
        self.queue: Queue[Key] = Queue(asyncio.get_running_loop().time, lambda: 0.0, settle=0.0)
        self.informer = Informer(settings, self.cache, self.queue, telemetry, self._relist, self._leading_to)
        self.stop = asyncio.Event()
        self.relisted = 0
        self.leading: tuple[Key, ...] = ()

    def _leading_to(self, key: Key) -> tuple[Key, ...]:
        return self.leading if key == KEY else ()

    def _relist(self) -> None:
        self.relisted += 1

    def watches(self, number: int) -> Callable[[], bool]:
        """Whether so many watches have begun."""
        return lambda: sum("watch" in call.query for call in self.api.calls) == number

    async def visit(self) -> Key:
        async with asyncio.timeout(30.0):
            key = await self.queue.get()
        assert key is not None
        self.queue.finish(key)
        return key


@asynccontextmanager
async def watching(api: FakeApi, telemetry: Telemetry, namespaces: str = "") -> AsyncIterator[Rig]:
    rig = Rig(api, telemetry, Settings(namespaces=namespaces, tick_seconds=1.0, prometheus_timeout_seconds=0.5))
    with warnings.catch_warnings():
        task = asyncio.create_task(rig.informer.run((OWNER, SERVICE, POD), rig.stop))
        try:
            yield rig
        finally:
            rig.stop.set()
            async with asyncio.timeout(10.0):
                await task


async def test_what_is_there_and_what_comes_reaches_the_cache_and_wakes_the_owner(
    api: FakeApi, telemetry: Telemetry
) -> None:
    async with watching(api, telemetry) as rig:
        await eventually(rig.watches(3))
        assert rig.relisted == 3, "what is there already is for others to list"
        of = await api.put(OWNER, owner())
        await rig.visit()
        await api.put(SERVICE, manifest(of))
        await rig.visit()
        snapshot = rig.cache.snapshot(KEY)
        assert snapshot is not None
        assert set(snapshot.children) == {("Service", "gemma")}
        await api.drop(SERVICE, "gemma")
        await rig.visit()
        snapshot = rig.cache.snapshot(KEY)
        assert snapshot is not None
        assert snapshot.children == {}
        await api.drop(OWNER, "gemma")
        await rig.visit()
        assert rig.cache.snapshot(KEY) is None
    assert "speculative_operator_watch_age_seconds" in telemetry.render().decode()


async def test_who_leads_requests_to_an_object_is_woken_with_it(api: FakeApi, telemetry: Telemetry) -> None:
    """Also by its status, of which the object itself need not hear."""
    async with watching(api, telemetry) as rig:
        await eventually(rig.watches(3))
        of = await api.put(OWNER, owner())
        await rig.visit()
        rig.leading = (("ns", "leads"),)
        await api.put(OWNER, {**owner(), "status": {"observedGeneration": 1}})
        assert await rig.visit() == ("ns", "leads")
        await api.put(SERVICE, manifest(of))
        assert {await rig.visit(), await rig.visit()} == {KEY, ("ns", "leads")}
        await api.drop(SERVICE, "gemma")
        assert {await rig.visit(), await rig.visit()} == {KEY, ("ns", "leads")}


async def test_a_changed_spec_ends_a_back_off_and_a_childs_event_does_not(api: FakeApi, telemetry: Telemetry) -> None:
    async with watching(api, telemetry) as rig:
        await eventually(rig.watches(3))
        of = await api.put(OWNER, owner())
        await eventually(lambda: rig.queue.waiting == 1)
        key = rig.queue.pop()
        assert key == KEY
        rig.queue.retry(key, at_least=1000.0)
        await api.put(SERVICE, manifest(of))
        await eventually(lambda: bool(rig.cache.objects_of("Service")))
        assert rig.queue.pop() is None
        await api.put(OWNER, owner(generation=2))
        await rig.visit()


async def test_only_what_is_ours_is_asked_for(api: FakeApi, telemetry: Telemetry) -> None:
    async with watching(api, telemetry):
        await eventually(lambda: sum("watch" in call.query for call in api.calls) == 3)
    by_kind = {call.plural: call.query.get("labelSelector") for call in api.calls if call.plural != "leases"}
    assert by_kind == {OWNER.plural: None, "services": CHILD_SELECTOR, "pods": CHILD_SELECTOR}
    assert all(call.namespace == "" for call in api.calls)
    assert api.writes() == [], "an informer writes nothing"


async def test_a_namespaced_operator_asks_for_nothing_of_the_cluster(api: FakeApi, telemetry: Telemetry) -> None:
    async with watching(api, telemetry, "ns,other"):
        await eventually(lambda: sum("watch" in call.query for call in api.calls) == 6)
    assert {call.namespace for call in api.calls} == {"ns", "other"}


async def test_it_can_be_stopped_and_started_again(api: FakeApi, telemetry: Telemetry) -> None:
    for _ in range(2):
        async with watching(api, telemetry):
            await eventually(lambda: sum("watch" in call.query for call in api.calls) >= 3)
        api.calls.clear()
