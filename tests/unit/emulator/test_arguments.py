"""Flags that are taken, flags that are refused, and how: argparse's exit code 2, vLLM's words."""

from __future__ import annotations

import pytest

from speculative_lab.emulator.arguments import human_int, parse
from speculative_lab.emulator.flags import UNDERSTOOD, Flag, Kind


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "m", "--speculative-model", "x"],
        ["serve", "m", "--num-speculative-tokens", "3"],
        ["serve", "m", "--use-v2-block-manager"],
        ["serve", "m", "--speculative-draft-tensor-parallel-size", "1"],
        ["serve", "m", "--speculative-disable-by-batch-size", "4"],
        ["serve", "m", "--no-such-flag"],
        ["serve", "m", "--max-num-seqs", "many"],
        ["serve", "m", "--max-num-seqs"],
        ["serve", "m", "--max-model-len", "1.5"],
        ["serve", "m", "--dtype", "int3"],
        ["serve", "m", "--speculative-config", "{no json"],
        ["serve", "m", "--custom-histogram-buckets", "x"],
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


@pytest.mark.parametrize("flag", UNDERSTOOD, ids=lambda flag: flag.names[0])
def test_every_known_flag_is_taken(flag: Flag) -> None:
    samples = {
        Kind.TEXT: ["x"], Kind.TEXTS: ["x", "y"], Kind.INT: ["3"], Kind.INTS: ["1", "2"], Kind.HUMAN_INT: ["4k"],
        Kind.FLOAT: ["0.5"], Kind.JSON: ['{"a": 1}'], Kind.TOGGLE: [], Kind.SWITCH: [],
    }  # fmt: skip
    value = [flag.choices[0]] if flag.choices else samples[flag.kind]
    dest = flag.names[0].lstrip("-").replace("-", "_")
    for name in flag.names:
        taken = getattr(parse(["serve", "m", name, *value]), dest)
        assert taken is not None
        assert flag.kind in (Kind.TOGGLE, Kind.SWITCH) or taken != flag.default or flag.choices


def test_removed_flags_are_not_abbreviations_of_others() -> None:
    """An abbreviation that argparse would complete by guessing is refused too."""
    with pytest.raises(SystemExit):
        parse(["serve", "m", "--max-num-se", "3"])


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
    with pytest.raises(SystemExit) as raised:
        parse(["--version"])
    shown = capsys.readouterr().out
    assert raised.value.code == 0
    assert shown.startswith("0.32.0")
    assert "emulation" in shown
