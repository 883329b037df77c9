"""`tgi-emulator --model-id ...`: what `text-generation-launcher` takes. Exit codes as `vllm-emulator`.

No metrics are emulated: of TGI's the operator can use none (`engines/tgi.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from starlette.routing import Route

from speculative_lab.emulator.core import StepResult
from speculative_lab.emulator.dialect import Dialect, LedgerBook, run
from speculative_lab.emulator.http.app import Exposition, openai_routes
from speculative_lab.emulator.http.completions import Service
from speculative_lab.emulator.requests import FinishReason, Request
from speculative_lab.emulator.server import serve
from speculative_lab.emulator.tgi import ENGINE
from speculative_lab.emulator.tgi.config import parse


class _NoMetrics(LedgerBook):
    """Books nothing."""

    def record(self, result: StepResult, running: int, waiting: int, kv_usage: float) -> None:
        """See `Ledger`."""

    def gauges(self, running: int, waiting: int, kv_usage: float) -> None:
        """See `Ledger`."""

    def finish(self, request: Request, reason: FinishReason, now: float) -> None:
        """See `Ledger`."""


def _routes(service: Service, registry: CollectorRegistry, started: int) -> list[Route]:
    return [*openai_routes(service, started, service.engine.model), Route("/metrics", Exposition(registry))]


DIALECT = Dialect(engine=ENGINE, routes=_routes, ledger=lambda program, created: _NoMetrics((), {}))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments); the exit code."""
    return run(DIALECT, parse, serve, argv)


if __name__ == "__main__":
    sys.exit(main())
