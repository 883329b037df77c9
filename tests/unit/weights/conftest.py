"""What the tests of weights share: loopback servers, and a run of the program that leaves the process as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.weights import made

from modelservers.hub import Access, HubServer
from speculative_operator.weights import result

LET_IN = "hf_let_in"
LEFT_OUT = "hf_left_out"


@pytest.fixture(autouse=True)
def signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the test run stay as they are; so do its umask and its log."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("os.umask", lambda _: None)
    monkeypatch.setattr(result, "TERMINATION_LOG", Path("/nowhere/at/all"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """Serves `org/base` and the gated `org/gated`; it is the hub of this test, and nobody is logged in."""
    made.model(tmp_path / "hub" / "org" / "base")
    made.model(tmp_path / "hub" / "org" / "gated")
    access = Access(frozenset({LET_IN, LEFT_OUT}), {"org/gated": frozenset({LET_IN})})
    server = HubServer(tmp_path / "hub", access=access, store="localhost")
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with server.running():
        yield server
