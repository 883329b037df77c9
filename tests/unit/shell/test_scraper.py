"""Figures of a cluster without Prometheus: read from pods on loopback, within bounds, and given up for Prometheus."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import server_context
from tests.unit.plant.scrapes import Pod as Engine
from tests.unit.reconcile.worlds import SPEC

from speculative_operator.domain import names
from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.registry import engine_for
from speculative_operator.settings import Settings
from speculative_operator.shell import scraper as module
from speculative_operator.shell.podseries import Answer, Reached
from speculative_operator.shell.scraper import Scraper, WithPods

NOW = 1_800_000_000.0
MOST = 100_000
_NUMBERS = itertools.count(1)


@dataclass
class Pod:
    """A pod on an address of its own: what it answers on the engine's port, and on that of step telemetry."""

    address: str = ""
    page: str | int = ""
    telemetry: str | int | None = None
    asked: list[int] = field(default_factory=list)


@pytest.fixture
def pods() -> Iterator[Any]:
    """Makes pods."""
    with ExitStack() as stack:

        def make(
            page: str | int = "vllm:generation_tokens_total 1\n",
            telemetry: str | int | None = None,
            tls: ssl.SSLContext | None = None,
        ) -> Pod:
            address = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250 + 1}.{next(_NUMBERS) % 250 + 1}"
            pod = Pod(address, page, telemetry)
            for port in (names.SERVING_PORT, *(() if telemetry is None else (names.TELEMETRY_PORT,))):
                server = ThreadingHTTPServer((address, port), _handler(pod, port))
                if tls is not None and port == names.SERVING_PORT:
                    server.socket = tls.wrap_socket(server.socket, server_side=True)
                thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
                thread.start()
                stack.callback(thread.join)
                stack.callback(server.server_close)
                stack.callback(server.shutdown)
            return pod

        yield make


@pytest.fixture
def dripping() -> Iterator[Any]:
    """Makes pods that begin an answer and never end it; their addresses."""
    ends = threading.Event()
    with ExitStack() as stack:
        stack.callback(ends.set)

        def make(begin: bytes, *, stays: bool = True) -> str:
            address = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250 + 1}.{next(_NUMBERS) % 250 + 1}"
            server = stack.enter_context(socket.create_server((address, names.SERVING_PORT)))

            def drip() -> None:
                with suppress(OSError):
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(begin)
                        while stays and not ends.wait(0.05):
                            connection.sendall(b"x")

            threading.Thread(target=drip, daemon=True).start()
            return address

        yield make


def _handler(pod: Pod, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pod.asked.append(port)
            page = pod.page if port == names.SERVING_PORT else pod.telemetry
            content = page.encode() if isinstance(page, str) else b""
            self.send_response(page if isinstance(page, int) else 200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Location", f"http://{pod.address}:{port}/elsewhere")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Silence."""

    return Handler


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def values(answer: Answer, pod: str) -> dict[str, list[float]]:
    return {one.name: [value for _, value in one.samples] for one in answer.series.get(pod, ())}


class TestScraper:
    def test_what_pods_say_is_kept_for_a_minute(self, pods: Any, clock: Clock) -> None:
        pod, reads = pods(), Scraper(Settings(), clock)
        for tick in range(10):
            pod.page = f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {tick}\nother 3\n'
            answer = reads.fetch("models", {"a": (pod.address,)}, NOW + 10.0 * tick, MOST)
        (one,) = answer.series["a"]
        assert one == Series(
            "vllm:generation_tokens_total", {"engine": "0", "model_name": "m", "pod": "a"},
            tuple((NOW + 10.0 * tick, float(tick)) for tick in range(3, 10)),
        )  # fmt: skip
        assert answer.gaps == {}

    def test_step_telemetry_is_read_beside_it_and_not_asked_for_where_there_is_none(
        self, pods: Any, clock: Clock
    ) -> None:
        told, bare, reads = pods(telemetry="speculative_payload_table_version 7\n"), pods(), Scraper(Settings(), clock)
        both = {"told": (told.address,), "bare": (bare.address,)}
        for tick in range(3):
            answer = reads.fetch("models", both, NOW + tick, MOST)
        assert values(answer, "told")["speculative_payload_table_version"] == [7.0] * 3
        assert set(values(answer, "bare")) == {"vllm:generation_tokens_total"}
        assert told.asked.count(names.TELEMETRY_PORT) == 3

    @pytest.mark.parametrize(
        ("page", "said"),
        [(500, "answered 500"), (307, "answered 307"), ("vllm:generation_tokens_total one\n", "not a sample")],
    )
    def test_a_pod_that_says_nothing_of_use_is_a_gap_and_others_are_read(
        self, pods: Any, clock: Clock, page: Any, said: str
    ) -> None:
        bad, good, reads = pods(page), pods(), Scraper(Settings(), clock)
        answer = reads.fetch("models", {"bad": (bad.address,), "good": (good.address,), "new": ()}, NOW, MOST)
        assert set(answer.series) == {"good"}
        assert said in answer.gaps["bad"].message
        assert bad.asked == [names.SERVING_PORT]
        assert answer.gaps["new"].reason is Reason.METRICS_MISSING

    def test_a_page_without_end_is_given_up(self, pods: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "LARGEST_PAGE", 1000)
        pod = pods("#" * 2000)
        answer = Scraper(Settings(), clock).fetch("models", {"a": (pod.address,)}, NOW, MOST)
        assert "too large" in answer.gaps["a"].message

    def test_only_so_many_pods_are_read(self, pods: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_PODS", 1)
        first, second, reads = pods(), pods(), Scraper(Settings(), clock)
        reads.fetch("models", {"a": (first.address,)}, NOW, MOST)
        answer = reads.fetch("others", {"b": (second.address,)}, NOW, MOST)
        assert answer.series == {}
        assert second.asked == []
        reads.forget("models")
        assert set(reads.fetch("others", {"b": (second.address,)}, NOW + 1, MOST).series) == {"b"}

    def test_pods_that_cannot_be_read_take_nobodys_place(
        self, pods: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MOST_PODS", 1)
        bad, good, reads = pods(500), pods(), Scraper(Settings(), clock)
        reads.fetch("others", {"bad": (bad.address,)}, NOW, MOST)
        assert set(reads.fetch("models", {"good": (good.address,)}, NOW, MOST).series) == {"good"}

    def test_a_namespace_has_no_more_series_than_it_may(self, pods: Any, clock: Clock) -> None:
        pod, reads = pods("vllm:generation_tokens_total 1\nvllm:prompt_tokens_total 2\n"), Scraper(Settings(), clock)
        answer = reads.fetch("models", {"a": (pod.address,), "b": (pod.address,)}, NOW, 3)
        assert len(answer.series) == 1
        assert "more series than may be held" in next(iter(answer.gaps.values())).message

    def test_a_pod_that_speaks_tls_is_read_whoever_signed_its_certificate(
        self, pods: Any, clock: Clock, tmp_path: Path
    ) -> None:
        pod = pods(telemetry="speculative_payload_table_version 7\n", tls=server_context(tmp_path))
        there = {"a": Reached.at_port((pod.address,), names.SERVING_PORT, encrypted=True)}
        answer = Scraper(Settings(), clock).fetch("models", there, NOW, MOST)
        assert values(answer, "a")["vllm:generation_tokens_total"] == [1.0]
        assert values(answer, "a")["speculative_payload_table_version"] == [7.0], "step telemetry is not encrypted"
        plain = Scraper(Settings(), clock).fetch("models", {"a": (pod.address,)}, NOW, MOST)
        assert plain.series == {}

    @pytest.mark.parametrize("begin", [b"", b"\x16\x03\x03\x40\x00"])
    def test_a_handshake_that_does_not_end_is_given_up(
        self, dripping: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch, begin: bytes
    ) -> None:
        monkeypatch.setattr(module, "PAGE_SECONDS", 0.3)
        there = {"a": Reached.at_port((dripping(begin),), names.SERVING_PORT, encrypted=True)}
        answer = Scraper(Settings(), clock).fetch("models", there, NOW, MOST)
        assert answer.series == {}
        assert "a" in answer.gaps

    @pytest.mark.parametrize("said", [b"HTTP/1.1 200 OK\r\nX-", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
    def test_a_pod_that_drips_is_given_up(
        self, dripping: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch, said: bytes
    ) -> None:
        """Byte after byte, for ever: no single read of it ever takes long."""
        monkeypatch.setattr(module, "PAGE_SECONDS", 0.3)
        answer = Scraper(Settings(), clock).fetch("models", {"a": (dripping(said),)}, NOW, MOST)
        assert answer.series == {}
        assert "no whole answer in time" in answer.gaps["a"].message

    def test_a_page_that_breaks_off_is_none(self, dripping: Any, clock: Clock) -> None:
        """Half of it would be counters that went back."""
        address = dripping(
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nvllm:generation_tokens_total 1\n", stays=False
        )
        answer = Scraper(Settings(), clock).fetch("models", {"a": (address,)}, NOW, MOST)
        assert answer.series == {}

    def test_a_clock_that_was_set_back_begins_anew(self, pods: Any, clock: Clock) -> None:
        pod, reads = pods(), Scraper(Settings(), clock)
        reads.fetch("models", {"a": (pod.address,)}, NOW, MOST)
        answer = reads.fetch("models", {"a": (pod.address,)}, NOW - 100.0, MOST)
        assert [one.samples for one in answer.series["a"]] == [((NOW - 100.0, 1.0),)]


class FakePrometheus:
    def __init__(self) -> None:
        self.answer: Answer | Gap = Gap(Reason.PROMETHEUS_ERROR, "http://prometheus: is unreachable")
        self.asked = 0

    def fetch(self, *_: Any) -> Answer | Gap:
        self.asked += 1
        return self.answer

    def forget(self, namespace: str) -> None:
        """Nothing is known."""


@dataclass
class Source:
    """The two together, and what is behind each."""

    clock: Clock
    pod: Pod
    prometheus: FakePrometheus = field(default_factory=FakePrometheus)

    def __post_init__(self) -> None:
        self.whole = WithPods(self.prometheus, Scraper(Settings(), self.clock), self.clock)

    def tick(self, seconds: float = 10.0) -> Answer | Gap:
        answer = self.whole.fetch("models", {"a": (self.pod.address,)}, NOW + self.clock.now, 1000)
        self.clock.now += seconds
        return answer


class TestWithPods:
    @pytest.fixture
    def source(self, pods: Any, clock: Clock) -> Source:
        return Source(clock, pods())

    def test_pods_are_asked_once_prometheus_was_away_for_a_minute(self, source: Source) -> None:
        answers = [source.tick() for _ in range(8)]
        assert all(isinstance(one, Gap) for one in answers[:6])
        assert source.pod.asked != []
        assert isinstance(answers[7], Answer)
        assert answers[7].direct == "http://prometheus: is unreachable"
        assert len(answers[7].series["a"][0].samples) == 2

    def test_prometheus_is_asked_now_and_then_meanwhile_and_believed_at_once(self, source: Source) -> None:
        for _ in range(12):
            source.tick()
        before = source.prometheus.asked
        source.prometheus.answer = Answer({"a": (Series("x", {}, ((NOW, 1.0),)),)})
        answers = [source.tick() for _ in range(31)]
        assert source.prometheus.asked - before <= 31
        assert any(isinstance(one, Answer) and one.direct for one in answers)
        assert answers[-1] is source.prometheus.answer
        asked = len(source.pod.asked)
        source.tick()
        assert len(source.pod.asked) == asked
        source.prometheus.answer = Gap(Reason.PROMETHEUS_ERROR, "away again")
        anew = [source.tick() for _ in range(7)][-1]
        assert isinstance(anew, Answer)
        assert len(anew.series["a"][0].samples) == 1, "what was read before Prometheus was back is forgotten"

    def test_a_prometheus_that_has_nothing_of_the_pods_is_one_too(self, source: Source) -> None:
        source.prometheus.answer = Answer()
        answers = [source.tick() for _ in range(8)]
        assert isinstance(answers[7], Answer)
        assert answers[7].direct == "Prometheus has no series of them"

    def test_nor_can_one_tell_that_lacks_what_the_engine_needs(self, source: Source) -> None:
        """It turned the engine's histograms into native ones."""
        rest = ("generation_tokens_total", "prompt_tokens_total", "num_requests_running", "num_requests_waiting")
        told = tuple(Series(f"vllm:{name}", {}, ((NOW, 1.0),)) for name in rest)
        source.prometheus.answer = Answer({"a": told, "b": told})
        answers = [source.tick() for _ in range(8)]
        assert isinstance(answers[7], Answer)
        assert answers[7].direct.startswith("in Prometheus vllm:iteration_tokens_total_count is missing, perhaps")
        assert "scrapeClassicHistograms" in answers[7].direct

    def test_one_that_lacks_it_of_some_pods_can(self, source: Source) -> None:
        """A pod that starts, or two objects of which one is scraped badly: the reader says which pod lacks what."""
        whole = tuple(Series(name, {}, ((NOW, 1.0),)) for name in engine_for(SPEC).needed)
        source.prometheus.answer = Answer({"a": whole[:1], "b": whole})
        assert [source.tick() for _ in range(10)][-1] is source.prometheus.answer
        assert source.pod.asked == []

    @pytest.mark.parametrize(
        "answer",
        [
            Answer(gaps={"a": Gap(Reason.METRICS_FOREIGN, "from elsewhere")}),
            Answer(gaps={"a": Gap(Reason.METRICS_ABSURD, "too many")}),
            Gap(Reason.METRICS_ABSURD, "too many"),
        ],
    )
    def test_what_must_not_be_believed_is_not_gone_round(self, source: Source, answer: Answer) -> None:
        source.prometheus.answer = answer
        assert [source.tick() for _ in range(10)][-1] is answer
        assert source.pod.asked == []

    def test_pods_that_cannot_be_read_either_leave_the_word_to_prometheus(self, source: Source) -> None:
        source.pod.page = 500
        answers = [source.tick() for _ in range(30)]
        assert all(one is source.prometheus.answer for one in answers)
        assert source.prometheus.asked == 30
        assert source.pod.asked.count(names.SERVING_PORT) <= 5

    def test_pods_that_go_dumb_meanwhile_do_too_and_one_tick_of_it_costs_no_other(self, source: Source) -> None:
        for _ in range(9):
            source.tick()
        source.pod.page = 500
        assert source.tick() is source.prometheus.answer
        source.pod.page = "vllm:generation_tokens_total 5\n"
        again = source.tick()
        assert isinstance(again, Answer)
        assert len(again.series["a"][0].samples) > 2
        source.pod.page = 500
        asked = len(source.pod.asked)
        for _ in range(12):
            source.tick()
        assert len(source.pod.asked) - asked <= 6, "after three ticks without any it rests"

    def test_a_sample_bears_the_time_at_which_it_was_taken(
        self, source: Source, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A Prometheus that hangs takes five seconds of the round."""
        fetch = source.prometheus.fetch

        def hang(*what: Any) -> Answer | Gap:
            source.clock.now += 5.0
            return fetch(*what)

        monkeypatch.setattr(source.prometheus, "fetch", hang)
        for _ in range(12):
            began = NOW + source.clock.now
            asked = source.prometheus.asked
            answer = source.tick()
            late = 5.0 * (source.prometheus.asked - asked)
            if isinstance(answer, Answer):
                assert answer.time == began + late
                assert answer.series["a"][0].samples[-1][0] == began + late
        assert isinstance(answer, Answer)

    def test_a_blip_is_none(self, source: Source) -> None:
        for number in range(30):
            away = number % 4 == 0
            source.prometheus.answer = Gap(Reason.PROMETHEUS_TIMEOUT, "slow") if away else Answer({"a": (_one(),)})
            source.tick()
        assert source.pod.asked == []


def _one() -> Series:
    return Series("x", {}, ((NOW, 1.0),))


def test_a_reader_makes_windows_of_it(pods: Any, clock: Clock) -> None:
    engine = Engine(requests=8, steps=100)
    pod, reads = pods(engine.text()), Scraper(Settings(), clock)
    for tick in range(3):
        answer = reads.fetch("models", {"a": (pod.address,)}, NOW + 10.0 * tick, MOST)
        pod.page = engine.run(10.0).text()
    window = engine_for(SPEC).read(answer.series["a"], ["a"], {}, NOW + 20.0, 30.0)["a"]
    assert isinstance(window, PodWindow), window
    assert (window.steps, window.batch) == (2000, 8)
