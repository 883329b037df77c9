"""The truth list: what is asked of the API server, and what a kind that cannot be listed leaves untouched."""

from __future__ import annotations

import pytest
from tests.unit.shell.fakeapi import FakeApi, FaultError
from tests.unit.shell.scene import manifest, owner

from speculative_operator.settings import Settings
from speculative_operator.shell.bodies import Key
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import (
    CHILD_BY_KIND,
    INFERENCE_SERVICE,
    LEADER_WORKER_SET,
    LLM_INFERENCE_SERVICE,
    OWNER,
    POD,
    SERVING_RUNTIME,
)
from speculative_operator.shell.resync import Resync

SERVICE = CHILD_BY_KIND["Service"]


def resync(kube: Kube, namespaces: str = "", unwatched: frozenset[str] = frozenset()) -> tuple[Resync, Cache]:
    cache = Cache()
    stale: list[Key] = []
    return Resync(Settings(namespaces=namespaces), kube, cache, stale.append, lambda: unwatched), cache


async def put(api: FakeApi, count: int) -> None:
    of = await api.put(OWNER, owner())
    for number in range(count):
        made = manifest(of)
        await api.put(SERVICE, {**made, "metadata": {**made["metadata"], "name": f"s{number}"}})


async def test_a_namespaced_operator_lists_its_namespaces_only(api: FakeApi, kube: Kube) -> None:
    await resync(kube, "a,b")[0].refresh({POD})
    assert [(call.plural, call.namespace) for call in api.calls] == [("pods", "a"), ("pods", "b")]


@pytest.mark.parametrize(("address", "ipv6"), [("fd00::7", True), ("10.0.0.7", False), ("", False)])
async def test_the_operators_own_address_tells_the_family_of_pods(
    kube: Kube, monkeypatch: pytest.MonkeyPatch, address: str, ipv6: bool
) -> None:
    monkeypatch.setenv("POD_IP", address)
    assert resync(kube)[0].capabilities().ipv6 is ipv6


async def test_a_list_that_expires_half_way_is_started_again_once(api: FakeApi, kube: Kube) -> None:
    api.page = 2
    await put(api, 4)
    expired = [FaultError(410, "expired", "Expired")]
    api.failures.append(lambda call: expired.pop() if call.query.get("continue") and expired else None)
    looks, cache = resync(kube)
    await looks.refresh({OWNER, SERVICE})
    assert len(cache.objects_of("Service")) == 4
    assert SERVICE not in looks.unsure()
    api.failures[:] = [lambda call: FaultError(410, "expired", "Expired") if call.query.get("continue") else None]
    await looks.refresh({SERVICE})
    assert SERVICE in looks.unsure()


async def test_a_kind_that_cannot_be_listed_stays_as_it_was_known(api: FakeApi, kube: Kube) -> None:
    await put(api, 1)
    looks, cache = resync(kube)
    await looks.refresh()
    assert not looks.unsure()
    api.failures.append(lambda call: FaultError(403, "no") if call.plural == "services" else None)
    await api.drop(SERVICE, "s0")
    await looks.refresh()
    assert looks.unsure() == {SERVICE}
    assert len(cache.objects_of("Service")) == 1
    assert looks.missing() == ""


@pytest.mark.parametrize("plural", ["speculativedeployments", "deployments", "configmaps", "pods"])
async def test_nothing_is_decided_without_a_vital_kind(api: FakeApi, kube: Kube, plural: str) -> None:
    looks, _ = resync(kube, unwatched=frozenset({plural}))
    assert plural in looks.missing()
    await looks.refresh()
    assert looks.missing() == ""
    api.failures.append(lambda call: FaultError(500, "no") if call.plural == plural else None)
    await looks.refresh()
    assert looks.missing() == plural
    assert OWNER in looks.resources()


async def test_kserve_is_there_only_with_both_of_its_kinds(api: FakeApi, kube: Kube) -> None:
    watch, _ = resync(kube)
    for kinds, there in (((), False), ((INFERENCE_SERVICE,), False), ((INFERENCE_SERVICE, SERVING_RUNTIME), True)):
        api.resources = (*(one for one in api.resources if one.group != INFERENCE_SERVICE.group), *kinds)
        await watch.discover()
        assert watch.capabilities().inference_service is there
        assert set(kinds) <= set(watch.resources())


async def test_the_kind_of_large_language_models_is_looked_for_by_itself(api: FakeApi, kube: Kube) -> None:
    watch, _ = resync(kube)
    await watch.discover()
    assert not watch.capabilities().llm_inference_service
    api.resources = (*api.resources, LLM_INFERENCE_SERVICE)
    await watch.discover()
    found = watch.capabilities()
    assert (found.llm_inference_service, found.inference_service) == (True, False)


async def test_lws_is_there_with_its_kind(api: FakeApi, kube: Kube) -> None:
    watch, _ = resync(kube)
    others = tuple(one for one in api.resources if one.group != LEADER_WORKER_SET.group)
    for kinds, there in (((), False), ((LEADER_WORKER_SET,), True)):
        api.resources = (*others, *kinds)
        await watch.discover()
        assert watch.capabilities().leader_worker_set is there


async def test_an_object_is_told_of_once_what_belongs_to_it_is_known(api: FakeApi, kube: Kube) -> None:
    await put(api, 1)
    cache, told = Cache(), list[object]()

    def stale(key: Key) -> None:
        snapshot = cache.snapshot(key)
        told.append(snapshot and set(snapshot.children))

    await Resync(Settings(), kube, cache, stale, frozenset).refresh()
    assert told == [{("Service", "s0")}]


async def test_where_the_objects_cannot_be_listed_nothing_of_theirs_counts_as_listed(api: FakeApi, kube: Kube) -> None:
    """Nothing is kept of objects that are not known: listed alone later, they would seem to have no children."""
    await put(api, 1)
    api.failures.append(lambda call: FaultError(500, "no") if call.plural == OWNER.plural else None)
    looks, cache = resync(kube)
    await looks.refresh()
    assert looks.unsure() == set(looks.resources())
    api.failures.clear()
    await looks.refresh(looks.unsure())
    assert len(cache.objects_of("Service")) == 1
