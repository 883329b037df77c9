"""`trtllm-emulator MODEL --config file.yaml`: what `trtllm-serve` takes. Exit codes as `vllm-emulator`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from starlette.routing import Route

from speculative_lab.emulator.dialect import Dialect, LedgerBook, Program, run
from speculative_lab.emulator.http.app import Exposition, openai_routes
from speculative_lab.emulator.http.completions import Service
from speculative_lab.emulator.server import serve
from speculative_lab.emulator.tensorrt_llm.config import parse
from speculative_lab.emulator.tensorrt_llm.ledger import TensorRtLedger


def _ledger(program: Program, created: float) -> LedgerBook:
    return TensorRtLedger(program.engine, program.engine.model, program.options)


def _routes(service: Service, registry: CollectorRegistry, started: int) -> list[Route]:
    """The OpenAI routes; the Prometheus one only with `return_perf_metrics`."""
    metrics = [Route("/prometheus/metrics", Exposition(registry))] if service.server.metrics else []
    return [*openai_routes(service, started, "tensorrt_llm"), *metrics]


DIALECT = Dialect(engine="TensorRT-LLM", routes=_routes, ledger=_ledger)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments); the exit code."""
    return run(DIALECT, parse, serve, argv)


if __name__ == "__main__":
    sys.exit(main())
