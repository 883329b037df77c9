"""`tgi-emulator --model-id ...`: what `text-generation-launcher` takes. Exit codes as `vllm-emulator`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast

from prometheus_client import CollectorRegistry
from starlette.routing import Route

from speculative_lab.emulator.dialect import Dialect, LedgerBook, Program, run
from speculative_lab.emulator.http.completions import Service
from speculative_lab.emulator.server import serve
from speculative_lab.emulator.tgi import ENGINE
from speculative_lab.emulator.tgi.config import parse
from speculative_lab.emulator.tgi.ledger import TgiLedger
from speculative_lab.emulator.tgi.routes import routes


def _ledger(program: Program, created: float) -> LedgerBook:
    return TgiLedger(program.engine, program.options["max_input_tokens"], program.options["max_total_tokens"])


def _routes(service: Service, registry: CollectorRegistry, started: int) -> list[Route]:
    return routes(service, started, cast("TgiLedger", service.metrics).text)


DIALECT = Dialect(engine=ENGINE, routes=_routes, ledger=_ledger)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments); the exit code."""
    return run(DIALECT, parse, serve, argv)


if __name__ == "__main__":
    sys.exit(main())
