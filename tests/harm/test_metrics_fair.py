"""Four slow namespaces, or too many of them, turned the figures of every other namespace into timeouts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler

import pytest
from tests.unit.shell.fakeapi import eventually
from tests.unit.shell.promserver import matrix, send, series, serving

from speculative_operator.domain.observation import Gap, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.settings import Settings
from speculative_operator.shell import prometheus
from speculative_operator.shell.bodies import Key
from speculative_operator.shell.podseries import Addresses, Answer
from speculative_operator.shell.prometheus import Prometheus
from speculative_operator.shell.rounds import MOST_THREADS, SLOW_THREADS, Rounds
from speculative_operator.shell.telemetry import Telemetry

TICK, TIMEOUT = 10.0, 5.0
SETTINGS = Settings(tick_seconds=TICK, prometheus_timeout_seconds=TIMEOUT)
GOOD = [f"good-{number:02d}" for number in range(50)]
GAP = Gap(Reason.PROMETHEUS_TIMEOUT, "Prometheus did not answer within 5 s")


class Scene:
    """Rounds on a clock of the test. Good namespaces answer at once, bad ones after TIMEOUT seconds of that clock."""

    def __init__(self, bad: Sequence[str]) -> None:
        self.now = 1000.0
        self.bad = set(bad)
        self.wanted: dict[str, list[Key]] = {name: [(name, "x")] for name in (*bad, *GOOD)}
        self.hanging: dict[str, tuple[float, threading.Event]] = {}
        self.answered: dict[str, list[float]] = {name: [] for name in self.wanted}
        self.most_at_once = 0
        self.rounds = Rounds(SETTINGS, self, Telemetry(), lambda: self.wanted, self.pods, self.note, lambda: self.now)

    def pods(self, keys: Sequence[Key]) -> Addresses:
        return {"p": ("10.0.0.1",)} if keys else {}

    def note(self, keys: Sequence[Key]) -> None:
        for namespace, _ in keys:
            self.answered[namespace].append(self.now)

    def forget(self, namespace: str) -> None:
        """Nothing is known."""

    def fetch(self, namespace: str, pods: Addresses, now: float, most: int) -> Answer | Gap:
        if namespace not in self.bad:
            return Answer({"p": (Series("x", {"pod": "p"}, ((now, 1.0),)),)})
        event = threading.Event()
        self.hanging[namespace] = (self.now, event)
        self.most_at_once = max(self.most_at_once, len(self.hanging))
        event.wait(60.0)
        return GAP

    async def pass_second(self) -> None:
        """One second: who has hung for long enough ends, and everybody gets as far as is possible."""
        self.now += 1.0
        for namespace, (since, event) in list(self.hanging.items()):
            if self.now - since >= TIMEOUT:
                del self.hanging[namespace]
                event.set()
                await eventually(lambda name=namespace: name not in self.rounds._running or name in self.hanging)  # type: ignore[misc]
        self.rounds.start_due(self.now, self.wanted)
        await eventually(lambda: set(self.rounds._running) == set(self.hanging))

    def end(self) -> None:
        for _, event in self.hanging.values():
            event.set()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene([f"bad-{number}" for number in range(30)])
    yield made
    made.end()


async def test_hanging_namespaces_never_take_rounds_from_good_ones(scene: Scene) -> None:
    for _ in range(40):
        await scene.pass_second()
    assert scene.most_at_once <= MOST_THREADS
    for known in scene.answered.values():
        known.clear()
    scene.most_at_once = 0
    for _ in range(100):
        await scene.pass_second()
    assert scene.most_at_once <= SLOW_THREADS, "they share a few threads of their own"
    for namespace in GOOD:
        assert len(scene.answered[namespace]) == 10, namespace
    for namespace in scene.bad:
        assert len(scene.answered[namespace]) >= 9, "they are told each tick that there is no answer"


async def test_a_namespace_that_answers_again_is_quick_again(scene: Scene) -> None:
    for _ in range(40):
        await scene.pass_second()
    scene.bad.clear()
    for _ in range(200):
        await scene.pass_second()
    assert scene.rounds._slow == {}


async def test_a_round_that_waits_for_a_thread_has_not_begun() -> None:
    """The time that others took counted as its own."""
    scene = Scene(["bad"])
    for _ in range(30):
        await scene.pass_second()
    for namespace in GOOD:
        latest = scene.rounds.latest(namespace)
        assert latest is not None
        assert latest.gap is None
    scene.end()


async def test_one_namespace_never_takes_the_memory_of_the_others() -> None:
    """Large ones wait for room, small ones never."""
    wanted: dict[str, list[Key]] = {name: [(name, "x")] for name in ("large-1", "large-2", "large-3", *GOOD)}
    granted: dict[str, int] = {}
    hold = threading.Event()

    class Source:
        def fetch(self, namespace: str, pods: Addresses, now: float, most: int) -> Answer | Gap:
            granted[namespace] = most
            if namespace.startswith("large"):
                hold.wait(60.0)
            return Answer({pod: (Series("x", {}, ((now, 1.0),)),) for pod in pods})

        def forget(self, namespace: str) -> None:
            """Nothing is known."""

    def pods(keys: Sequence[Key]) -> Addresses:
        large = keys[0][0].startswith("large")
        return {f"p{number}": ("10.0.0.1",) for number in range(1000 if large else 1)}

    rounds = Rounds(SETTINGS, Source(), Telemetry(), lambda: wanted, pods, lambda _: None, lambda: 0.0)
    rounds.start_due(0.0, wanted)
    await eventually(lambda: all(rounds.latest(name) is not None for name in GOOD))
    large = [name for name in granted if name.startswith("large")]
    assert len(large) == 2
    assert sum(granted[name] for name in large) <= SETTINGS.prometheus_series
    hold.set()
    await eventually(lambda: all(rounds.latest(name) is not None for name in wanted))
    await eventually(lambda: not rounds._running)
    held = SETTINGS.prometheus_series - rounds._room.free
    assert held == 3 * 1000 + len(GOOD)
    for name in wanted:
        found = rounds.latest(name)
        assert found is not None
        found.drop()
    assert rounds._room.free == SETTINGS.prometheus_series, "what objects have taken is free again"


async def test_a_flood_in_one_namespace_leaves_fifty_others_their_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "LARGEST_ANSWER", 1 << 20)
    labels = {"__name__": "vllm:num_preemptions_total", "pod": "p", "instance": "10.0.0.1:8000"}
    flood = b",".join(
        json.dumps({"metric": {**labels, "finished_reason": f"{number:07d}"}, "values": [[0, "1"]]}).encode()
        for number in range(10_000)
    )
    head, tail = b'{"status":"success","data":{"resultType":"matrix","result":[', b"]}}"
    good = json.dumps(matrix(series("vllm:generation_tokens_total", (0.0, "1"), pod="p", instance="10.0.0.1:8000")))
    wanted: dict[str, list[Key]] = {name: [(name, "x")] for name in ("hostile", *GOOD)}
    with serving() as server:

        def answer(handler: BaseHTTPRequestHandler) -> None:
            hostile = "namespace=hostile" in handler.path
            send(handler, 200, head + flood + tail if hostile else good.encode())

        server.answer = answer
        settings = Settings(prometheus_url=server.url)
        source = Prometheus(settings)
        rounds = Rounds(
            settings, source, Telemetry(), lambda: wanted, lambda _: {"p": ("10.0.0.1",)}, lambda _: None, lambda: 0.0
        )
        for tick in range(3):
            before = {name: rounds.latest(name) for name in wanted}
            rounds.start_due(tick * settings.tick_seconds, wanted)
            await eventually(lambda seen=before: all(rounds.latest(name) is not seen[name] for name in wanted))  # type: ignore[misc]
            await eventually(lambda: not rounds._running)
            for name in GOOD:
                found = rounds.latest(name)
                assert found is not None
                assert [one.name for one in found.take(["p"])] == ["vllm:generation_tokens_total"]
            hostile = rounds.latest("hostile")
            assert hostile is not None
            assert hostile.gap is not None
        asked = [one["namespace"] for one in server.asked]
        assert asked.count("hostile") == 2, "with and without step telemetry, then not for a while"
    await asyncio.sleep(0)
