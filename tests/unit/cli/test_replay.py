"""`speculative replay` against a Prometheus on loopback that holds the history of a made-up deployment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
import yaml
from tests.unit.cli.scrapes import Pod
from tests.unit.shell.promserver import Answer, PrometheusServer, matrix, says, send, serving

from speculative_operator.cli import history as histories
from speculative_operator.cli.main import main
from speculative_operator.cli.subject import subject
from speculative_operator.domain.spec import Mode
from speculative_operator.engines.vllm.adapter import ENGINE
from speculative_operator.replay.exposition import Exposition
from speculative_operator.replay.session import Session

START = 1_700_000_000
SPEC = """
apiVersion: serving.speculative.dev/v1alpha1
kind: SpeculativeDeployment
metadata: {name: llama}
spec:
  verifier: {model: "hf://meta-llama/Llama-3.1-8B-Instruct", maxNumSeqs: 64}
  speculator: {method: eagle3, model: "hf://yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}
  accelerator: {product: H100-SXM}
"""
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]]


def history(scrapes: int, interval: int, **pods: Pod) -> Samples:
    """Samples of every series, as a server would hold them."""
    reader, found = Exposition(ENGINE.metric_names), Samples()
    for index in range(scrapes):
        for name, pod in pods.items():
            for key, value in reader.parse(pod.run(interval).text()).items():
                labels = (*key.labels, ("pod", name), ("namespace", "llm"), ("job", "vllm"))
                found.setdefault((key.name, labels), []).append((START + index * interval, value))
    return found


def ranges(samples: Samples) -> Answer:
    """Answers query_range as Prometheus does: at each instant the newest sample of the last five minutes."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlparse(handler.path).query).items()}
        start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
        result = []
        for (name, labels), own in samples.items():
            values, at = [], start
            while at <= end:
                recent = [value for moment, value in own if at - 300 < moment <= at]
                values += [[at, str(recent[-1])]] if recent else []
                at += step
            if values:
                result.append({"metric": {"__name__": name, **dict(labels)}, "values": values})
        send(handler, 200, json.dumps(matrix(*result)).encode())

    return answer


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    with serving() as made:
        yield made


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "pair.yaml"
    path.write_text(SPEC)
    return path


def words(server: PrometheusServer, spec: Path, *more: str, last: int = 600) -> list[str]:
    span = ["--start", str(START), "--end", str(START + last), "--step", "15s"]
    return ["replay", "--prometheus", server.url, "--namespace", "llm", "--spec", str(spec), *span, *more]


def test_it_decides_as_on_the_scrapes_themselves(
    server: PrometheusServer, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the history come the proposals that a session makes of the same expositions."""
    server.answer = ranges(history(41, 15, a=Pod(requests=40), b=Pod(requests=10)))
    assert main(words(server, spec, "--json")) == 0
    *lines, summary = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    known = subject(yaml.safe_load(SPEC))
    session = Session(known.engine, replace(known.policy, mode=Mode.RECOMMEND))
    pods = {"a": Pod(requests=40), "b": Pod(requests=10)}
    for index, line in enumerate(lines):
        decision = session.feed(START + 15 * index, {name: pod.run(15).text() for name, pod in pods.items()})
        assert (line["time"], line["table"]) == (START + 15 * index, decision.table.rows())
        assert (line["reason"], line["message"]) == (decision.reason.value, decision.message)
    assert len(lines) == summary["scrapes"] == 41
    assert summary["valid"] == sum(line["valid"] for line in lines) > 30
    assert summary["changes"] == sum(line["changed"] for line in lines)
    assert summary["table"] == lines[-1]["table"]


def test_the_query_names_series_pods_and_times(
    server: PrometheusServer, spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = ranges(history(41, 15, a=Pod()))
    monkeypatch.setattr(histories, "POINTS", 20)
    assert main(words(server, spec, "--pod-regex", 'a"?')) == 0
    assert [(int(asked["start"]) - START, int(asked["end"]) - START) for asked in server.asked] == [
        (0, 285),
        (300, 585),
        (600, 600),
    ]
    asked = server.asked[0]
    assert (asked["path"], asked["step"], asked["namespace"]) == ("/api/v1/query_range", "15", "llm")
    asked_for = re.match(r'\{__name__=~"([^"]+)",', asked["query"])
    assert asked_for is not None
    assert sorted(asked_for[1].split("|")) == sorted(ENGINE.metric_names)
    assert asked["query"].endswith(',namespace="llm",pod=~"a\\"?"}')
    assert "41 scrapes" in capsys.readouterr().out
    server.asked.clear()
    assert main(words(server, spec, "--selector", '{job="vllm"}', "--json")) == 0
    assert server.asked[0]["query"].endswith(',namespace="llm",job="vllm"}')


def test_an_engine_that_tells_nothing_is_named_and_nothing_is_asked(
    server: PrometheusServer, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SPEC.replace('{method: eagle3, model: "hf://yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}', "{method: ngram}")
    spec.write_text(f"{text}  engine: {{type: TGI}}\n")
    assert main(words(server, spec)) == 1
    said = capsys.readouterr()
    assert "TGI has no metrics by which K could be decided" in said.err
    assert (said.out, server.asked) == ("", [])


def test_what_ran_is_what_is_compared_with(
    server: PrometheusServer, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Useless drafts of K = 3 in a full batch: fewer are proposed, and nothing is tried."""
    server.answer = ranges(history(121, 15, a=Pod(requests=60, steps=30, survival=(0.02, 0.0, 0.0))))
    assert main(words(server, spec, "--ran", "3", "--json", last=1800)) == 0
    *lines, summary = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["table"] == [[1, 64, 3]]
    proposed = [line for line in lines if line["reason"] == "Recommended"]
    assert proposed
    assert all(line["table"][-1][2] < 3 for line in proposed)
    assert 1 <= summary["changes"] < len(proposed)
    assert "Probing" not in summary["states"]


def test_the_table_shows_each_new_decision_once(
    server: PrometheusServer, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = ranges(history(41, 15, a=Pod()))
    assert main(words(server, spec)) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["TIME", "(UTC)", "STATE", "REASON", "K", "BY", "REQUESTS", "GAIN", "MESSAGE"]
    assert rows[0].startswith("2023-11-14 22:13:20  Holding  Starting")
    assert rows[-1].startswith("41 scrapes, ")
    assert len(rows) < 12


def test_a_pod_that_comes_later_and_one_that_goes(
    server: PrometheusServer, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = history(41, 15, a=Pod(), b=Pod())
    for (_, labels), own in samples.items():
        if dict(labels)["pod"] == "b":
            own[:] = own[10:20]
    server.answer = ranges(samples)
    assert main(words(server, spec, "--json")) == 0
    reasons = [json.loads(line).get("message", "") for line in capsys.readouterr().out.splitlines()]
    assert any(message.startswith("1 of 2 pods have figures that can be believed") for message in reasons)
    assert "over 24,000 drafts" in reasons[15]
    assert "over 12,000 drafts" in reasons[30], "the other pod alone goes on being tuned once this one is gone"


def test_token_and_errors_of_the_server(
    server: PrometheusServer, spec: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    server.answer = says({"status": "error", "error": "out of memory"}, 422)
    assert main(words(server, spec, "--token-file", str(token))) == 1
    assert server.headers[0]["Authorization"] == "Bearer secret"
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "HTTP status 422; it refuses the query" in said
    assert said.endswith("; check --prometheus, --token-file and --ca-file\n")


def test_nothing_found(server: PrometheusServer, spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(server, spec)) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: no samples of these pods between 2023-11-14 22:13:20 and")
    assert 'namespace="llm"' in said


@pytest.mark.parametrize(
    ("change", "said", "status"),
    [
        ({"--start": "soon"}, "--start is 'soon'; write now, how long ago", 2),
        ({"--end": "1600000000"}, "is not after --start", 2),
        ({"--step": "0.5s"}, "--step is '0.5s'; write whole seconds", 2),
        ({"--step": "often"}, "--step is 'often'; write a duration", 2),
        ({"--prometheus": "localhost:9090"}, "--prometheus is 'localhost:9090'; write http://", 2),
        ({"--ran": "50"}, "--ran is 50; this deployment can run K 0, 1,", 2),
        ({"--pod-regex": "("}, "--pod-regex '('", 2),
        ({"--spec": "/nowhere.yaml"}, "--spec /nowhere.yaml: No such file", 2),
        ({"--spec": "BROKEN"}, "line 1 is not YAML", 2),
        ({"--spec": "BAD"}, "spec.verifier is not set: it is required", 1),
    ],
)
def test_wrong_use(
    server: PrometheusServer,
    spec: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    change: dict[str, str],
    said: str,
    status: int,
) -> None:
    (tmp_path / "BROKEN").write_text("{a: [")
    (tmp_path / "BAD").write_text("kind: SpeculativeDeployment\nspec: {}\n")
    given: dict[str, Any] = dict(zip(words(server, spec)[1::2], words(server, spec)[2::2], strict=True))
    for option, value in change.items():
        given[option] = str(tmp_path / value) if value in ("BROKEN", "BAD") else value
    assert main(["replay", *(word for pair in given.items() for word in pair)]) == status
    problem = capsys.readouterr().err
    assert problem.startswith("error: ")
    assert said in problem
    assert problem.count("\n") == 1
