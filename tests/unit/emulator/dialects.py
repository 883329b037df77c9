"""Engines of the other dialects for tests: from command lines as pods have them, run in virtual time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.unit.emulator.building import Run, quiet

from speculative_lab.emulator import sglang as sglang_dialect
from speculative_lab.emulator import tensorrt_llm as tensorrt_dialect
from speculative_lab.emulator.assembly import build_core
from speculative_lab.emulator.dialect import Dialect, Program
from speculative_lab.emulator.sglang_metrics import SglangMetrics

MODEL = "Qwen/Qwen3-8B"
QUIET = quiet()


def sglang(*words: str) -> Program:
    """`python -m sglang.launch_server` with metrics and these words."""
    flags = ("--model-path", MODEL, "--context-length", "4096", "--enable-metrics")
    return sglang_dialect.parse([*flags, *words], {}, QUIET)


def tensorrt_llm(folder: Path, content: Mapping[str, Any], *words: str) -> Program:
    """`trtllm-serve` with that file, in YAML."""
    path = folder / "engine.yaml"
    lines = {"return_perf_metrics": True, "enable_iter_perf_stats": True, **content}
    path.write_text("".join(f"{key}: {_flow(value)}\n" for key, value in lines.items()))
    flags = (MODEL, "--max_seq_len", "4096", "--max_batch_size", "64", "--extra_llm_api_options", str(path))
    return tensorrt_dialect.parse([*flags, *words], {}, QUIET)


def _flow(value: Any) -> str:
    """JSON, but for keys that are whole numbers."""
    if not isinstance(value, dict):
        return json.dumps(value)
    entries = (f"{key if type(key) is int else json.dumps(key)}: {_flow(one)}" for key, one in value.items())
    return "{" + ", ".join(entries) + "}"


class DialectRun(Run):
    """A run of a program with the metrics of its dialect; those of SGLang have the engine's clock."""

    def __init__(self, program: Program, dialect: Dialect | None = None) -> None:
        self.settings, self.now = QUIET, 0.0
        self.core = build_core(program.engine, QUIET, program.lengths)
        self.metrics = dialect.book(program, 0.0) if dialect else SglangMetrics(program.engine, MODEL, lambda: self.now)
        self._start()
