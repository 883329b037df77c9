"""The work queue on a clock that stands still until it is told otherwise."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.shell.queue import LAST_BACKOFF, Queue


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> Queue[str]:
    return Queue(clock, lambda: 0.5, settle=0.25)


def test_a_key_asked_for_twice_is_visited_once(queue: Queue[str]) -> None:
    queue.add("a")
    queue.add("a")
    assert queue.pop() == "a"
    assert queue.pop() is None


def test_the_earlier_due_time_wins(queue: Queue[str], clock: Clock) -> None:
    queue.add("a", 10.0)
    queue.add("a", 2.0)
    queue.add("a", 5.0)
    clock.now += 1.9
    assert queue.pop() is None
    clock.now += 0.1
    assert queue.pop() == "a"
    queue.finish("a")
    clock.now += 100.0
    assert queue.pop() is None


def test_keys_come_in_the_order_they_are_due(queue: Queue[str], clock: Clock) -> None:
    for key, delay in (("late", 3.0), ("early", 1.0), ("middle", 2.0)):
        queue.add(key, delay)
    clock.now += 5.0
    assert [queue.pop(), queue.pop(), queue.pop()] == ["early", "middle", "late"]


def test_a_key_that_is_put_off_comes_later_or_when_it_is_asked_for(queue: Queue[str], clock: Clock) -> None:
    queue.add("a")
    for wait, asked in ((10.0, False), (1.0, True)):
        assert queue.pop() == "a"
        queue.put_off("a", 10.0)
        clock.now += wait - 0.1
        assert queue.pop() is None
        clock.now += 0.1
        if asked:
            queue.add("a")
    assert queue.pop() == "a"


def test_a_key_is_never_visited_twice_at_once(queue: Queue[str], clock: Clock) -> None:
    queue.add("a")
    assert queue.pop() == "a"
    queue.add("a")
    clock.now += 1.0
    assert queue.pop() is None
    queue.finish("a", 60.0)
    clock.now += 0.25
    assert queue.pop() == "a"


def test_a_storm_of_events_is_one_visit_after_a_pause(queue: Queue[str], clock: Clock) -> None:
    queue.add("a")
    queue.pop()
    queue.finish("a")
    for _ in range(50):
        queue.add("a")
    assert queue.pop() is None
    clock.now += 0.25
    assert queue.pop() == "a"
    assert queue.pop() is None


def test_failures_wait_longer_each_time_and_no_longer_than_the_limit(queue: Queue[str], clock: Clock) -> None:
    queue.add("a")
    waits = []
    for _ in range(12):
        assert queue.pop() == "a"
        waits.append(queue.retry("a"))
        clock.now += waits[-1]
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == LAST_BACKOFF
    assert queue.pop() == "a"
    queue.finish("a", 0.0)
    clock.now += 1.0
    assert queue.pop() == "a"
    assert queue.retry("a") == 1.0


def test_an_ordinary_event_does_not_end_a_back_off_and_an_urgent_one_does(queue: Queue[str], clock: Clock) -> None:
    queue.add("a")
    queue.pop()
    assert queue.retry("a", at_least=30.0) == 30.0
    queue.add("a")
    clock.now += 5.0
    assert queue.pop() is None
    queue.add("a", urgent=True)
    assert queue.pop() == "a"


def test_urgent_does_not_break_the_pause_of_a_key_that_did_not_fail(queue: Queue[str]) -> None:
    queue.add("a")
    queue.pop()
    queue.finish("a")
    queue.add("a", urgent=True)
    assert queue.pop() is None


def test_a_forgotten_key_does_not_come_back(queue: Queue[str], clock: Clock) -> None:
    queue.add("a", 1.0)
    queue.forget("a")
    clock.now += 2.0
    assert queue.pop() is None


def test_a_key_forgotten_during_its_visit_ends_with_it_unless_asked_for_again(queue: Queue[str], clock: Clock) -> None:
    queue.add("a")
    queue.pop()
    queue.forget("a")
    queue.finish("a", 1.0)
    clock.now += 10.0
    assert queue.pop() is None
    queue.add("a")
    queue.pop()
    queue.forget("a")
    queue.add("a")
    assert queue.pop() is None, "still visited: two visits at once"
    queue.finish("a")
    clock.now += 1.0
    assert queue.pop() == "a"


def test_a_stall_is_work_without_any_visit_that_ends(queue: Queue[str], clock: Clock) -> None:
    assert queue.stall_seconds == 0.0
    queue.add("a")
    queue.add("b")
    queue.add("future", 1000.0)
    clock.now += 7.0
    assert queue.stall_seconds == 7.0
    assert queue.pop() == "a"
    clock.now += 3.0
    assert queue.stall_seconds == 10.0, "b is due, and nothing ends"
    assert queue.pop() == "b"
    assert (queue.waiting, queue.reconciling) == (0, 2)
    clock.now += 3.0
    queue.retry("a", 60.0)
    assert queue.stall_seconds == 0.0, "b takes long, but a has ended"
    clock.now += 5.0
    assert queue.stall_seconds == 5.0
    queue.finish("b")
    clock.now += 5.0
    assert queue.stall_seconds == 0.0, "waiting for its time is no stall"


def test_what_was_asked_for_before_a_visit_begins_needs_no_second_one(queue: Queue[str], clock: Clock) -> None:
    queue.add("a")
    assert queue.pop() == "a"
    queue.add("a")
    queue.begin("a")
    queue.finish("a")
    clock.now += 1.0
    assert queue.pop() is None


async def test_get_wakes_for_a_new_key_and_for_the_end() -> None:
    queue: Queue[str] = Queue(asyncio.get_running_loop().time, lambda: 0.5)
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("later", 60.0)
    await asyncio.sleep(0)
    queue.add("now")
    async with asyncio.timeout(1.0):
        assert await waiting == "now"
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.close()
        assert await waiting is None


Step = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 3), st.floats(0.0, 5.0)),
    st.tuples(st.just("pass"), st.integers(0, 3), st.floats(0.0, 5.0)),
    st.tuples(st.sampled_from(["done", "fail", "forget"]), st.integers(0, 3), st.floats(0.0, 5.0)),
)


@given(st.lists(Step, max_size=60))
def test_whatever_happens_one_visit_at_once_and_nothing_asked_for_is_lost(
    steps: list[tuple[str, int, float]],
) -> None:
    clock = Clock()
    queue: Queue[int] = Queue(clock, lambda: 0.5)
    visiting: set[int] = set()
    wanted: set[int] = set()
    forgotten: set[int] = set()

    def take() -> None:
        while (key := queue.pop()) is not None:
            assert key not in visiting
            visiting.add(key)
            wanted.discard(key)
            forgotten.discard(key)

    for what, key, number in steps:
        if what == "add":
            queue.add(key, number)
            wanted.add(key)
            forgotten.discard(key)
        elif what == "pass":
            clock.now += number
        elif what == "forget":
            queue.forget(key)
            wanted.discard(key)
            forgotten.add(key)
        elif key in visiting:
            visiting.remove(key)
            if what == "done":
                queue.finish(key)
            else:
                queue.retry(key)
                wanted |= {key} - forgotten
        take()
    for key in list(visiting):
        queue.finish(key)
    visiting.clear()
    clock.now += 10_000.0
    missing = set(wanted)
    take()
    assert missing <= visiting
