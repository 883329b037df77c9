"""The Prometheus client against a server that behaves well, badly, slowly, absurdly: gaps each time, never a guess."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from tests.unit.shell.promserver import PrometheusServer, matrix, says, send, series, serving

from speculative_operator.domain.observation import Gap
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.registry import query
from speculative_operator.settings import Settings
from speculative_operator.shell import prometheus
from speculative_operator.shell.podseries import Answer
from speculative_operator.shell.prometheus import Address, Prometheus, batches

NOW = 1_700_000_000.25
PODS = {"a": ("10.0.0.1",)}
AT = {"pod": "a", "instance": "10.0.0.1:8000"}
MOST = 10_000


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    with serving() as made:
        yield made


def client(server: PrometheusServer, **settings: object) -> Asking:
    given: dict[str, Any] = {"prometheus_timeout_seconds": 5.0, **settings}
    return Asking(Prometheus(Settings(prometheus_url=server.url, **given)))


class Asking:
    """A client that asks for one pod."""

    def __init__(self, client: Prometheus) -> None:
        self._client = client

    def fetch(self, namespace: str, now: float) -> Answer | Gap:
        return self._client.fetch(namespace, PODS, now, MOST)


def gap(found: object) -> Gap:
    assert isinstance(found, Gap)
    return found


def test_raw_samples_become_series(server: PrometheusServer) -> None:
    server.answer = says(matrix(series("vllm:x_total", (NOW - 5, "1"), (NOW, "2.5"), **AT, engine="0", app="gemma")))
    found = client(server).fetch("team-a", NOW)
    assert not isinstance(found, Gap)
    (one,) = found.series["a"]
    assert one.name == "vllm:x_total"
    assert one.labels == {**AT, "engine": "0"}, "labels that no reader looks at take memory for nothing"
    assert one.samples == ((NOW - 5, 1.0), (NOW, 2.5))


def test_one_instant_query_asks_for_our_pods_at_their_addresses(server: PrometheusServer) -> None:
    server.answer = says(matrix(series("vllm:x_total", (NOW, "1"), **AT)))
    client(server, prometheus_range_seconds=45, prometheus_matchers='cluster="a"').fetch("team-a", NOW)
    assert len(server.asked) == 1
    asked = server.asked[0]
    assert asked["path"] == "/api/v1/query"
    assert asked["time"] == "1700000000.250"
    assert asked["namespace"] == "team-a", "multi-tenant front ends want it beside the query"
    assert 'namespace="team-a",pod=~"a",instance=~"(10\\\\.0\\\\.0\\\\.1)(:[0-9]+)?",cluster="a"}' in asked["query"]
    assert asked["query"].endswith("[45s]")


def test_not_a_number_is_passed_on_for_the_engine_to_judge(server: PrometheusServer) -> None:
    server.answer = says(matrix(series("x", (NOW, "NaN"), (NOW, "+Inf"), **AT)))
    found = client(server).fetch("a", NOW)
    assert not isinstance(found, Gap)
    assert math.isnan(found.series["a"][0].samples[0][1])
    assert math.isinf(found.series["a"][0].samples[1][1])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 500, 502, 503])
def test_an_error_is_a_gap_at_once_and_not_retried(server: PrometheusServer, status: int) -> None:
    server.answer = says({"status": "error", "error": "no luck"}, status)
    found = gap(client(server).fetch("a", NOW))
    assert found.reason is Reason.PROMETHEUS_ERROR
    assert str(status) in found.message
    assert len(server.asked) == 1


def test_a_redirect_is_not_followed(server: PrometheusServer) -> None:
    def redirect(handler: object) -> None:
        handler.send_response(302)  # type: ignore[attr-defined]  # the handler of http.server
        handler.send_header("Location", server.url + "/elsewhere")  # type: ignore[attr-defined]  # idem
        handler.send_header("Content-Length", "0")  # type: ignore[attr-defined]  # idem
        handler.end_headers()  # type: ignore[attr-defined]  # idem

    server.answer = redirect
    assert gap(client(server).fetch("a", NOW)).reason is Reason.PROMETHEUS_ERROR
    assert len(server.asked) == 1


def test_a_server_that_hangs_is_a_timeout(server: PrometheusServer) -> None:
    def hang(_: object) -> None:
        server.done.wait(60.0)

    server.answer = hang
    started = time.monotonic()
    found = gap(client(server, prometheus_timeout_seconds=0.5).fetch("a", NOW))
    assert found.reason is Reason.PROMETHEUS_TIMEOUT
    assert "0.5 s" in found.message
    assert time.monotonic() - started < 20.0


def test_a_server_that_drips_is_a_timeout_too(server: PrometheusServer) -> None:
    def drip(handler: object) -> None:
        handler.send_response(200)  # type: ignore[attr-defined]  # the handler of http.server
        handler.send_header("Content-Length", "1000000")  # type: ignore[attr-defined]  # idem
        handler.end_headers()  # type: ignore[attr-defined]  # idem
        parts = chain((b'{"status":"success","data":{"resultType":"matrix","result":[',), repeat(b" "))
        while not server.done.wait(0.1):
            handler.wfile.write(next(parts))  # type: ignore[attr-defined]  # idem

    server.answer = drip
    started = time.monotonic()
    assert gap(client(server, prometheus_timeout_seconds=0.5).fetch("a", NOW)).reason is Reason.PROMETHEUS_TIMEOUT
    assert time.monotonic() - started < 20.0


def test_nobody_listening_is_an_error_with_a_stable_message() -> None:
    with serving() as server:
        url = server.url
    found = Asking(Prometheus(Settings(prometheus_url=url)))
    first, second = gap(found.fetch("a", NOW)), gap(found.fetch("a", NOW))
    assert first.reason is Reason.PROMETHEUS_ERROR
    assert "unreachable" in first.message
    assert "0x" not in first.message
    assert first == second, "a message that changes each time would be written to status each time"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>login</html>",
        b"[]",
        b"null",
        b'{"status":"success"}',
        b'{"status":"error","error":"query timed out"}',
        b'{"status":"success","data":null}',
        b'{"status":"success","data":{"resultType":"vector","result":[]}}',
        b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":{}}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[1]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{}}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"x","pod":"a","instance":"10.0.0.1"},"values":[[1]]}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"x","pod":"a","instance":"10.0.0.1"},"values":[[1,"q"]]}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":7,"values":[]}]}}',
        b"[" * 100_000,
    ],
)
def test_a_malformed_answer_is_a_gap(server: PrometheusServer, answer: bytes) -> None:
    server.answer = lambda handler: send(handler, 200, answer)
    assert gap(client(server).fetch("a", NOW)).reason is Reason.PROMETHEUS_ERROR


def test_a_partial_answer_is_a_gap_though_it_looks_whole(server: PrometheusServer) -> None:
    server.answer = says(matrix(series("x", (NOW, "1"), pod="a"), warnings=["store thanos-0 unavailable"]))
    found = gap(client(server).fetch("a", NOW))
    assert "partial" in found.message


def test_step_telemetry_that_is_too_much_is_done_without(
    server: PrometheusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many series of one namespace: the engines' own counters suffice, and are there in the very same round."""
    monkeypatch.setattr(prometheus, "LARGEST_ANSWER", 1 << 14)
    plain = json.dumps(matrix(series("vllm:x_total", (NOW, "1"), **AT))).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        cells = "speculative_payload_steps_total" in unquote(handler.path)
        send(handler, 200, plain + b" " * (1 << 15) if cells else plain)

    server.answer = answer
    at = [0.0]
    asks = Prometheus(Settings(prometheus_url=server.url), clock=lambda: at[0])
    assert isinstance(asks.fetch("many", PODS, NOW, MOST), Answer)
    assert ["steps_total" in one["query"] for one in server.asked] == [True, False]
    assert all("speculative_payload_table_version" in one["query"] for one in server.asked), "one series of a pod"
    asks.fetch("many", PODS, NOW, MOST)
    assert ["steps_total" in one["query"] for one in server.asked] == [True, False, False]
    asks.fetch("few", PODS, NOW, MOST)
    assert "steps_total" in server.asked[3]["query"]
    server.asked.clear()
    at[0] = prometheus.PLAIN_SECONDS
    asks.fetch("many", PODS, NOW, MOST)
    assert "steps_total" in server.asked[0]["query"], "pods may have gone: it is tried again"


def test_pods_are_asked_for_so_many_at_a_time_as_a_url_takes() -> None:
    pods = {
        f"llama-{number:05d}-7d9c5b7b8f-abcde": (f"10.200.{number // 200}.{number % 200}",) for number in range(1000)
    }
    found = list(batches(pods))
    assert {pod: addresses for batch in found for pod, addresses in batch.items()} == pods
    for batch in found:
        text = query("some-namespace", batch, 60, address_label="instance")
        assert len(quote(text)) < 7600
    assert len(found) < 25


def test_one_failed_batch_is_a_gap_of_its_pods_alone(server: PrometheusServer) -> None:
    pods = {f"{'x' * 200}-{number:03d}": (f"10.0.0.{number}",) for number in range(60)}
    count = len(list(batches(pods)))
    assert count > 2

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if len(server.asked) > 1:
            return send(handler, 503, b"overloaded")
        pod = min(pods)
        return says(matrix(series("vllm:x_total", (NOW, "1"), pod=pod, instance=f"{pods[pod][0]}:8000")))(handler)

    server.answer = answer
    found = Prometheus(Settings(prometheus_url=server.url)).fetch("a", pods, NOW, MOST)
    assert isinstance(found, Answer)
    first = next(batches(pods))
    assert set(found.series) == {min(pods)}
    assert set(found.gaps) == set(pods) - set(first)
    assert all("503" in gap.message for gap in found.gaps.values())
    assert len(server.asked) == 3, "a server that fails is not asked for the rest: one batch, one failure, one look"


def test_the_token_is_read_for_each_request(server: PrometheusServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    server.answer = says(matrix(series("vllm:x_total", (NOW, "1"), **AT)))
    found = client(server, prometheus_token_file=str(token))
    assert "token file" in gap(found.fetch("a", NOW)).message
    token.write_text("first\n")
    found.fetch("a", NOW)
    token.write_text("second")
    found.fetch("a", NOW)
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer first", "Bearer second"]


def login(folder: Path, password: bytes) -> dict[str, Any]:
    """Settings with user and password of a folder."""
    (folder / "username").write_text("operator\n")
    (folder / "password").write_bytes(password)
    return {"prometheus_basic_auth_folder": str(folder)}


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (403, "canary"),
        (500, {"status": "error", "error": "canary"}),
        (200, {"status": "error", "error": "canary"}),
        (200, matrix(warnings=["canary"])),
        (200, matrix(series("vllm:x_total", (NOW, "canary"), **AT))),
    ],
)
def test_nothing_of_an_answer_that_is_no_figure_is_told(server: PrometheusServer, status: int, answer: Any) -> None:
    """Every tenant reads the message, and what answers may be any program within the operator's reach."""
    server.answer = says(answer, status)
    message = gap(client(server).fetch("a", NOW)).message
    assert "canary" not in message
    assert (f"HTTP status {status}" in message) == (status != 200)


def test_the_first_address_that_brings_figures_is_asked_from_then_on(server: PrometheusServer) -> None:
    with serving() as other:
        other.answer = says(matrix(series("vllm:x_total", (NOW, "2"), **AT)))
        at = [Address(server.url)]
        asks = Prometheus(Settings(), address=lambda: at[0])
        assert asks.fetch("a", PODS, NOW, MOST) == Answer()
        assert not asks.is_settled(), "an answer without figures settles nothing"
        at[0] = Address(other.url)
        first = asks.fetch("a", PODS, NOW, MOST)
        assert isinstance(first, Answer)
        assert first.series["a"]
        assert asks.is_settled()
        for found in (Address(server.url), Address("", "there are 2 Prometheus servers")):
            at[0] = found
            assert asks.fetch("a", PODS, NOW, MOST) == first


def test_user_and_password_are_sent_as_utf_8(server: PrometheusServer, tmp_path: Path) -> None:
    assert client(server, **login(tmp_path, "€uro".encode())).fetch("a", NOW) == Answer()
    assert server.headers[0]["Authorization"] == f"Basic {base64.b64encode('operator:€uro'.encode()).decode()}"


@pytest.mark.parametrize("secret", [b"\xff\xfes\x00e\x00c\x00", "€uro".encode(), b"two\nlines"])
def test_a_token_that_cannot_be_sent_is_a_gap_without_it(
    server: PrometheusServer, tmp_path: Path, secret: bytes
) -> None:
    (tmp_path / "token").write_bytes(secret)
    found = gap(client(server, prometheus_token_file=str(tmp_path / "token")).fetch("a", NOW))
    assert found.reason is Reason.PROMETHEUS_ERROR
    assert "the token file" in found.message
    assert not any(part in found.message for part in ("euro", "€", "two", "0xff"))


def test_a_password_that_cannot_be_read_is_a_gap_without_it(server: PrometheusServer, tmp_path: Path) -> None:
    found = gap(client(server, **login(tmp_path, b"\xffsecret")).fetch("a", NOW))
    assert found.reason is Reason.PROMETHEUS_ERROR
    assert "password is not UTF-8" in found.message
    assert not any(part in found.message for part in ("0xff", "secret"))


def test_a_missing_ca_file_is_a_gap(server: PrometheusServer) -> None:
    settings = Settings(prometheus_url="https://127.0.0.1:1", prometheus_ca_file="/nonexistent/ca.crt")
    assert gap(Asking(Prometheus(settings)).fetch("a", NOW)).reason is Reason.PROMETHEUS_ERROR


def test_a_proxy_takes_user_and_password_from_its_url(
    server: PrometheusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which a Secret holds, in the variable that extraEnv sets; refused, it is told where they go."""
    monkeypatch.setenv("SPECULATIVE_PROMETHEUS_PROXY", server.url.replace("://", "://operator:secret@"))
    found = Asking(Prometheus(Settings(prometheus_url="http://prometheus.example")))
    assert found.fetch("a", NOW) == Answer()
    wanted = f"Basic {base64.b64encode(b'operator:secret').decode()}"
    assert server.headers[0]["Proxy-Authorization"] == wanted
    server.answer = says({}, 407)
    message = gap(found.fetch("a", NOW)).message
    assert "SPECULATIVE_PROMETHEUS_PROXY by extraEnv with a secretKeyRef" in message


def test_proxies_of_the_environment_are_not_used(server: PrometheusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert client(server).fetch("a", NOW) == Answer()
