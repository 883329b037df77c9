"""One namespace fills the memory, or takes the processor, of the operator of all: by objects that only bear its labels,
by objects of a size that an API server stores, or by many of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi, FaultError, eventually
from tests.unit.shell.scene import LABELS, owner
from tests.unit.shell.test_operator import ready, running

from speculative_operator.domain import names
from speculative_operator.settings import Settings
from speculative_operator.shell import kube as kubes
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.gate import Metered, Shares
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import CHILD_BY_KIND, CONFIG_MAP, LEASE, OWNER
from speculative_operator.shell.resync import Resync
from speculative_operator.shell.sizes import CHILD_BYTES, LINE_BYTES, MIB, OVERSIZE, Sizes
from speculative_operator.shell.watches import Watches

Json = dict[str, Any]
KEY = ("ns", "gemma")
NAMESPACE_BYTES = 16 * MIB


def config_map(number: int, size: int, *, uid: str = "", namespace: str = "stranger", of: str = "none") -> Json:
    """A ConfigMap with our labels; with `uid` it names a SpeculativeDeployment as its owner."""
    labels = {**LABELS, names.LABEL_DEPLOYMENT: of}
    meta: Json = {"name": f"c{number}", "namespace": namespace, "uid": f"c{number}", "labels": labels}
    meta["resourceVersion"] = str(number + 1)
    if uid:
        reference = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": of, "uid": uid, "controller": True}
        meta["ownerReferences"] = [reference]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": f"{number:06d}" * (size // 6)}}


def large(name: str, variables: int = 36_000) -> Json:
    """A SpeculativeDeployment of another namespace, of 30 bytes for each variable."""
    body = owner(name=name)
    env = [{"name": f"A{number:06d}", "value": "x"} for number in range(variables)]
    template = {"spec": {"containers": [{"name": "side", "image": "i", "env": env}]}}
    return {
        **body,
        "metadata": {**body["metadata"], "namespace": "tenant"},
        "spec": {**body["spec"], "template": template},
    }


def kept(cache: Cache) -> int:
    """Bytes of all that the cache holds, as JSON."""
    kinds = (OWNER.kind, "Pod", *CHILD_BY_KIND)
    return sum(len(json.dumps(body)) for kind in kinds for body in cache.objects_of(kind).values())


def reason_of(api: FakeApi, name: str, namespace: str) -> str:
    conditions = (api.find(OWNER.kind, name, namespace)[0].get("status") or {}).get("conditions") or ()
    return next((one["reason"] for one in conditions if one["type"] == "Ready"), "")


def message_of(api: FakeApi, name: str, namespace: str) -> str:
    conditions = api.find(OWNER.kind, name, namespace)[0]["status"]["conditions"]
    return str(next(one["message"] for one in conditions if one["type"] == "Ready"))


async def test_objects_that_only_bear_our_labels_take_no_memory_and_cost_nobody_anything(api: FakeApi) -> None:
    for number in range(40):
        await api.put(CONFIG_MAP, config_map(number, 900_000))
    await api.put(OWNER, owner())
    async with running() as run:
        await eventually(ready(api))
        await eventually(run.operator.informer.started.is_set)
        for number in range(40, 60):
            await api.put(CONFIG_MAP, config_map(number, 900_000))
        await api.put(OWNER, {**owner(generation=2), "status": api.find(OWNER.kind)[0]["status"]})
        await eventually(lambda: api.find(OWNER.kind)[0]["status"]["observedGeneration"] == 2)
        held = run.operator.cache.objects_of("ConfigMap").values()
        assert {body["metadata"]["namespace"] for body in held} == {"ns"}
        assert kept(run.operator.cache) < 500_000


def test_a_forged_owner_keeps_nothing() -> None:
    cache = Cache()
    body = owner()
    cache.put({**body, "metadata": {**body["metadata"], "uid": "o", "resourceVersion": "1"}})
    for number, uid in enumerate(("", "someone", "o")):
        cache.put(config_map(number, 1000, uid=uid, namespace="elsewhere", of="gemma"))
    assert cache.objects_of("ConfigMap") == {}, "owners are of the same namespace"
    cache.put(config_map(1, 1000, uid="someone", namespace="ns", of="gemma"))
    (stranger,) = cache.objects_of("ConfigMap").values()
    assert "data" not in stranger, "known by name, because it takes the name of a child"
    cache.put(config_map(2, 1000, uid="o", namespace="ns", of="gemma"))
    assert "data" in cache.objects_of("ConfigMap")["c2"]


async def test_a_page_of_a_list_never_takes_more_than_its_budget(
    api: FakeApi, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = kubes._decode

    def decode(verb: str, what: str, data: bytes) -> Json:
        sizes.append(len(data))
        return real(verb, what, data)

    monkeypatch.setattr(kubes, "_decode", decode)
    for number in range(12):
        await api.put(CONFIG_MAP, config_map(number, 900_000))
    assert len([body async for body in kube.list(CONFIG_MAP)]) == 12
    assert max(sizes) <= kubes.PAGE_BYTES


async def test_an_object_that_is_too_large_is_told_so_and_costs_nobody_else_anything(api: FakeApi) -> None:
    for number in range(3):
        await api.put(OWNER, large(f"listed-{number}"))
    await api.put(OWNER, owner())
    async with running() as run:
        await eventually(ready(api))
        await eventually(run.operator.informer.started.is_set)
        await api.put(OWNER, large("watched"))
        every = ("listed-0", "listed-1", "listed-2", "watched")
        await eventually(lambda: all(reason_of(api, name, "tenant") == "SpecInvalid" for name in every))
        assert "the operator reads at most 256 KiB" in message_of(api, "watched", "tenant")
        assert not api.find("Deployment", namespace="tenant")
        assert reason_of(api, "gemma", "ns") not in ("", "SpecInvalid")
        assert kept(run.operator.cache) < 500_000
        await api.put(OWNER, {**large("watched", 10), "status": api.find(OWNER.kind, "watched", "tenant")[0]["status"]})
        await eventually(lambda: bool(api.find("Deployment", "watched", "tenant")))


async def test_a_served_object_that_grows_too_large_keeps_what_runs_and_what_its_status_says(api: FakeApi) -> None:
    await api.put(OWNER, large("big", 10))
    async with running() as run:
        await eventually(lambda: bool(reason_of(api, "big", "tenant")))
        await eventually(run.operator.informer.started.is_set)
        runs = api.find("Deployment", "big", "tenant")
        status = api.find(OWNER.kind, "big", "tenant")[0]["status"]
        await api.put(OWNER, {**large("big"), "status": status})
        await eventually(lambda: reason_of(api, "big", "tenant") == "SpecInvalid")
        after = api.find(OWNER.kind, "big", "tenant")[0]["status"]
        assert after.keys() >= status.keys()
        assert [body["spec"] for body in api.find("Deployment", "big", "tenant")] == [body["spec"] for body in runs]


async def test_a_child_that_is_too_large_stops_decisions_for_its_object_and_no_write_undoes_it(api: FakeApi) -> None:
    await api.put(OWNER, owner())
    await api.put(OWNER, large("other", 10))
    async with running() as run:
        await eventually(ready(api))
        await eventually(run.operator.informer.started.is_set)
        (found,) = api.find("Deployment", "gemma")
        swollen = {**found, "metadata": {**found["metadata"], "annotations": {"x": "y" * (LINE_BYTES + 1)}}}
        await api.put(CHILD_BY_KIND["Deployment"], swollen)
        await eventually(lambda: "Deployment gemma takes" in message_of(api, "gemma", "ns"))
        assert kept(run.operator.cache) < 500_000
        await eventually(lambda: bool(api.find("Deployment", "other", "tenant")))
        await api.put(CHILD_BY_KIND["Deployment"], found)
        await eventually(lambda: reason_of(api, "gemma", "ns") != "SpecInvalid")


def test_a_namespace_that_holds_too_much_is_known_by_name_only_and_others_are_not_touched() -> None:
    sizes = Sizes(NAMESPACE_BYTES)
    size = CHILD_BYTES - 1000
    found = [sizes.fit(config_map(number, size)) for number in range(2 * NAMESPACE_BYTES // size)]
    assert sizes._held["stranger"] <= NAMESPACE_BYTES + 2**20
    assert OVERSIZE not in (found[0] or {})
    assert "namespace stranger" in (found[-1] or {})[OVERSIZE]
    assert OVERSIZE not in (sizes.fit(config_map(0, size, namespace="victim")) or {})
    sizes.forget("c1")
    assert OVERSIZE not in (sizes.fit(config_map(1, size)) or {}), "room that was given back is used"


def test_a_namespace_full_of_names_is_not_known_at_all() -> None:
    cache = Cache(NAMESPACE_BYTES)
    body = owner()
    cache.put({**body, "metadata": {**body["metadata"], "uid": "o", "resourceVersion": "1"}})
    cache._sizes._held["ns"] = 2 * NAMESPACE_BYTES
    cache.put(config_map(5, 100, uid="o", namespace="ns", of="gemma"))
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert "more objects than the operator can know" in snapshot.excess
    assert cache.objects_of("ConfigMap") == {}


def test_an_event_with_too_many_bytes_is_never_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Json] = []
    watches = Watches(lambda _, body: told.append(body), lambda *_: None, lambda: None)
    monkeypatch.setattr("speculative_operator.shell.watches.parse", lambda _: pytest.fail("parsed"))
    body = config_map(1, LINE_BYTES + 6)
    body = {"kind": body["kind"], "apiVersion": "v1", "metadata": body["metadata"], "data": body["data"]}
    line = json.dumps({"type": "MODIFIED", "object": body}, separators=(",", ":")).encode()
    given = json.loads(watches._line(("configmaps", "watch"), line))
    assert given == {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}}
    assert told[0]["metadata"] == body["metadata"]
    assert "data" not in told[0]


# -- the processor


async def test_the_lease_is_kept_and_the_kubelet_answered_while_the_main_loop_is_busy(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.put(OWNER, owner())
    async with running() as run:
        await eventually(ready(api))
        endpoints = f"http://127.0.0.1:{run.endpoints.port}"
        before = api.find("Lease")[0]["spec"]["renewTime"]

        def busy() -> tuple[list[int], str]:
            """What another process sees while nothing else runs in the main loop, for longer than the Lease lasts."""
            import time
            from urllib.request import urlopen

            seen, until = [], time.monotonic() + 4.0
            while time.monotonic() < until:
                with urlopen(f"{endpoints}/healthz", timeout=2.0) as answer:
                    seen.append(answer.status)
                time.sleep(0.2)
            return seen, api.find("Lease")[0]["spec"]["renewTime"]

        seen, after = busy()  # on the main loop itself
        assert set(seen) == {200}
        assert after > before
        assert run.operator.leads()
        assert not run.task.done()


async def test_an_api_server_that_is_away_longer_than_the_lease_ends_nothing(api: FakeApi) -> None:
    await api.put(OWNER, owner())
    async with running() as run:
        await eventually(ready(api))
        api.failures.append(lambda _: FaultError(503))
        await eventually(lambda: not run.operator.leads())
        assert len(run.operator.cache) == 1
        await asyncio.sleep(3.5)
        api.failures.clear()
        await eventually(run.operator.leads)
        await api.put(OWNER, {**owner(generation=2), "status": api.find(OWNER.kind)[0]["status"]})
        await eventually(lambda: api.find(OWNER.kind)[0]["status"]["observedGeneration"] == 2)
        assert not run.task.done()
        assert api.find(LEASE.kind)[0]["spec"]["leaseTransitions"] == 0


def test_a_main_loop_that_is_dead_for_long_still_fails_the_liveness_probe() -> None:
    from tests.harm.test_process_liveness import Clock, full_queue, operator

    made = operator(full_queue(Clock()))
    assert made.healthy() == ""
    made._beat_at -= 301.0
    assert "no sign of life" in made.healthy()


async def test_a_namespace_that_takes_the_processor_waits_for_the_others() -> None:
    now = 0.0
    shares = Shares(lambda: now)
    for _ in range(40):
        shares.spend("hog", 1.0)
    shares.spend("victim", 0.1)
    assert shares.rank("hog") > shares.rank("victim")
    assert shares.rest("hog") == pytest.approx(10.0)
    assert shares.rest("victim") == 0.0
    now = 61.0
    shares.spend("victim", 0.1)
    assert (shares.rank("hog"), shares.rest("hog")) == (0, 0.0)


async def test_a_fleet_in_one_namespace_never_waits_for_nobody() -> None:
    shares = Shares(lambda: 0.0)
    shares.spend("only", 59.0)
    assert shares.rest("only") == 0.0


async def test_the_processor_is_metered_without_waits_and_through_cancellation() -> None:
    spent: list[float] = []
    ended = asyncio.Event()

    async def work() -> int:
        await asyncio.sleep(0.05)
        sum(range(200_000))
        return 7

    assert await Metered(work(), spent.append) == 7
    assert 0.0 < sum(spent) < 0.05

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await Metered(waits(), spent.append)
    assert ended.is_set()


# -- a list is the truth


async def test_a_list_is_the_truth_unless_it_is_older_than_what_is_known(api: FakeApi, kube: Kube) -> None:
    cache = Cache()
    looks = Resync(Settings(), kube, cache, lambda _: None, frozenset)
    stored = await api.put(OWNER, owner())
    cache.put({**stored, "spec": {"never": "was"}})
    await looks.refresh({OWNER})
    assert cache.owner(KEY) == stored, "of the same version, and yet it says something else"
    newer = {**stored, "metadata": {**stored["metadata"], "resourceVersion": str(api.version + 5)}, "spec": {"n": 1}}
    cache.put(newer, listed=0)
    cache.put(stored, listed=api.version)
    assert (cache.owner(KEY) or {})["spec"] == {"n": 1}, "written after the list was made"
