"""Series with a pod's labels, from wherever they came, counted as that pod's: another tenant's exporter, a pushgateway
or another cluster in the same Thanos steered it."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from tests.unit.shell.promserver import PrometheusServer, matrix, says, series, serving

from speculative_operator.domain.observation import Gap
from speculative_operator.domain.reasons import Reason
from speculative_operator.settings import Settings
from speculative_operator.shell.podseries import Answer
from speculative_operator.shell.prometheus import LOOK_SECONDS, Prometheus

NOW = 1_700_000_000.0
PODS = {"a": ("10.0.0.1", "fd00::1"), "b": ("10.0.0.2",)}
NAME = "vllm:generation_tokens_total"


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    with serving() as made:
        yield made


def one(pod: str, instance: str, **labels: str) -> dict[str, Any]:
    return series(NAME, (NOW, "1"), pod=pod, instance=instance, **labels)


def fetched(server: PrometheusServer, **settings: Any) -> Answer:
    found = Prometheus(Settings(prometheus_url=server.url, **settings)).fetch("ns", PODS, NOW, 1000)
    assert isinstance(found, Answer)
    return found


@pytest.mark.parametrize("instance", ["10.9.9.9:8000", "10.0.0.2:8000", "10.0.0.11:8000", "pushgateway:9091", ""])
def test_series_from_another_address_are_never_a_pods(server: PrometheusServer, instance: str) -> None:
    """Nor those from another pod of ours. The server sends what it was not asked for: it is not trusted to filter."""
    server.answer = says(matrix(one("a", instance), one("a", "10.0.0.1:8001", job="own"), one("b", "10.0.0.2")))
    found = fetched(server)
    assert [track.labels["instance"] for track in found.series["a"]] == ["10.0.0.1:8001"]
    assert set(found.series) == {"a", "b"}
    assert found.gaps == {}


def test_series_of_other_addresses_are_not_asked_for(server: PrometheusServer) -> None:
    """So that nobody can make a neighbour's answers too large."""
    server.answer = says(matrix(one("a", "[fd00::1]:8000"), one("b", "10.0.0.2:8000")))
    assert set(fetched(server).series) == {"a", "b"}
    (asked,) = server.asked
    assert (
        'instance=~"(10\\\\.0\\\\.0\\\\.1|\\\\[fd00::1\\\\]|10\\\\.0\\\\.0\\\\.2|fd00::1)(:[0-9]+)?"' in asked["query"]
    )


def test_a_pod_with_foreign_series_alone_says_so_with_the_remedy(server: PrometheusServer) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        addressed = "instance=~" in server.asked[-1]["query"]
        found = [one("a", "10.0.0.1:8000")] if addressed else [one("b", "gpu-7.example:9100"), one("a", "10.0.0.1:1")]
        says(matrix(*found))(handler)

    server.answer = answer
    at = [0.0]
    client = Prometheus(Settings(prometheus_url=server.url), clock=lambda: at[0])
    for _ in range(3):
        found = client.fetch("ns", PODS, NOW, 1000)
        assert isinstance(found, Answer)
        assert set(found.series) == {"a"}
        gap = found.gaps["b"]
        assert gap.reason is Reason.METRICS_FOREIGN
        for word in ("instance", "gpu-7.example:9100", "10.0.0.2", "SPECULATIVE_PROMETHEUS_ADDRESS_LABEL"):
            assert word in gap.message
    assert len(server.asked) == 4, "where they come from is looked up once in a while"
    at[0] = LOOK_SECONDS
    client.fetch("ns", PODS, NOW, 1000)
    assert len(server.asked) == 6


def test_another_label_may_hold_the_address(server: PrometheusServer) -> None:
    server.answer = says(matrix(one("a", "x", pod_ip="10.0.0.1"), one("b", "10.0.0.2", pod_ip="10.0.0.9")))
    found = fetched(server, prometheus_address_label="pod_ip")
    assert set(found.series) == {"a"}


def test_an_empty_label_believes_labels_alone(server: PrometheusServer) -> None:
    server.answer = says(matrix(one("a", "x"), one("b", "y"), one("stranger", "10.0.0.1")))
    assert set(fetched(server, prometheus_address_label="").series) == {"a", "b"}
    assert "instance" not in server.asked[0]["query"]


def test_a_pod_without_an_address_yet_has_no_series(server: PrometheusServer) -> None:
    server.answer = says(matrix(one("a", "")))
    found = Prometheus(Settings(prometheus_url=server.url)).fetch("ns", {"a": ()}, NOW, 1000)
    assert found == Answer()
    assert server.asked == []


def test_matchers_of_the_user_are_part_of_every_query(server: PrometheusServer) -> None:
    server.answer = says(matrix())
    fetched(server, prometheus_matchers=' cluster="a", job=~"llm-.*" ')
    assert server.asked
    assert all(asked["query"].endswith(',cluster="a", job=~"llm-.*"}[60s]') for asked in server.asked)


@pytest.mark.parametrize(
    "matchers",
    ["cluster=a", 'cluster="a"} or {x="y"', 'namespace="other"', 'a="\\d"', 'pod=~".*"', 'a="b",,c="d"', "{}", 'a "b"'],
)
def test_matchers_that_could_change_the_query_are_refused_at_the_start(matchers: str) -> None:
    with pytest.raises(ValueError, match="prometheus_matchers"):
        Settings(prometheus_matchers=matchers)


def test_a_server_that_fails_is_still_a_gap_for_all(server: PrometheusServer) -> None:
    server.answer = says({}, 503)
    assert isinstance(Prometheus(Settings(prometheus_url=server.url)).fetch("ns", PODS, NOW, 1000), Gap)
