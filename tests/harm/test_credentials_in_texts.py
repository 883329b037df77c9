"""User and password in Prometheus' URL were quoted into the conditions of every tenant."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.shell.promserver import PrometheusServer, says, send, serving

from speculative_operator import settings
from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.observation import Gap
from speculative_operator.domain.reasons import ConditionType, Reason, without_credentials
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.world import Event
from speculative_operator.settings import Settings
from speculative_operator.shell.logs import JsonFormatter, TextFormatter
from speculative_operator.shell.prometheus import Prometheus
from speculative_operator.weights.source import WeightsError

SECRET = "S3cret-0f-Ours"
TEXTS = [
    f"http://svc:{SECRET}@10.0.0.1:9090 is unreachable",
    f"http://{SECRET}@host/path failed",
    f"https://svc:p@{SECRET}@host is down",
    f"GET https://store.example/a/b?X-Amz-Signature={SECRET}&X-Amz-Date=1 answered 403",
    f"HTTPSConnectionPool(host='h', port=443): Max retries exceeded with url: /v2/a?token={SECRET} (Caused by x)",
    f"cannot connect to proxy 'http://me:{SECRET}@proxy:3128'",
    f"headers {{'Authorization': 'Bearer {SECRET}'}}",
    f"Authorization: Basic {SECRET}",
    f"authorization={SECRET}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_never_stays_in_a_text(text: str) -> None:
    assert SECRET not in without_credentials(text)


@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_never_gets_into_conditions_events_or_results(text: str) -> None:
    error = WeightsError(Reason.SOURCE_UNREACHABLE, text, remedy=text)
    error.message = text
    said = [
        Condition(ConditionType.READY, Truth.FALSE, Reason.UNKNOWN, text),
        Gap(Reason.PROMETHEUS_ERROR, text),
        Notice(Reason.UNKNOWN, text),
        Event("Warning", Reason.UNKNOWN, text),
        error.to_json(),
        str(error),
    ]
    assert SECRET not in repr(said)


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_never_gets_into_logs(formatter: logging.Formatter, text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "x", 1, "failed: %s", (text,), sys.exc_info())
    line = formatter.format(record)
    assert SECRET not in line
    assert "failed" in line


@pytest.mark.parametrize(
    "text",
    [
        "oci://registry.example/team/model@sha256:0123abcd is pinned",
        "hf://Qwen/Qwen3-8B@main: no such revision",
        "write to me@example.com, or see https://example.com/a#b",
        "is K 3 right? yes=no",
        "http://prometheus.monitoring.svc:9090 did not answer within 5 s",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert without_credentials(text) == text


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    with serving() as made:
        yield made


@pytest.mark.parametrize("status", [None, 401, 500])
def test_the_password_of_prometheus_is_never_quoted(
    server: PrometheusServer, status: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"http://svc:{SECRET}@127.0.0.1:9/" if status is None else server.url.replace("//", f"//svc:{SECRET}@")
    server.answer = says({"error": "no"}, status or 200)
    found = Prometheus(Settings(prometheus_url=url)).fetch("ns", {"p": ("10.0.0.1",)}, 0.0, 100)
    assert isinstance(found, Gap)
    assert SECRET not in found.message
    assert "127.0.0.1" in found.message
    assert SECRET not in caplog.text
    if status is not None:
        assert "Authorization" in server.headers[0], "it is used, though"


def test_a_token_that_a_server_sends_back_is_never_quoted(server: PrometheusServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    server.answer = lambda handler: send(handler, 403, f"no rights for {SECRET}".encode())
    chosen = Settings(prometheus_url=server.url, prometheus_token_file=str(token))
    found = Prometheus(chosen).fetch("ns", {"p": ("10.0.0.1",)}, 0.0, 100)
    assert isinstance(found, Gap)
    assert "403" in found.message
    assert SECRET not in found.message


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_a_bad_setting_is_named_without_the_secret_in_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever the setting: the message goes to the log of the operator."""
    monkeypatch.setenv(f"{settings.PREFIX}{name.upper()}", f"ftp://svc:{SECRET}@host:99999999")
    text = name.upper()
    try:
        settings.load()
    except settings.SettingsError as error:
        text = str(error)
    assert SECRET not in text
    assert name.upper() in text


def told(monkeypatch: pytest.MonkeyPatch, **given: str) -> str:
    for name, value in given.items():
        monkeypatch.setenv(f"{settings.PREFIX}{name.upper()}", value)
    with pytest.raises(settings.SettingsError) as caught:
        settings.load()
    return str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"prometheus_url": "http://prometheus.monitoring.svc:9090", "prometheus_token_file": "/etc/token"},
        {"prometheus_url": f"http://svc:{SECRET}@prometheus.monitoring.svc:9090"},
        {"prometheus_token_file": "/etc/token"},
    ],
)
def test_a_credential_is_never_sent_readable_for_all(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    text = told(monkeypatch, **given)
    assert "SPECULATIVE_PROMETHEUS_TOKEN_OVER_HTTP" in text
    assert "https://" in text
    assert SECRET not in text
    monkeypatch.setenv("SPECULATIVE_PROMETHEUS_TOKEN_OVER_HTTP", "true")
    settings.load()


@pytest.mark.parametrize(
    "given",
    [
        {"prometheus_url": "https://prometheus.example", "prometheus_token_file": "/etc/token"},
        {"prometheus_url": "http://127.0.0.1:9090", "prometheus_token_file": "/etc/token"},
        {"prometheus_url": "http://[::1]:9090", "prometheus_token_file": "/etc/token"},
        {"prometheus_url": "http://localhost:9090", "prometheus_token_file": "/etc/token"},
        {"prometheus_url": "http://prometheus.monitoring.svc:9090"},
    ],
)
def test_what_nobody_can_read_needs_no_leave(given: dict[str, Any]) -> None:
    Settings(**given)


@pytest.mark.parametrize("folder", ["/var/run", "/run"])
def test_the_token_for_the_api_server_is_never_sent(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Whoever runs Prometheus, or takes its name, would have had the operator's permissions."""
    text = told(
        monkeypatch,
        prometheus_url="https://prometheus.example",
        prometheus_token_file=f"{folder}/secrets/kubernetes.io/serviceaccount/token",
        prometheus_token_over_http="true",
    )
    assert "audience" in text


def test_a_secret_never_gets_into_a_json_line_by_an_extra_field() -> None:
    record = logging.LogRecord("x", logging.INFO, "x", 1, "asked", (), None)
    record.__dict__["url"] = f"https://me:{SECRET}@host"
    assert SECRET not in JsonFormatter().format(record)
    assert json.loads(JsonFormatter().format(record))["url"] == "https://***@host"
