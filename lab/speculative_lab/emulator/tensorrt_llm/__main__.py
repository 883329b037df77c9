"""`trtllm-emulator MODEL --config file.yaml`: what `trtllm-serve` takes. Exit codes as `vllm-emulator`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from speculative_lab.emulator.dialect import Dialect, LedgerBook, Program, run
from speculative_lab.emulator.server import serve
from speculative_lab.emulator.tensorrt_llm.config import parse
from speculative_lab.emulator.tensorrt_llm.ledger import TensorRtLedger
from speculative_lab.emulator.tensorrt_llm.routes import routes


def _ledger(program: Program, created: float) -> LedgerBook:
    return TensorRtLedger(program.engine, program.engine.model, program.options)


DIALECT = Dialect(engine="TensorRT-LLM", routes=routes, ledger=_ledger)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments); the exit code."""
    return run(DIALECT, parse, serve, argv)


if __name__ == "__main__":
    sys.exit(main())
