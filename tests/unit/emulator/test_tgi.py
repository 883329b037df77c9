"""TGI's face: flags that are variables too, and one constant K."""

from __future__ import annotations

import pytest
from tests.unit.emulator.dialects import DialectRun, tgi

from speculative_lab.emulator.tgi import DIALECT


def test_defaults_and_variables() -> None:
    server = tgi().server
    assert (server.host, server.port) == ("0.0.0.0", 3000)
    assert tgi(PORT="81").server.port == 81
    assert tgi("--port", "82", PORT="81").server.port == 82
    with pytest.raises(SystemExit):
        tgi(PORT="tcp://10.0.0.1:80")


def test_one_constant_k() -> None:
    assert tgi().engine.speculative is None
    run = DialectRun(tgi("--speculate", "3"), DIALECT)
    run.add(output=50)
    run.until_idle()
    assert {result.k for result in run.results} == {3}
    assert {result.draft_tokens for result in run.results[1:]} == {3}, "it drafts whether or not the text matches"
