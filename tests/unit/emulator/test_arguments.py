"""Flags that are taken, flags that are refused, and how: argparse's exit code 2."""

from __future__ import annotations

import argparse

import pytest

from speculative_lab.emulator import rows
from speculative_lab.emulator.arguments import add_flags, human_int, parse

SAMPLES = {
    "text": ["x"], "texts": ["x", "y"], "int": ["3"], "ints": ["1", "2"], "human_int": ["4k"], "float": ["0.5"],
    "json": ['{"a": 1}'], "toggle": [], "switch": [],
}  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "m", "--num-speculative-tokens", "3"],
        ["serve", "m", "--max-num-se", "3"],
        ["serve", "m", "--max-num-seqs", "many"],
        ["serve", "m", "--max-num-seqs"],
        ["serve", "m", "--max-model-len", "1.5"],
        ["serve", "m", "--dtype", "int3"],
        ["serve", "m", "--speculative-config", "{no json"],
        ["serve", "m", "extra"],
        ["chat", "m"],
        [],
    ],
    ids=lambda words: " ".join(words[2:]) or " ".join(words) or "nothing",
)
def test_argument_errors_end_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse(words)
    assert raised.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["vLLM", "SGLang", "TensorRT-LLM"])
def test_every_flag_on_record_is_taken(engine: str) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, engine)
    untold = vars(parser.parse_args([]))
    for row in rows("flags.csv"):
        for name in row["names"].split() if row["engine"] == engine else ():
            value = row["choices"].split()[-1:] or SAMPLES[row["kind"]]
            changed = {key for key, told in vars(parser.parse_args([name, *value])).items() if told != untold[key]}
            assert len(changed) == 1, name


def test_underscores_and_equals_signs() -> None:
    namespace = parse(["serve", "m", "--max_num_seqs=7", "--served_model_name", "a_b", "c"])
    assert (namespace.max_num_seqs, namespace.served_model_name) == (7, ["a_b", "c"])


def test_model_from_flag_or_position() -> None:
    assert parse(["serve", "a"]).model == "a"
    assert parse(["serve", "--model", "b"]).model == "b"
    assert parse(["serve"]).model == "Qwen/Qwen3-0.6B"


@pytest.mark.parametrize(("text", "value"), [("4096", 4096), ("4k", 4000), ("4K", 4096), ("1.5M", 1572864), ("-1", -1)])
def test_human_int(text: str, value: int) -> None:
    assert human_int(text) == value


def test_version_says_it_is_an_emulation(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--version"])
    shown = capsys.readouterr().out
    assert shown.startswith("0.32.0")
    assert "emulation" in shown
