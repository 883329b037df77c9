"""`speculative compare` against a stand-in Prometheus that has counters of two objects' pods."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from itertools import accumulate
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_cluster_commands import FakeCluster
from tests.unit.comparing.drawn import BOUNDS, SECONDS, samples
from tests.unit.shell.promserver import PrometheusServer, matrix, send, series, serving

from speculative_operator.cli import compare
from speculative_operator.comparing.measures import Sample
from speculative_operator.engines.vllm import reading

COUNT = 80
NOW = 1e9 + SECONDS * COUNT
COUNTERS = {
    reading.STEPS: "steps",
    reading.REQUEST_STEPS: "decode_request_steps",
    reading.STEP_SECONDS: "request_seconds",
    reading.FIRST_TOKENS: "first_tokens",
    reading.TTFT_SECONDS: "ttft_seconds",
    reading.GENERATED: "tokens",
    reading.PROMPT: "prompt_tokens",
}
BUCKETS = {
    "vllm:request_time_per_output_token_seconds_bucket": "tpot_histogram",
    "vllm:time_to_first_token_seconds_bucket": "ttft_histogram",
}


def counted(every: Sequence[Sample], **labels: str) -> Iterator[dict[str, Any]]:
    """What Prometheus has of a pod that did this: a scrape at the end of each sample."""
    times = [every[0].start, *(one.end for one in every)]

    def track(name: str, grown: Iterator[float], **more: str) -> dict[str, Any]:
        values = [0.0, *accumulate(grown)]
        return series(name, *((time, repr(value)) for time, value in zip(times, values, strict=True)), **labels, **more)

    for name, field in COUNTERS.items():
        yield track(name, (getattr(one, field) for one in every))
    for name, field in BUCKETS.items():
        for place, bound in enumerate(BOUNDS):
            le = "+Inf" if bound == float("inf") else repr(bound)
            yield track(name, (sum(n for _, n in getattr(one, field)[: place + 1]) for one in every), le=le)
    for name in (reading.RUNNING, reading.WAITING):
        yield series(name, *((time, "8") for time in times), **labels)


class TwoObjects(FakeCluster):
    """A cluster with the objects `plain` and `quick`, a pod each; Prometheus is a Service of it."""

    def __init__(self, prometheus: PrometheusServer, **specs: Mapping[str, Any]) -> None:
        super().__init__(None)
        self.prometheus, self.specs = prometheus, specs
        self.asked_through: list[str] = []

    def object(self, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": "models", "uid": name}, "spec": self.specs[name]}

    def pods(self, name: str) -> list[dict[str, Any]]:
        number = list(self.specs).index(name) + 1
        return [{"metadata": {"name": f"{name}-0"}, "status": {"podIPs": [{"ip": f"10.0.0.{number}"}]}}]

    def service_page(self, namespace: str, service: str, path: str, parameters: Mapping[str, str]) -> bytes:
        import requests

        self.asked_through.append(f"{namespace}/{service}{path}")
        return requests.get(self.prometheus.url + path, params=dict(parameters), timeout=10).content


SPEC = {"verifier": {"model": "hf://Qwen/Qwen3-8B"}, "accelerator": {"hourlyCost": "5"}}
PLAIN = {**SPEC, "speculation": {"mode": "Disabled"}}


class Clock:
    """Time that passes when somebody sleeps."""

    now = NOW

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def prometheus() -> Iterator[PrometheusServer]:
    with serving() as server:
        yield server


def told(server: PrometheusServer, a: Sequence[Sample], b: Sequence[Sample]) -> None:
    """Has the server answer with the samples of the range that each query names."""
    names = ({"pod": f"{name}-0", "instance": f"10.0.0.{number}:8000"} for number, name in ((1, "plain"), (2, "quick")))
    every = [
        one for own, labels in zip((a, b), names, strict=True) for one in counted(own, namespace="models", **labels)
    ]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked = parse_qs(urlsplit(handler.path).query)
        end, reach = float(asked["time"][0]), float(re.findall(r"\[(\d+)s\]", asked["query"][0])[0])
        cut = [{**one, "values": [v for v in one["values"] if end - reach < v[0] <= end]} for one in every]
        send(handler, 200, json.dumps(matrix(*(one for one in cut if one["values"]))).encode())

    server.answer = answer


@pytest.fixture
def cluster(prometheus: PrometheusServer, monkeypatch: pytest.MonkeyPatch) -> TwoObjects:
    made = TwoObjects(prometheus, plain=PLAIN, quick=SPEC)
    monkeypatch.setattr(compare, "Cluster", made)
    monkeypatch.setattr(compare, "time", Clock())
    return made


def test_a_faster_object_is_better_with_its_cost(run: Run, prometheus: PrometheusServer, cluster: TwoObjects) -> None:
    told(prometheus, samples(1, COUNT), samples(2, COUNT, pace=0.8))
    status, out, errors = run("compare", "plain", "quick", "--since", "20m")
    assert (status, errors) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "A  plain: hf://Qwen/Qwen3-8B, mode Disabled, 1 pod"
    assert re.match(
        r"TPOT +\S+ ms +\S+ ms +0\.\d+ +0\.\d+ to 0\.\d+ +Better$", next(x for x in lines if x[:4] == "TPOT")
    )
    arithmetic = next(x for x in lines if x.startswith("A  5 an hour"))
    speed, price = map(float, re.findall(r"/ ([\d.]+) tokens/s x 1000 = ([\d.]+) per", arithmetic)[0])
    assert price == pytest.approx(5 / 3600 / speed * 1000, rel=0.01)
    assert lines[-1].startswith("Better: B is better in TPOT")
    assert lines[-1].endswith("let quick serve in place of plain")
    assert set(cluster.asked_through) == {"monitoring/http:prometheus-operated:9090/api/v1/query"}


def test_a_worse_one_is_status_1_and_unknown_2(run: Run, prometheus: PrometheusServer, cluster: TwoObjects) -> None:
    told(prometheus, samples(1, COUNT), samples(2, COUNT, pace=1.2))
    status, out, _ = run("compare", "plain", "quick", "--prometheus", prometheus.url, "-o", "json")
    assert (status, cluster.asked_through) == (1, [])
    found = json.loads(out)
    assert (found["a"], found["b"], found["verdict"]) == ("plain", "quick", "Worse")
    assert {one["measure"] for one in found["measures"]} > {"TPOT", "P99 of TTFT", "cost per 1,000 tokens"}
    told(prometheus, samples(1, 8), samples(2, 8, pace=1.2))
    assert run("compare", "plain", "quick")[0] == 2


def test_it_waits_for_a_verdict(run: Run, prometheus: PrometheusServer, cluster: TwoObjects) -> None:
    told(prometheus, samples(1, COUNT), samples(2, COUNT, pace=0.8))
    Clock.now = NOW - SECONDS * (COUNT - 8)
    try:
        status, out, _ = run("compare", "plain", "quick", "--watch", "--since", "2m")
    finally:
        Clock.now = NOW
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines() if line.startswith(("Und", "Bet"))][-1] == "Better"
    assert "Undecided:" in out


def test_refusals_name_what_is_missing(run: Run, prometheus: PrometheusServer, cluster: TwoObjects) -> None:
    def error(*words: str) -> tuple[int, str]:
        status, out, errors = run("compare", *words)
        assert out == ""
        return status, errors

    assert error("plain", "plain") == (
        2, "error: A and B are both plain; name two objects; `speculative explain` tells of one\n"
    )  # fmt: skip
    later = [one for one in samples(2, COUNT) if one.start > 1e9 + 600]
    told(prometheus, samples(1, 30), later)
    status, said = error("plain", "quick")
    assert status == 1
    assert "the two have no hours in common: plain from 2001-09-09 01:46:40" in said
    prometheus.answer = lambda handler: send(handler, 200, json.dumps(matrix()).encode())
    assert "Prometheus has no figures of plain since" in error("plain", "quick")[1]
    prometheus.answer = lambda handler: send(handler, 503, b"")
    assert "HTTP status 503" in error("plain", "quick", "--prometheus", prometheus.url)[1]
    cluster.forbidden = ["deployments"]
    status, said = error("plain", "quick")
    assert (status, "--prometheus http://127.0.0.1:9090" in said) == (1, True)
    cluster.pods = lambda name: []  # type: ignore[method-assign]
    assert "plain has no pods" in error("plain", "quick", "--prometheus", prometheus.url)[1]


def test_other_verifiers_are_named(run: Run, prometheus: PrometheusServer, cluster: TwoObjects) -> None:
    cluster.specs["quick"] = {"verifier": {"model": "hf://Qwen/Qwen3-4B"}}
    told(prometheus, samples(1, COUNT), samples(2, COUNT))
    _, out, _ = run("compare", "plain", "quick")
    assert "the verifiers differ" in out
    assert "spec.accelerator.hourlyCost of A or B is not set" in out
