"""TGI's face: flags that are variables too, and one constant K."""

from __future__ import annotations

import csv
from importlib import resources

import pytest
from tests.unit.emulator.dialects import TGI, DialectRun, tgi

from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.tgi.flags import EFFECTIVE, INERT


def test_every_flag_on_record_is_known() -> None:
    text = resources.files("speculative_lab.emulator").joinpath("data", "dialect_flags.csv").read_text()
    wanted = {row["flag"] for row in csv.DictReader(text.splitlines()) if row["engine"] == "TGI"}
    assert wanted <= {name for flag in (*EFFECTIVE, *INERT) for name in flag.names}


def test_defaults_and_variables() -> None:
    server = tgi().server
    assert (server.host, server.port) == ("0.0.0.0", 3000)
    assert tgi(PORT="81").server.port == 81
    assert tgi("--port", "82", PORT="81").server.port == 82
    with pytest.raises(SystemExit):
        tgi(PORT="tcp://10.0.0.1:80")
    with pytest.raises(SystemExit):
        tgi("--no-such-flag")
    with pytest.raises(ConfigError, match="whole numbers"):
        tgi("--cuda-graphs", "a")


def test_one_constant_k() -> None:
    assert tgi().engine.speculative is None
    assert tgi("--speculate", "0").engine.speculative is None
    run = DialectRun(tgi("--speculate", "3"), TGI)
    run.add(output=50)
    run.until_idle()
    assert {result.k for result in run.results} == {3}
    assert {result.draft_tokens for result in run.results[1:]} == {3}, "it drafts whether or not the text matches"
