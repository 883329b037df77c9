"""What is asked of the API server to know whether one more pod fits, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from speculative_operator.reconcile.room import Room as Found
from speculative_operator.shell import room as module
from speculative_operator.shell.errors import ApiError, ForbiddenError, UnavailableError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import NODE, Resource
from speculative_operator.shell.room import AGAIN_SECONDS, FORBIDDEN_SECONDS, SET_ASIDE_SECONDS, WAITING, Room

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
KEY, OTHER = ("ns", "gemma"), ("ns", "qwen")
TEMPLATE: Json = {"spec": {"containers": [{"resources": {"limits": {GPU: 1}}}], "nodeSelector": {"gpu": "yes"}}}


def pod(gpus: int) -> Json:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"limits": {GPU: gpus}}}]}, "status": {}}


def served(key: tuple[str, str]) -> Json:
    """A pod of an object, on one accelerator."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{key[1]}-5d6f", "controller": True}
    labels = {"pod-template-hash": "5d6f"}
    return pod(1) | {"metadata": {"name": "s", "namespace": key[0], "labels": labels, "ownerReferences": [owner]}}


def node(name: str, gpus: int = 1) -> Json:
    return {
        "metadata": {"name": name, "labels": {"gpu": "yes"}},
        "status": {
            "allocatable": {GPU: gpus, "pods": 110},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


@dataclass
class Cluster:
    nodes: list[Json] = field(default_factory=lambda: [node("a")])
    pods: dict[str, list[Json]] = field(default_factory=dict)
    """By node; those that wait by the empty name."""
    asked: list[str] = field(default_factory=list)
    error: ApiError | None = None
    hangs: bool = False

    async def list(
        self, resource: Resource, namespace: str = "", selector: str = "", fields: str = ""
    ) -> AsyncIterator[Json]:
        self.asked.append(f"{resource.plural} {selector or fields}")
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        name = "" if fields == WAITING else fields.removeprefix("spec.nodeName=")
        for one in self.nodes if resource is NODE else self.pods.get(name, []):
            yield one


class Rig:
    def __init__(self, everywhere: bool = True, **cluster: Any) -> None:
        self.cluster, self.now = Cluster(**cluster), 1000.0
        self.room = Room(cast("Kube", self.cluster), lambda: self.now, everywhere=everywhere)

    async def fits(self, key: tuple[str, str] = KEY, *, waits: bool = True, pods: int = 1) -> Found | None:
        return await self.room.fits(key, TEMPLATE, waits=waits, pods=pods)


async def test_nodes_that_may_have_it_are_looked_at_until_one_has_room() -> None:
    rig = Rig(nodes=[node("a", 2), node("b", 2), node("c")], pods={"a": [pod(2)]})
    assert await rig.fits() is Found.FREE
    assert rig.cluster.asked == ["nodes gpu=yes", f"pods {WAITING}", "pods spec.nodeName=a", "pods spec.nodeName=b"]


def of_group(key: tuple[str, str], made_by: str) -> Json:
    """A pod of a LeaderWorkerSet, on one accelerator."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"{key[1]}-{made_by}", "controller": True}
    return pod(1) | {"metadata": {"name": "g", "namespace": key[0], "ownerReferences": [owner]}}


async def test_a_group_needs_places_for_all_of_its_pods() -> None:
    """On one node or on several."""
    for sizes, expected in (((1, 1), Found.FREE), ((2,), Found.FREE), ((1,), Found.NOWHERE), ((2, 1), Found.FREE)):
        rig = Rig(nodes=[node(f"n{number}", size) for number, size in enumerate(sizes)])
        assert await rig.fits(pods=2) is expected, sizes
    full = Rig(nodes=[node("a"), node("b")], pods={"b": [pod(1)]})
    assert await full.fits(pods=2) is Found.NOWHERE


async def test_places_of_a_group_are_promised_to_one_object_only() -> None:
    rig = Rig(nodes=[node("a", 2), node("b", 1)])
    assert await rig.fits(pods=3) is Found.FREE
    assert await rig.fits(OTHER) is Found.NOWHERE
    spare = Rig(nodes=[node("a", 2), node("b", 2)])
    assert await spare.fits(pods=3) is Found.FREE
    assert await spare.fits(OTHER) is Found.FREE
    assert await spare.fits(("ns", "third")) is Found.NOWHERE


async def test_an_own_group_in_the_way_is_told_from_those_of_others() -> None:
    for made_by, key, expected in (
        ("group", KEY, Found.TAKEN), ("group-0", KEY, Found.TAKEN), ("group", OTHER, Found.NOWHERE),
        ("group-x", KEY, Found.NOWHERE),
    ):  # fmt: skip
        rig = Rig(nodes=[node("a"), node("b")], pods={"a": [of_group(key, made_by)]})
        assert await rig.fits(pods=2) is expected, made_by


async def test_where_no_node_may_have_it_no_pod_is_listed() -> None:
    rig = Rig(nodes=[])
    assert await rig.fits() is Found.NOWHERE
    assert rig.cluster.asked == ["nodes gpu=yes"]


async def test_room_is_promised_to_one_object_only() -> None:
    rig = Rig()
    assert await rig.fits() is Found.FREE
    assert await rig.fits() is Found.FREE, "for the same object it still is"
    assert await rig.fits(OTHER) is Found.NOWHERE
    rig.now += SET_ASIDE_SECONDS + 1
    assert await rig.fits(OTHER) is Found.FREE


async def test_an_own_pod_in_the_way_is_told_from_those_of_others() -> None:
    for mine, expected in ((True, Found.TAKEN), (False, Found.NOWHERE)):
        rig = Rig(nodes=[node("a", 2)], pods={"a": [pod(1), served(KEY) if mine else pod(1)]})
        assert await rig.fits() is expected
    full = Rig(nodes=[node("a", 1), node("b", 1)], pods={"a": [served(OTHER)], "b": [pod(1)]})
    assert await full.fits() is Found.NOWHERE, "its own pod runs elsewhere"


async def test_more_pods_than_can_be_held_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PODS", 2)
    assert await Rig(pods={"": [pod(1)] * 3}).fits() is None
    assert await Rig(pods={"a": [pod(1)] * 3}).fits() is None


async def test_many_at_once_do_not_all_count_on_the_same_accelerator() -> None:
    rig = Rig(nodes=[node("a", 3)])
    answers = await asyncio.gather(*(rig.fits(("ns", f"o{number}")) for number in range(10)))
    assert sum(answer is Found.FREE for answer in answers) == 3


async def test_who_waits_for_nothing_looks_seldom() -> None:
    rig = Rig(pods={"a": [pod(1)]})
    assert await rig.fits(waits=False) is Found.NOWHERE
    rig.cluster.asked.clear()
    rig.cluster.pods.clear()
    assert await rig.fits(waits=False) is None
    assert rig.cluster.asked == []
    assert await rig.fits() is Found.FREE, "an edit that replaces pods is worth a look"
    rig.now += AGAIN_SECONDS
    assert await rig.fits(waits=False) is Found.FREE


async def test_without_permission_nothing_is_told_nor_asked_again_soon() -> None:
    rig = Rig(error=ForbiddenError("list", "nodes", "forbidden", 403))
    assert await rig.fits() is None
    assert await rig.fits() is None
    assert len(rig.cluster.asked) == 1
    rig.now += FORBIDDEN_SECONDS
    assert await rig.fits() is None
    assert len(rig.cluster.asked) == 2


async def test_an_api_server_that_fails_or_hangs_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(error=UnavailableError("list", "nodes", "no answer"))
    assert await rig.fits() is None
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    assert await Rig(hangs=True).fits() is None


async def test_an_operator_of_some_namespaces_cannot_tell() -> None:
    rig = Rig(everywhere=False)
    assert await rig.fits() is None
    assert rig.cluster.asked == []


async def test_beyond_so_many_nodes_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 2)
    rig = Rig(nodes=[node(name) for name in "abc"], pods={name: [pod(1)] for name in "abc"})
    assert await rig.fits() is None
    assert len(rig.cluster.asked) == 4
