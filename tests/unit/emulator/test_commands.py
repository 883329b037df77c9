"""Commands of the engines' images, laid into a folder: each leads to its emulator."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from speculative_lab.emulator.commands import lay

STARTS = {
    "SGLang 0.5.23": ["python3", "-m", "sglang.launch_server", "--version"],
    "TensorRT-LLM 1.3": ["trtllm-serve", "--version"],
}


@pytest.mark.parametrize("engine", STARTS)
def test_a_command_starts_its_emulator(engine: str, tmp_path: Path) -> None:
    variables = {**os.environ, **lay(tmp_path)}
    program = subprocess.run(
        STARTS[engine], env=variables, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path
    )
    assert f"emulation of {engine}" in program.stdout


def test_python3_is_still_python(tmp_path: Path) -> None:
    variables = {**os.environ, **lay(tmp_path)}
    words = ["python3", "-c", "import speculative_operator, sys; print(sys.argv[1:])", "a b", "$c"]
    program = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=60, check=True)
    assert program.stdout == "['a b', '$c']\n"


def test_python3_starts_the_api_server_of_vllm(tmp_path: Path) -> None:
    variables = {**os.environ, **lay(tmp_path)}
    words = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--help"]
    program = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=60, check=True)
    assert "--speculative-config" in program.stdout
