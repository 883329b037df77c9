"""Engines of the other dialects for tests: from command lines as pods have them, run in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.unit.emulator.building import Run

from speculative_lab.emulator.assembly import build_core
from speculative_lab.emulator.dialect import Dialect, LedgerBook, Parser, Program
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.sglang import config as sglang_config
from speculative_lab.emulator.sglang.ledger import SglangLedger
from speculative_lab.emulator.tensorrt_llm import config as tensorrt_config
from speculative_lab.emulator.tensorrt_llm.__main__ import DIALECT as TENSORRT_LLM
from speculative_lab.emulator.tgi import config as tgi_config
from speculative_lab.emulator.tgi.__main__ import DIALECT as TGI

MODEL = "Qwen/Qwen3-8B"
QUIET = Settings(step_noise=0.0, acceptance_spread=0.0)
__all__ = ["MODEL", "QUIET", "TENSORRT_LLM", "TGI", "DialectRun", "sglang", "tensorrt_llm", "tgi"]


def parsed(parse: Parser, *words: str, **environment: str) -> Program:
    return parse(list(words), environment, QUIET)


def sglang(*words: str, **environment: str) -> Program:
    """`python -m sglang.launch_server` with metrics and these words."""
    return parsed(
        sglang_config.parse,
        "--model-path",
        MODEL,
        "--context-length",
        "4096",
        "--enable-metrics",
        *words,
        **environment,
    )


def tensorrt_llm(folder: Path, content: Mapping[str, Any], *words: str, **environment: str) -> Program:
    """`trtllm-serve` with that file."""
    path = folder / "engine.yaml"
    path.write_text(json.dumps({"return_perf_metrics": True, "enable_iter_perf_stats": True, **content}))
    flags = (MODEL, "--max_seq_len", "4096", "--max_batch_size", "64", "--extra_llm_api_options", str(path))
    return parsed(tensorrt_config.parse, *flags, *words, **environment)


def tgi(*words: str, **environment: str) -> Program:
    """`text-generation-launcher` with these words."""
    return parsed(tgi_config.parse, "--model-id", MODEL, "--max-total-tokens", "4096", *words, **environment)


class DialectRun(Run):
    """A run of a program with the ledger of its dialect."""

    def __init__(self, program: Program, ledger: LedgerBook | Dialect | None = None) -> None:
        self.program = program
        self.settings = QUIET
        self.core = build_core(program.engine, QUIET, program.lengths)
        self.ledger: Any = self._ledger(program, ledger)
        self.metrics: Any = self.ledger
        self._start()

    def _ledger(self, program: Program, ledger: LedgerBook | Dialect | None) -> LedgerBook:
        if isinstance(ledger, Dialect):
            return ledger.ledger(program, 0.0)
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        self.now = 0.0
        return ledger or SglangLedger(program.engine, MODEL, 40, clock)
