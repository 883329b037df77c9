"""A webhook that does not answer for one namespace holds all workers and write slots: no other namespace is served."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from speculative_operator.settings import Settings
from speculative_operator.shell import kube as module
from speculative_operator.shell.gate import Gate
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import DEPLOYMENT
from speculative_operator.shell.telemetry import Telemetry

HANGS = 200


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_writes_that_hang_in_one_namespace_never_stop_those_of_another(
    kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "_gate", Gate(4, most=4, lendable=64, slow=0.0))
    under_way: dict[str, int] = {"bad": 0, "good": 0}

    async def exchange(_: Any, call: Any) -> bytes:
        namespace = "bad" if "/namespaces/bad/" in call.path else "good"
        under_way[namespace] += 1
        if namespace == "bad":
            await asyncio.Event().wait()
        return b"{}"

    monkeypatch.setattr(kube, "_exchange", exchange)

    async def write(namespace: str, number: int) -> None:
        meta = {"name": f"o{number}", "namespace": namespace}
        await kube.apply(DEPLOYMENT, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta})

    hanging = [asyncio.create_task(write("bad", number)) for number in range(HANGS)]
    await settle()
    async with asyncio.timeout(30.0):
        for number in range(20):
            await write("good", number)
    assert under_way["good"] == 20
    assert under_way["bad"] <= 4, "nor do its own pile up in the API server"
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    assert kube._gate.waiting == 0


async def test_visits_that_hang_in_many_namespaces_never_stop_those_of_another() -> None:
    crew = Gate(100, most=50, lendable=100, slow=0.0)
    visited: list[str] = []

    async def visit(namespace: str, *, hangs: bool) -> None:
        async with crew.slot(0, namespace):
            visited.append(namespace)
            if hangs:
                await asyncio.Event().wait()

    hanging = [asyncio.create_task(visit(f"bad-{number % 2}", hangs=True)) for number in range(1000)]
    await settle()
    async with asyncio.timeout(30.0):
        await asyncio.gather(*(visit("good", hangs=False) for _ in range(100)))
    assert visited.count("good") == 100
    assert visited.count("bad-0") <= 50
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    async with asyncio.timeout(30.0):
        await asyncio.gather(*(visit("after", hangs=False) for _ in range(500)))


async def test_a_namespace_alone_may_use_every_slot() -> None:
    gate, inside, most = Gate(12, most=12, lendable=0, slow=3600.0), 0, 0

    async def write() -> None:
        nonlocal inside, most
        async with gate.slot(0, "ns"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(write() for _ in range(100)))
    assert most == 12


async def test_lent_slots_never_need_more_connections_than_the_client_has() -> None:
    made = Kube(Settings(), Telemetry())
    assert made._connections > Settings().write_slots * (1 + module.LENDABLE)
