"""Settings come from the environment, refuse what cannot work with a message that helps, and are documented."""

from __future__ import annotations

import pytest

from speculative_operator import settings


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(settings.PREFIX):
            monkeypatch.delenv(name)


def test_every_setting_says_what_it_is_for() -> None:
    for name, field in settings.Settings.model_fields.items():
        assert field.description, name
        assert len(field.description) > 20, name


def test_defaults_are_consistent() -> None:
    chosen = settings.load()
    assert chosen.prometheus_timeout_seconds < chosen.tick_seconds
    assert chosen.namespace_list == ()
    assert chosen.lease_duration_seconds == 15


def test_namespaces_are_a_list_without_blanks_and_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECULATIVE_NAMESPACES", " b, a ,,b")
    assert settings.load().namespace_list == ("a", "b")


def test_an_empty_variable_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECULATIVE_TICK_SECONDS", "")
    assert settings.load().tick_seconds == 10.0


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TICK_SECONDS", "soon", ["SPECULATIVE_TICK_SECONDS='soon'", "number"]),
        ("TICK_SECONDS", "0.1", ["SPECULATIVE_TICK_SECONDS='0.1'", "greater than or equal to 1"]),
        ("PROMETHEUS_URL", "prometheus:9090", ["SPECULATIVE_PROMETHEUS_URL", "http://"]),
        ("PROMETHEUS_TIMEOUT_SECONDS", "10", ["PROMETHEUS_TIMEOUT_SECONDS must be less than SPECULATIVE_TICK_SECONDS"]),
        ("HTTP_PORT", "70000", ["SPECULATIVE_HTTP_PORT='70000'", "65535"]),
        ("STEP_METRICS_FROM", "monitoring", ["SPECULATIVE_STEP_METRICS_FROM", "not JSON"]),
        ("STEP_METRICS_FROM", '[{"namespace": "a"}]', ["SPECULATIVE_STEP_METRICS_FROM", "namespaceSelector"]),
        ("PROMETHEUS_HEADERS", "X-Scope-OrgID: a", ["SPECULATIVE_PROMETHEUS_HEADERS", "no JSON"]),
        ("PROMETHEUS_HEADERS", '{"X": 1}', ["SPECULATIVE_PROMETHEUS_HEADERS", "JSON object of HTTP headers"]),
        ("PROMETHEUS_HEADERS", '{"X": "a\\nb"}', ["SPECULATIVE_PROMETHEUS_HEADERS", "JSON object of HTTP headers"]),
        ("PROMETHEUS_HEADERS", '{"authorization": "Bearer a"}', ["must not set authorization", "prometheus.token"]),
        ("PROMETHEUS_PROXY", "proxy:3128", ["SPECULATIVE_PROMETHEUS_PROXY"]),
        ("PROMETHEUS_POD_LABEL", "pod-name", ["SPECULATIVE_PROMETHEUS_POD_LABEL"]),
        ("PROMETHEUS_BASIC_AUTH_FOLDER", "/etc/login", ["PROMETHEUS_BASIC_AUTH_FOLDER holds a credential", "https://"]),
        ("ENGINE_REGISTRY", "https://mirror.example", ["SPECULATIVE_ENGINE_REGISTRY"]),
        ("LOG_FORMAT", "xml", ["SPECULATIVE_LOG_FORMAT='xml'", "json"]),
        ("LEADER_ELECTION", "perhaps", ["SPECULATIVE_LEADER_ELECTION='perhaps'"]),
    ],
)
def test_a_bad_value_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: list[str]
) -> None:
    monkeypatch.setenv(f"{settings.PREFIX}{name}", value)
    with pytest.raises(settings.SettingsError) as caught:
        settings.load()
    for word in words:
        assert word in str(caught.value)


def test_token_and_password_are_not_both_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("URL", "https://a"), ("TOKEN_FILE", "/a"), ("BASIC_AUTH_FOLDER", "/b")):
        monkeypatch.setenv(f"SPECULATIVE_PROMETHEUS_{name}", value)
    with pytest.raises(settings.SettingsError, match="keep one of them"):
        settings.load()
