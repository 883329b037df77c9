"""`speculative engines`: what it lists, what it explains, its statuses."""

from __future__ import annotations

import json
import re

import pytest
from tests.unit.cli.conftest import Run

from speculative_operator.domain.spec import DEFAULT_VERSIONS, EngineType, Method
from speculative_operator.engines.matrix.rows import CELLS


def test_lists_every_engine_with_its_default_release(run: Run) -> None:
    status, out, _ = run("engines")
    assert status == 0
    for engine in CELLS:
        assert f"\n{engine.value} " in out
        assert DEFAULT_VERSIONS[engine] in out
    assert out.startswith("engine ")


def test_rows_by_value(run: Run) -> None:
    _, out, _ = run("engines", "vllm")
    _, early, _ = run("engines", "vllm", "--version", "0.24.0")
    rows = {tuple(line.split()) for line in out.splitlines()}
    live = "vLLM 0.32.0 eagle3 V2 Live Restart 1 drafts less Emulated RealEngine RealEngine"
    fixed = "vLLM 0.32.0 suffix V1 Restart Restart 0 drafts less Emulated - -"
    assert {tuple(live.split()), tuple(fixed.split())} <= rows
    assert any(line.startswith("refused: vLLM 0.24.0: speculator.method dspark") for line in early.splitlines())


@pytest.mark.parametrize(
    ("words", "actuator", "proven"),
    [
        (("--version", "0.33.0"), "Live", "Source"),
        (("--version", "0.23.0"), "Restart", "Source"),
        (("--vendor", "cpu"), "Live", "RealEngine"),
        (("--vendor", "TPU"), "Restart", "Source"),
        ((), "Live", "Emulated"),
    ],
)
def test_one_object_a_row(run: Run, words: tuple[str, ...], actuator: str, proven: str) -> None:
    status, out, _ = run("engines", "vLLM", "--method", "eagle3", "--output", "json", *words)
    row = json.loads(out.splitlines()[0])
    assert status == 0
    assert (row["method"], row["actuator"], row["proven"]) == ("eagle3", actuator, proven)
    assert row["refused"] == ""
    assert row["source"]


def test_explains_a_refusal_and_says_so_by_its_status(run: Run) -> None:
    status, out, _ = run("engines", "SGLang", "--method", "medusa")
    assert status == 1
    assert "SGLang does not have it; use one of ngram" in out
    status, out, _ = run("engines", "vLLM", "--method", "dspark", "--version", "0.24.0")
    assert status == 1
    assert "needs engine.version 0.25.1 or newer" in out
    assert run("engines", "vLLM", "--version", "0.2.0")[0] == 1


def test_explains_every_method(run: Run) -> None:
    for method in Method:
        status, out, _ = run("engines", "vLLM", "--method", method)
        assert status == 0
        assert f"vLLM 0.32.0, {method}" in out
        assert "  source " in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), "ENGINE is 'nothing'"),
        (("--vendor", "Acme"), "--vendor is 'Acme'; name one of NVIDIA"),
        (("--method", "magic"), "--method is 'magic'"),
        (("vLLM", "--version", "latest"), "--version is 'latest'"),
    ],
)
def test_wrong_use_is_told_in_one_line(run: Run, words: tuple[str, ...], said: str) -> None:
    status, out, errors = run("engines", *words)
    assert (status, out) == (2, "")
    assert said in errors
    assert errors.count("\n") == 1


def test_names_are_taken_in_any_case(run: Run) -> None:
    assert run("engines", "VLLM", "--method", "EAGLE3", "--vendor", "amd") == run(
        "engines", EngineType.VLLM, "--method", "eagle3", "--vendor", "AMD"
    )


def test_a_release_that_nobody_has_looked_at_is_said_to_be_one(run: Run) -> None:
    status, out, errors = run("engines", "vLLM", "--version", "9.9.9")
    assert status == 1
    assert "warning: vLLM 9.9.9 is newer than 0." in errors
    assert "Assumed" in out
    assert not re.search("Emulated|RealEngine|Source", out)
    status, out, _ = run("engines", "vLLM", "--version", "9.9.9", "--output", "json")
    assert {json.loads(line)["proven"] for line in out.splitlines()} == {"Assumed"}
    status, _, errors = run("engines")
    assert (status, errors) == (0, "")
