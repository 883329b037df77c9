"""What one namespace exports could end the operator for all: an answer took ten times its size in memory, and nothing
was remembered after the kernel had ended the process."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from itertools import chain, pairwise

import pytest
from tests.unit.shell.promserver import PrometheusServer, matrix, says, send, series, serving

from speculative_operator.domain.observation import Gap
from speculative_operator.domain.reasons import Reason
from speculative_operator.settings import Settings
from speculative_operator.shell import prometheus
from speculative_operator.shell.podseries import (
    SERIES_OF_A_POD,
    Answer,
    BadAnswerError,
    PodSeries,
    entries,
    labels_of,
    samples_of,
    units,
)
from speculative_operator.shell.prometheus import PAUSE_SECONDS, PLAIN_SECONDS, Prometheus

NOW = 1_700_000_000.0
PODS = {"a": ("10.0.0.1",), "b": ("10.0.0.2",)}
HEAD, TAIL = b'{"status":"success","data":{"resultType":"matrix","result":[', b"]}}"


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    with serving() as made:
        yield made


def flood(count: int, pod: str = "a") -> Iterator[bytes]:
    """An answer with a label value for each request, as it comes."""
    yield HEAD
    for number in range(count):
        one = {
            "metric": {
                "__name__": "vllm:num_preemptions_total",
                "pod": pod,
                "instance": "10.0.0.1:8000",
                "finished_reason": f"r{number:07d}",
            },
            "values": [[NOW + 10 * step, str(step)] for step in range(6)],
        }
        yield (b"," if number else b"") + json.dumps(one).encode()
    yield TAIL


def test_a_flood_of_series_never_takes_more_than_one_pods_share() -> None:
    """These took 25 MiB. The pieces are made before, so that only what reading them takes is counted."""
    found, pieces = PodSeries(PODS, "instance", 10_000), list(flood(10_000))
    tracemalloc.start()
    found.add(entries(pieces))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20
    answer = found.answer()
    assert answer.series == {}
    assert answer.gaps["a"].reason is Reason.METRICS_ABSURD
    assert str(SERIES_OF_A_POD) in answer.gaps["a"].message


def test_one_pods_flood_never_takes_its_neighbours_figures(server: PrometheusServer) -> None:
    own = json.dumps(series("vllm:generation_tokens_total", (NOW, "1"), pod="b", instance="10.0.0.2:8000")).encode()
    body = b"".join(flood(SERIES_OF_A_POD + 1))[: -len(TAIL)] + b"," + own + TAIL
    server.answer = lambda handler: send(handler, 200, body)
    found = Prometheus(Settings(prometheus_url=server.url)).fetch("ns", PODS, NOW, 10_000)
    assert isinstance(found, Answer)
    assert set(found.series) == {"b"}
    assert set(found.gaps) == {"a"}


def test_a_namespace_never_holds_more_than_it_was_granted() -> None:
    pods = {f"p{number}": ("10.0.0.1",) for number in range(100)}
    found = PodSeries(pods, "", 5_000)
    everything = chain.from_iterable(entries(flood(900, pod)) for pod in pods)
    with pytest.raises(BadAnswerError, match="more series than SPECULATIVE_PROMETHEUS_SERIES"):
        found.add(everything)
    assert sum(map(units, found.answer().series.values())) <= 5_000


def test_millions_of_label_values_are_not_kept() -> None:
    found = PodSeries(PODS, "instance", 10_000)
    found.add(entries(flood(900)))
    assert len({id(one.labels) for one in found.answer().series["a"]}) == 1, "label sets are shared"


def test_a_namespace_with_too_large_answers_is_asked_seldom(
    server: PrometheusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "LARGEST_ANSWER", 1 << 12)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        large = server.asked[-1]["namespace"] == "hostile"
        good = matrix(series("vllm:generation_tokens_total", (NOW, "1"), pod="b", instance="10.0.0.2:8000"))
        send(handler, 200, b"".join(flood(100)) if large else json.dumps(good).encode())

    server.answer = answer
    at = [0.0]
    client = Prometheus(Settings(prometheus_url=server.url), clock=lambda: at[0])
    messages = set()
    asked = []
    for second in range(0, 4 * 3600, 10):
        at[0] = float(second)
        before = len(server.asked)
        found = client.fetch("hostile", PODS, NOW, 10_000)
        assert isinstance(found, Gap)
        messages.add(found.message)
        if len(server.asked) > before:
            asked.append(second)
    assert len(messages) == 1, "a message that changes would be written to status each time"
    assert "larger than" in messages.pop()
    assert min(after - before for before, after in pairwise(asked)) == PAUSE_SECONDS
    assert isinstance(client.fetch("good", PODS, NOW, 10_000), Answer)
    server.answer = says(matrix())
    at[0] += PAUSE_SECONDS + PLAIN_SECONDS
    assert isinstance(client.fetch("hostile", PODS, NOW, 10_000), Answer), "and it comes back"


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 10**6])
def test_an_answer_reads_the_same_however_its_bytes_come(size: int) -> None:
    text = json.dumps(
        matrix(
            series("x", (1.0, "1"), (2.0, "NaN"), pod="ä]}{[,"),
            series("y", (1.0, "+Inf"), error='"result":['),
            infos=["a ] } text"],
        )
    ).encode()
    found = [*entries(text[at : at + size] for at in range(0, len(text), size))]
    assert [(labels_of(entry), samples_of(entry)[0]) for entry in found] == [
        ({"__name__": "x", "pod": "ä]}{[,"}, (1.0, 1.0)),
        ({"__name__": "y", "error": '"result":['}, (1.0, float("inf"))),
    ]


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        HEAD + b'{"metric":{"__name__":"x"}',
        HEAD + b'{"metric":{"__name__":"x"},"values":[]}',
        HEAD + b"]}",
        HEAD + b"]},",
        HEAD + b"[" * 100_000,
        HEAD + b'{"metric":' * 100_000,
        HEAD + b"x]}}",
        HEAD.replace(b"success", b"error") + TAIL,
        HEAD + b']},"warnings":["results truncated due to limit"]}',
        HEAD + b']},"isPartial":true}',
        HEAD + b'{"metric":{"__name__":"x"},"values":["' + b"y" * 3_000_000 + TAIL,
        HEAD + b"]" + b" " * 3_000_000 + b"}}",
        b" " * 3_000_000 + HEAD + TAIL,
    ],
    ids=range(14),
)
def test_a_torn_answer_is_never_taken_for_whole(text: bytes) -> None:
    with pytest.raises(BadAnswerError):
        list(entries(text[at : at + 65536] for at in range(0, len(text), 65536)))
