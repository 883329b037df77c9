"""`sglang-emulator --model-path ...`: what `python -m sglang.launch_server` takes. Exit codes as `vllm-emulator`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from speculative_lab.emulator.dialect import Dialect, LedgerBook, Program, run
from speculative_lab.emulator.server import serve
from speculative_lab.emulator.sglang import ENGINE
from speculative_lab.emulator.sglang.config import LOG_INTERVAL, parse
from speculative_lab.emulator.sglang.ledger import SglangLedger
from speculative_lab.emulator.sglang.routes import routes


def _ledger(program: Program, created: float) -> LedgerBook:
    return SglangLedger(program.engine, program.server.served_names[0], program.options[LOG_INTERVAL])


DIALECT = Dialect(engine=ENGINE, routes=routes, ledger=_ledger)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments, without those of a Python module); exit code."""
    return run(DIALECT, parse, serve, argv)


if __name__ == "__main__":
    sys.exit(main())
