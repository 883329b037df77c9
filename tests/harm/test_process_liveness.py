"""One object whose visit takes long makes the kubelet restart the operator for all objects, again and again."""

from __future__ import annotations

import asyncio
from typing import Any

from speculative_operator.settings import Settings
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.gate import deadline, stop_clock
from speculative_operator.shell.operator import Operator
from speculative_operator.shell.queue import Queue
from speculative_operator.shell.telemetry import Telemetry

OBJECTS = 5000


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def operator(queue: Queue[Any]) -> Operator:
    made = object.__new__(Operator)
    made.settings, made.queue = Settings(), queue
    made.telemetry, made.leader, made.cache = Telemetry(), None, Cache()
    made.__post_init__()
    made._synced.set()
    made.beat()
    return made


def full_queue(clock: Clock) -> Queue[Any]:
    queue: Queue[Any] = Queue(clock, lambda: 0.5)
    for number in range(OBJECTS):
        queue.add(("ns", f"o{number}"))
    return queue


def test_one_slow_visit_beside_many_quick_ones_never_fails_the_liveness_probe() -> None:
    clock = Clock()
    queue = full_queue(clock)
    assert queue.pop() is not None, "this visit ends only after everything else"
    for _ in range(60):
        while (other := queue.pop()) is not None:
            queue.finish(other, 10.0)
        assert operator(queue).healthy() == ""
        clock.now += 10.0
    assert queue.reconciling == 1


def test_a_queue_that_does_not_turn_over_still_fails_the_liveness_probe() -> None:
    clock = Clock()
    queue = full_queue(clock)
    for _ in range(500):
        queue.pop()
    clock.now += 10_000.0
    assert "no reconcile has ended" in operator(queue).healthy()


async def test_a_visit_never_goes_on_for_ever() -> None:
    try:
        async with deadline(0.0):
            await asyncio.Event().wait()
    except TimeoutError:
        return
    raise AssertionError("the visit went on")


async def test_waiting_for_a_turn_never_fails_a_visit() -> None:
    turn = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with deadline(0.001):
        with stop_clock(), stop_clock():
            # Later than the deadline by the loop's own clock: it would have fired before.
            loop.call_at(loop.time() + 0.01, turn.set)
            await turn.wait()
