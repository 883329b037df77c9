"""Rounds: one query for each namespace and tick, shared, and never in anybody's way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from tests.unit.shell.fakeapi import eventually

from speculative_operator.domain.observation import Gap, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.settings import Settings
from speculative_operator.shell.bodies import Key
from speculative_operator.shell.podseries import Addresses, Answer
from speculative_operator.shell.rounds import Rounds, slot_of
from speculative_operator.shell.telemetry import Telemetry

SETTINGS = Settings(tick_seconds=2.0, prometheus_timeout_seconds=1.0)


class Source:
    """Answers by namespace: a result, or what to do."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.release = threading.Event()
        self.hang: set[str] = set()
        self.broken: set[str] = set()
        self.forgotten: list[str] = []

    def forget(self, namespace: str) -> None:
        self.forgotten.append(namespace)

    def fetch(self, namespace: str, pods: Addresses, now: float, most: int) -> Answer | Gap:
        assert pods == {"p": ("10.0.0.1",)}
        self.asked.append(namespace)
        if namespace in self.hang:
            self.release.wait(5.0)
        if namespace in self.broken:
            raise RuntimeError("boom")
        return Answer({"p": (Series("x", {"pod": "p"}, ((now, 1.0),)),)})


@pytest.fixture
def source() -> Iterator[Source]:
    made = Source()
    yield made
    made.release.set()


def addresses(_: Sequence[Key]) -> Addresses:
    return {"p": ("10.0.0.1",)}


def each(*namespaces: str) -> dict[str, list[Key]]:
    return {namespace: [(namespace, "gemma")] for namespace in namespaces}


def rounds_of(source: Source, arrived: list[str]) -> Rounds:
    def note(keys: Sequence[Key]) -> None:
        arrived.extend(namespace for namespace, _ in keys)

    return Rounds(SETTINGS, source, Telemetry(), each, addresses, note)


async def settle(rounds: Rounds) -> None:
    await eventually(lambda: not rounds._running, 2.0)


async def test_one_query_for_a_namespace_and_slot(source: Source) -> None:
    arrived: list[str] = []
    rounds = rounds_of(source, arrived)
    for _ in range(5):
        rounds.start_due(1000.0, each("a", "b"))
    await settle(rounds)
    rounds.start_due(1000.0, each("a", "b"))
    await settle(rounds)
    assert sorted(source.asked) == sorted(arrived) == ["a", "b"]
    rounds.start_due(1002.0, each("a", "b"))
    await settle(rounds)
    assert len(source.asked) == 4


async def test_a_finished_round_can_be_read_by_pod(source: Source) -> None:
    rounds = rounds_of(source, [])
    before = time.time()
    rounds.start_due(0.0, each("a"))
    await settle(rounds)
    found = rounds.latest("a")
    assert found is not None
    assert before <= found.time <= time.time()
    assert found.take(["other"]) == ()
    assert [series.name for series in found.take(["p"])] == ["x"]
    assert found.take(["p"]) == (), "what was taken is no longer held"
    assert rounds.latest("b") is None


async def test_a_source_that_breaks_is_a_gap(source: Source) -> None:
    source.broken = {"a"}
    rounds = rounds_of(source, [])
    rounds.start_due(0.0, each("a"))
    await settle(rounds)
    found = rounds.latest("a")
    assert found is not None
    assert found.gap is not None
    assert found.gap.reason is Reason.PROMETHEUS_ERROR


async def test_a_namespace_that_is_no_longer_wanted_is_forgotten(source: Source) -> None:
    rounds = rounds_of(source, [])
    rounds.start_due(0.0, each("a"))
    await settle(rounds)
    rounds.start_due(0.1, {})
    assert rounds.latest("a") is None
    assert source.forgotten == ["a"]


async def test_run_asks_again_and_again_until_it_is_cancelled(source: Source) -> None:
    settings = Settings(tick_seconds=1.0, prometheus_timeout_seconds=0.3)
    rounds = Rounds(settings, source, Telemetry(), lambda: each("a"), addresses, lambda _: None)
    task = asyncio.create_task(rounds.run())
    await eventually(lambda: len(source.asked) >= 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_namespaces_are_spread_over_the_tick_and_keep_their_place() -> None:
    starts = {slot_of(f"team-{number}", 5.0, 10.0) for number in range(50)}
    assert starts == {0.0, 1.0}, "some have begun the next slot at half time, some have not"
    assert slot_of("a", 20.0, 10.0) == slot_of("a", 10.0, 10.0) + 1.0
