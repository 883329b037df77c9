"""The harm: a pod waits for ever for the ConfigMap of the plug-in, or runs what somebody else has put in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.reconcile.worlds import Cluster, applies, settled
from tests.unit.shell.fakeapi import Call, FakeApi, FaultError, eventually
from tests.unit.shell.scene import KEY, applying, manifest, owner, pod
from tests.unit.shell.test_operator import running

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.reasons import Reason
from speculative_operator.render import payload
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.ledger import Ledger
from speculative_operator.shell.payloads import collect
from speculative_operator.shell.resources import (
    CHILDREN,
    CONFIG_MAP,
    DEPLOYMENT,
    OWNER,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    Resource,
)
from speculative_operator.shell.telemetry import Telemetry
from speculative_operator.shell.writes import Writer

CONFIG = payload.payload_config("ns")
OLD_FILES = {"speculative_scheduler.py": "# of a former release"}
OLD = {
    **CONFIG,
    "data": OLD_FILES,
    "metadata": {**CONFIG["metadata"], "name": payload.name_of(OLD_FILES)},
}
SHARED = ApplyChild(CONFIG, Reason.CREATED, "is missing")


def mounting(of: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object `of` with pods that mount the ConfigMap."""
    spec = {"volumes": [{"name": "payload", "configMap": {"name": name}}]}
    return {**of, "spec": spec if of["kind"] == "Pod" else {"template": {"spec": spec}}}


def names_of(api: FakeApi) -> set[str]:
    return {one["metadata"]["name"] for one in api.find("ConfigMap")}


class Rig:
    """A writer and the cache it writes to, with objects that were stored."""

    def __init__(self, api: FakeApi, kube: Kube, telemetry: Telemetry) -> None:
        self.api, self.kube, self.cache = api, kube, Cache()
        self.writer = Writer(kube, self.cache, telemetry, lambda: True, lambda: None)

    async def has(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        stored = await self.api.put(resource, body)
        self.cache.put(stored)
        return stored

    async def do(self, *actions: ApplyChild, name: str = "gemma", ledger: Ledger | None = None) -> bool:
        """True where something was refused."""
        snapshot = self.cache.snapshot(("ns", name))
        assert snapshot is not None
        report = await self.writer.carry_out(("ns", name), snapshot, actions, ledger or Ledger(), 1000.0)
        return report.refused

    async def collect(self) -> None:
        await collect(self.kube, self.cache, CHILDREN[:1], lambda: True)


@pytest.fixture
def rig(api: FakeApi, kube: Kube, telemetry: Telemetry) -> Rig:
    return Rig(api, kube, telemetry)


async def test_no_pod_is_made_before_what_it_mounts(rig: Rig) -> None:
    of = await rig.has(OWNER, owner())
    await rig.do(SHARED, applying(of, "Deployment"), applying(of))
    assert next(call.plural for call in rig.api.writes()) == "configmaps"
    assert names_of(rig.api) == {payload.name()}
    assert len(rig.api.find("Deployment")) == len(rig.api.find("Service")) == 1


async def test_no_pod_is_made_while_what_it_mounts_is_refused(rig: Rig) -> None:
    of, ledger = await rig.has(OWNER, owner()), Ledger()

    def forbidden(call: Call) -> FaultError | None:
        return FaultError(403, "quota", "Forbidden") if call.plural == "configmaps" and call.write else None

    rig.api.failures.append(forbidden)
    for _ in range(2):
        await rig.do(SHARED, applying(of, "Deployment"), applying(of), ledger=ledger)
        assert rig.api.find("Deployment") == []
    assert [one.reason for one in ledger.conditions()] == [Reason.FORBIDDEN]
    assert len(rig.api.find("Service")) == 1, "nothing else waits for it"


async def test_objects_that_come_together_send_it_once(rig: Rig) -> None:
    found = ("gemma", "llama", "qwen")
    made = [await rig.has(OWNER, owner(name=name)) for name in found]
    await asyncio.gather(*(rig.do(SHARED, applying(of, "Deployment"), name=of["metadata"]["name"]) for of in made))
    assert len(rig.api.writes("configmaps")) == 1
    assert len(rig.api.find("Deployment")) == 3


def test_what_is_there_is_not_made_again_and_what_is_gone_is() -> None:
    cluster = settled()
    slot = cluster.config("payload")
    gone = cluster.children.pop(slot)
    (made,) = cluster.tick().actions
    assert isinstance(made, ApplyChild)
    assert made.manifest == {**gone, "metadata": made.manifest["metadata"]}
    assert cluster.look().actions == ()


def test_pods_never_mount_a_strangers_files() -> None:
    cluster = Cluster()
    made = payload.payload_config("models")
    stranger = {**made, "data": {"speculative_scheduler.py": "theirs"}}
    cluster.children["ConfigMap", payload.name()] = stranger
    outcome = cluster.look()
    assert not any(kind == "Deployment" for kind, _, _ in applies(outcome))
    ready = next(one for one in outcome.status["conditions"] if one["type"] == "Ready")
    assert ready["reason"] == "NameConflict"
    assert payload.name() in ready["message"]


async def test_one_that_is_deleted_is_made_again_at_once(api: FakeApi) -> None:
    await api.put(OWNER, owner())
    async with running():
        await eventually(lambda: bool(api.find("Deployment")) and payload.name() in names_of(api))
        await asyncio.sleep(0.5)
        await api.drop(CONFIG_MAP, payload.name())
        await eventually(lambda: payload.name() in names_of(api), 5.0)


# -- collecting


@pytest.mark.parametrize("kind", [POD, REPLICA_SET, STATEFUL_SET, DEPLOYMENT])
@pytest.mark.parametrize("config", [OLD, CONFIG], ids=["of a former release", "of this release"])
async def test_what_anybodys_pods_mount_stays(rig: Rig, kind: Resource, config: dict[str, Any]) -> None:
    """Also of ReplicaSets that wait to be rolled back to, and of a copy that bears none of our labels."""
    await rig.has(CONFIG_MAP, config)
    name = config["metadata"]["name"]
    meta = {"name": "copy", "namespace": "ns"}
    await rig.api.put(kind, mounting({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}, name))
    await rig.collect()
    assert names_of(rig.api) == {name}


async def test_what_the_objects_of_a_namespace_may_mount_any_moment_stays(rig: Rig) -> None:
    await rig.has(OWNER, owner())
    await rig.has(CONFIG_MAP, CONFIG)
    await rig.collect()
    assert names_of(rig.api) == {payload.name()}


@pytest.mark.parametrize("plural", ["pods", "replicasets", "statefulsets", "deployments"])
async def test_in_doubt_it_stays(rig: Rig, plural: str) -> None:
    await rig.has(CONFIG_MAP, OLD)
    rig.api.failures.append(lambda call: FaultError(403, "may not") if call.plural == plural else None)
    await rig.collect()
    assert len(names_of(rig.api)) == 1


async def test_what_nothing_mounts_goes_and_nothing_of_others_with_it(rig: Rig) -> None:
    of = await rig.has(OWNER, owner())
    theirs = {**OLD, "immutable": False, "metadata": {**OLD["metadata"], "name": f"{payload.PREFIX}0123456789ab"}}
    unlabelled = {**CONFIG, "metadata": {**CONFIG["metadata"], "labels": {}, "namespace": "other"}}
    for body in (OLD, CONFIG, theirs, unlabelled, {**manifest(of, "ConfigMap"), "data": {}}):
        await rig.has(CONFIG_MAP, body)
    await rig.has(POD, pod())
    await rig.collect()
    assert names_of(rig.api) == {payload.name(), f"{payload.PREFIX}0123456789ab", "gemma"}
    assert len(rig.api.find("ConfigMap", namespace="other")) == 1
    rig.cache.remove(of)
    await rig.collect()
    assert names_of(rig.api) == {f"{payload.PREFIX}0123456789ab", "gemma"}, "with the last object goes the last one"


def test_an_object_that_mounts_it_hears_of_its_end() -> None:
    cache, meta = Cache(), {"namespace": "ns", "resourceVersion": "1"}
    for name in ("other", "gemma"):
        cache.put({**owner(name=name), "metadata": {**owner(name=name)["metadata"], **meta, "uid": name}})
    config = {**CONFIG, "metadata": {**CONFIG["metadata"], **meta, "uid": "p"}}
    cache.put(config)
    of = {"metadata": {"name": "gemma", "namespace": "ns", "uid": "gemma"}}
    child = mounting(manifest(of, "Deployment"), payload.name())
    cache.put({**child, "metadata": {**child["metadata"], **meta, "uid": "d"}})
    snapshot = cache.snapshot(KEY)
    assert snapshot is not None
    assert set(snapshot.payloads) == {payload.name()}
    assert ("ConfigMap", payload.name()) not in snapshot.children
    assert cache.remove(config) == KEY
    assert names.OPERATOR in CONFIG["metadata"]["labels"].values()
