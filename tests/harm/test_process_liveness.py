"""One object whose visit takes long makes the kubelet restart the operator for all objects, again and again."""

from __future__ import annotations

from typing import Any

from tests.unit.shell.fakeapi import FakeApi, eventually
from tests.unit.shell.scene import owner
from tests.unit.shell.test_operator import ready, running

from speculative_operator.settings import Settings
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.operator import Operator
from speculative_operator.shell.queue import Queue
from speculative_operator.shell.resources import OWNER
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


def test_objects_at_rest_never_hide_that_no_reconcile_ends() -> None:
    clock = Clock()
    queue = full_queue(clock)
    assert queue.pop() is not None, "this visit never ends"
    for _ in range(40):
        while (other := queue.pop()) is not None:
            queue.put_off(other, 10.0)
        clock.now += 10.0
    assert "no reconcile has ended" in operator(queue).healthy()


async def test_a_visit_never_goes_on_for_ever(api: FakeApi) -> None:
    await api.put(OWNER, owner())
    async with running(read_timeout_seconds=0.5, leader_election=False) as run:
        await eventually(ready(api))
        await eventually(run.operator.informer.started.is_set)
        api.delay = 60.0
        await api.put(OWNER, {**owner(generation=3), "status": api.find(OWNER.kind)[0]["status"]})
        failed = 'ticks_total{outcome="failed",reason="Unavailable"}'
        await eventually(lambda: failed in run.operator.telemetry.render().decode())
        await eventually(lambda: run.operator.queue.reconciling == 0)
