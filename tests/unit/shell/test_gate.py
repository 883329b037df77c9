"""The gate lets so many through at once, the most urgent first, and loses no slot."""

from __future__ import annotations

import asyncio

from speculative_operator.shell.gate import Gate


def a_gate(slots: int) -> Gate:
    return Gate(slots, most=slots, lendable=0, slow=3600.0)


async def test_waiters_enter_by_rank_then_by_arrival() -> None:
    gate, order = a_gate(1), []

    async def enter(name: str, rank: int) -> None:
        async with gate.slot(rank, "ns"):
            order.append(name)
            await asyncio.sleep(0)

    async with gate.slot(9, "ns"):
        tasks = []
        for name, rank in (("event", 3), ("service", 1), ("deployment", 0), ("policy", 1), ("config", 0)):
            tasks.append(asyncio.create_task(enter(name, rank)))
            await asyncio.sleep(0)
        assert gate.waiting == 5
    await asyncio.gather(*tasks)
    assert order == ["deployment", "config", "service", "policy", "event"]


async def test_a_cancelled_waiter_gives_its_turn_away() -> None:
    gate = a_gate(1)
    entered = asyncio.Event()

    async def enter() -> None:
        async with gate.slot(0, "ns"):
            entered.set()

    async with gate.slot(0, "ns"):
        first = asyncio.create_task(enter())
        second = asyncio.create_task(enter())
        await asyncio.sleep(0)
        first.cancel()
    async with asyncio.timeout(1.0):
        await second
    assert entered.is_set()


async def test_a_waiter_cancelled_as_its_turn_comes_passes_the_slot_on() -> None:
    gate = a_gate(1)

    async def enter() -> None:
        async with gate.slot(0, "ns"):
            await asyncio.sleep(3600)

    async with gate.slot(0, "ns"):
        doomed = asyncio.create_task(enter())
        await asyncio.sleep(0)
    doomed.cancel()
    await asyncio.gather(doomed, return_exceptions=True)
    async with asyncio.timeout(1.0), gate.slot(0, "ns"):
        assert gate.waiting == 0


async def test_a_group_that_waits_for_somebody_still_gets_a_quarter_of_the_slots() -> None:
    gate = Gate(4, most=4, lendable=4, slow=0.01)
    async with gate.slot(0, "ns"):
        await asyncio.sleep(0.05)  # the slot is lent: what holds it may never end
        async with asyncio.timeout(1.0), gate.slot(0, "ns"):
            waiting = asyncio.create_task(gate.slot(0, "ns").__aenter__())
            await asyncio.sleep(0)
            assert gate.waiting == 1
            waiting.cancel()
