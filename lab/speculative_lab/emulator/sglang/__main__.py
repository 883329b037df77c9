"""`sglang-emulator --model-path ...`: what `python -m sglang.launch_server` takes. Exit codes as `vllm-emulator`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from starlette.routing import Route

from speculative_lab.emulator.dialect import Dialect, LedgerBook, Program, run
from speculative_lab.emulator.http.app import Exposition, health, openai_routes
from speculative_lab.emulator.http.completions import Service
from speculative_lab.emulator.server import serve
from speculative_lab.emulator.sglang import ENGINE
from speculative_lab.emulator.sglang.config import LOG_INTERVAL, parse
from speculative_lab.emulator.sglang.ledger import SglangLedger


def _ledger(program: Program, created: float) -> LedgerBook:
    return SglangLedger(program.engine, program.server.served_names[0], program.options[LOG_INTERVAL])


def _routes(service: Service, registry: CollectorRegistry, started: int) -> list[Route]:
    """The OpenAI routes and health; /metrics only where metrics were asked for."""
    metrics = [Route("/metrics", Exposition(registry))] if service.server.metrics else []
    checks = [Route(path, health(service), methods=["GET"]) for path in ("/health_generate", "/ready", "/ping")]
    return [*openai_routes(service, started, "sglang"), *checks, *metrics]


DIALECT = Dialect(engine=ENGINE, routes=_routes, ledger=_ledger)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments, without those of a Python module); exit code."""
    return run(DIALECT, parse, serve, argv)


if __name__ == "__main__":
    sys.exit(main())
