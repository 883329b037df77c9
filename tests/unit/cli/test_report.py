"""`speculative report`: the page of an object over the history that a Prometheus on loopback holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cli.scrapes import Pod
from tests.unit.cli.test_cluster_commands import FakeCluster
from tests.unit.cli.test_replay import SPEC, START, history, ranges
from tests.unit.narrow import too_wide
from tests.unit.shell.promserver import PrometheusServer, serving

from speculative_operator.cli import page, report
from speculative_operator.cli.history import Span
from speculative_operator.cli.main import main
from speculative_operator.cli.page import Point
from speculative_operator.domain.decision import Interval

DECISION = {
    "time": "2023-11-14T22:15:20.5Z", "from": "1-64:3", "to": "1-64:5", "reason": "FasterTable",
    "message": "<script>alert(1)</script>",
}  # fmt: skip


class Elements(HTMLParser):
    """Counts elements, and finds what would be fetched from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.count: dict[str, int] = {}
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    with serving() as made:
        yield made


def body() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SPEC)
    found["metadata"] |= {"namespace": "llm"}
    found["spec"]["accelerator"] |= {"hourlyCost": "3.6"}
    pair = {"verifier": "hf://meta-llama/Llama-3.1-8B-Instruct"}
    return {**found, "status": {"pair": pair, "decisions": [DECISION, {**DECISION, "time": "2020-01-01T00:00:00Z"}]}}


def written(monkeypatch: pytest.MonkeyPatch, server: PrometheusServer, tmp_path: Path, *more: str) -> tuple[int, str]:
    cluster = FakeCluster(body())
    cluster.namespace = "llm"
    monkeypatch.setattr(report, "Cluster", cluster)
    path = tmp_path / "page.html"
    words = ["report", "llama", "--prometheus", server.url, "--since", str(START), "--until", str(START + 600)]
    status = main([*words, "--to", str(path), *more])
    return status, path.read_text() if path.exists() else ""


def test_the_page_has_figures_plots_and_decisions(
    monkeypatch: pytest.MonkeyPatch, server: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = {"llama-7d9c6b5f4-abcde": Pod(requests=40), "llama-7d9c6b5f4-fghij": Pod(requests=10)}
    server.answer = ranges(history(41, 15, **pods))
    status, text = written(monkeypatch, server, tmp_path)
    assert status == 0
    assert re.fullmatch(r"report: \S+page.html, 40 windows\n", capsys.readouterr().err)
    elements = Elements()
    elements.feed(text)
    assert elements.count["svg"] == 5
    assert elements.count["polyline"] >= 6
    assert "script" not in elements.count, "what a status says is text"
    assert elements.fetched == [], "the page opens offline"
    assert "&lt;script&gt;" in text
    assert too_wide(text) == []
    assert "svg { width: 100%" in text
    assert "1 of the 2 decisions" in text
    assert ("draft tokens accepted" in text, "cost while it served" in text) == (True, True)
    asked = server.asked[0]["query"]
    assert asked.endswith(r'namespace="llm",pod=~"llama-[a-z0-9]+-[a-z0-9]+"}')


def test_the_figures_are_those_of_the_counters(
    monkeypatch: pytest.MonkeyPatch, server: PrometheusServer, tmp_path: Path
) -> None:
    pod = Pod(requests=40)
    samples = history(41, 15, **{"llama-7d9c6b5f4-abcde": pod})
    server.answer = ranges(samples)
    _, text = written(monkeypatch, server, tmp_path)
    (tokens,) = (values for (name, _), values in samples.items() if name == "vllm:generation_tokens_total")
    told = re.search(r'output tokens</td><td class="figure">([\d,]+)<', text)
    assert told is not None
    assert float(told[1].replace(",", "")) == pytest.approx(tokens[-1][1] - tokens[0][1], rel=0.02)


def test_without_samples_it_says_what_to_look_at(
    monkeypatch: pytest.MonkeyPatch, server: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = ranges({})
    assert written(monkeypatch, server, tmp_path) == (1, "")
    assert "no samples of these pods between 2023-11-14 22:13:20" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_one_line(
    monkeypatch: pytest.MonkeyPatch, server: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = ranges(history(41, 15, **{"llama-7d9c6b5f4-abcde": Pod()}))
    status, _ = written(monkeypatch, server, tmp_path, "--to", str(tmp_path / "no" / "page.html"))
    assert (status, capsys.readouterr().err.count("\n")) == (1, 1)


MAYBE = st.one_of(st.none(), st.floats(0, 1e6))
POINTS = st.builds(
    Point,
    time=st.floats(0, 3600),
    seconds=st.floats(1, 600),
    pods=st.integers(1, 32),
    load=st.floats(0, 1e4),
    k=MAYBE,
    tpot_ms=MAYBE,
    off_ms=MAYBE,
    gain=st.one_of(st.none(), st.builds(Interval, *[st.floats(-100, 1e6)] * 3)),
    acceptance=st.one_of(st.none(), st.floats(0, 1)),
    tokens_per_second=st.floats(0, 1e6),
    cost=MAYBE,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(POINTS, max_size=5))
def test_whatever_was_measured_makes_a_page(points: list[Point]) -> None:
    points = sorted(points, key=lambda one: one.time)
    text = page.page(body(), points, Span(0, 3600, 60), "speculative report")
    assert "nan" not in re.sub(r"<style>.*</style>", "", text, flags=re.S).lower().replace("finance", "")
    assert text.count("<svg") <= 5
