"""Ways of a network to fail that do not depend on what is behind it: trust, ranges, names, waiting."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import close_session
from tests.unit.weights import made
from tests.unit.weights.shelf import SHORT

from devcluster.pki import Authority
from modelservers.faults import Fault
from modelservers.hub import HubServer
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights import reading
from speculative_operator.weights.hub import open_hub
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.patience import Patience, within
from speculative_operator.weights.source import WeightsError
from speculative_operator.weights.transport import Answer, Transport, refusal, retry_after

BASE = ModelSource(Scheme.HF, "org/base")


@pytest.fixture
def fresh_session() -> Iterator[None]:
    """The hub's library keeps one client, with the trust it had when it was made."""
    close_session()
    yield
    close_session()


@pytest.mark.usefixtures("fresh_session")
def test_an_authority_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.model(tmp_path / "hub" / "org" / "base")
    authority = Authority.create(tmp_path / "pki")
    issued = authority.issue("server", "server", alternative_names=["127.0.0.1"])
    server = HubServer(tmp_path / "hub")
    server.secure(issued.certificate, issued.key)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with server.running():
        with pytest.raises(WeightsError) as caught:
            open_hub(BASE, SHORT)
        assert caught.value.reason is Reason.SOURCE_UNREACHABLE
        assert "SSL_CERT_FILE" in caught.value.remedy
        close_session()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate_path))
        assert inspect(open_hub(BASE, SHORT)).config["model_type"] == "llama"
        close_session()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
        with pytest.raises(WeightsError) as caught:
            open_hub(BASE, SHORT)
        assert "SSL_CERT_FILE" in caught.value.remedy


@pytest.mark.usefixtures("fresh_session")
def test_a_proxy_that_is_not_there(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY")
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    # With less patience, a thread left to itself could make the next test's client, with this proxy.
    with pytest.raises(WeightsError) as caught:
        open_hub(BASE, Patience(connect=5.0, read=30.0))
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE
    assert "check the network, the proxy settings" in caught.value.remedy


def test_a_mirror_without_ranges(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_hub(BASE, SHORT)
    entry = next(one for one in source.files if one.path == "config.json")
    monkeypatch.setattr("modelservers.serving.re.fullmatch", lambda *_: None)
    assert b"".join(source.read(entry, 0, 7)) == (hub.repositories.folder / "org/base/config.json").read_bytes()[:7]
    with pytest.raises(WeightsError) as caught:
        list(source.read(entry, 3, 7))
    assert (caught.value.reason, caught.value.status) == (Reason.UNSUPPORTED_SOURCE, 200)
    assert "Range" in caught.value.remedy


def test_what_breaks_while_inspecting_is_taken_up_again(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LIMITS", replace(reading._LIMITS, pause=0.01))
    hub.ledger.order(Fault(path="/tokenizer.json", cut_after=60, times=1), Fault(path="/_store/", status=503, times=2))
    assert inspect(open_hub(BASE, SHORT)).tokenizer.tokens == 6
    hub.ledger.order(Fault(path="/tokenizer.json", status=503))
    hub.ledger.clear()
    with pytest.raises(WeightsError) as caught:
        inspect(open_hub(BASE, SHORT))
    assert (caught.value.status, caught.value.file) == (503, "tokenizer.json")
    assert len([one for one in hub.ledger.seen() if one.path.endswith("/tokenizer.json")]) == 3


def test_nobody_is_asked_again_in_vain(hub: HubServer) -> None:
    hub.ledger.order(Fault(path="/tokenizer.json", status=429, headers={"Retry-After": "600"}))
    began = time.monotonic()
    with pytest.raises(WeightsError) as caught:
        inspect(open_hub(BASE, SHORT))
    assert caught.value.retry_after == 600
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("told", "seconds"),
    [("17", 17.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("soon", None), ("", None), ("-3", None)],
)
def test_retry_after(told: str, seconds: float | None) -> None:
    assert retry_after({"Retry-After": told}) == seconds


@pytest.mark.parametrize(
    ("status", "reason", "transient"),
    [
        (400, Reason.UNSUPPORTED_SOURCE, False),
        (401, Reason.SOURCE_UNAUTHORIZED, False),
        (403, Reason.SOURCE_UNAUTHORIZED, False),
        (404, Reason.SOURCE_NOT_FOUND, False),
        (407, Reason.SOURCE_UNAUTHORIZED, False),
        (408, Reason.SOURCE_UNREACHABLE, True),
        (410, Reason.SOURCE_NOT_FOUND, False),
        (416, Reason.CHECKSUM_MISMATCH, True),
        (429, Reason.SOURCE_THROTTLED, True),
        (451, Reason.SOURCE_UNAUTHORIZED, False),
        (500, Reason.SOURCE_UNREACHABLE, True),
        (503, Reason.SOURCE_UNREACHABLE, True),
    ],
)
def test_statuses(status: int, reason: Reason, transient: bool) -> None:
    asked = httpx2.Request("GET", "https://store.example/x?signature=secret")
    error = refusal("hf://org/base", Answer.of(httpx2.Response(status, request=asked)), "config.json")
    assert (error.reason, error.status, error.transient) == (reason, status, transient)
    assert "store.example" in error.message
    assert "secret" not in str(error)


def test_within_gives_results_errors_and_up() -> None:
    assert within(1.0, "x", lambda: 7) == 7
    assert within(1.0, "x", lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        within(1.0, "x", lambda: 1 // 0)
    with pytest.raises(WeightsError) as caught:
        within(0.05, "hf://org/base", lambda: time.sleep(0.5))
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE


def test_patience_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECULATIVE_SOURCE_TIMEOUT", raising=False)
    assert Patience.from_environment() == Patience()
    monkeypatch.setenv("SPECULATIVE_SOURCE_TIMEOUT", "2.5")
    assert Patience.from_environment() == Patience(connect=2.5, read=2.5)
    monkeypatch.setenv("SPECULATIVE_SOURCE_TIMEOUT", "90")
    assert Patience.from_environment() == Patience(connect=10.0, read=90.0)


def test_connections_are_kept(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download of many ranges opens as many connections as it has readers."""
    hub.store = ""
    opened: list[object] = []
    accept = hub.get_request

    def counted() -> object:
        opened.append(accept())
        return opened[-1]

    source = open_hub(BASE, SHORT)
    entry = next(one for one in source.files if one.path == "tokenizer.json")
    monkeypatch.setattr(hub, "get_request", counted)
    for start in range(20):
        assert len(b"".join(source.read(entry, start, start + 7))) == 7
    assert len(opened) <= 1


def test_an_answer_without_end_is_not_taken_into_memory(hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "hub" / "org" / "base" / "long.txt").write_bytes(b"x" * (5 << 20))
    transport = Transport("hf://org/base", lambda answer, file: refusal("hf://org/base", answer, file), SHORT)
    with pytest.raises(WeightsError) as caught:
        transport.ask(f"{hub.url}/org/base/resolve/main/long.txt", {})
    assert caught.value.reason is Reason.UNSUPPORTED_SOURCE
    assert str(4 << 20) in caught.value.message
