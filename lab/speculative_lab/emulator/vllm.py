"""The face of vLLM 0.32: the dialect that `vllm-emulator` speaks. Called by `__main__`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from speculative_lab.emulator import VLLM_VERSION
from speculative_lab.emulator.arguments import parse as parse_arguments
from speculative_lab.emulator.assembly import build_metrics
from speculative_lab.emulator.config import engine_config, server_config
from speculative_lab.emulator.dialect import Dialect, LedgerBook, Program
from speculative_lab.emulator.http.app import vllm_routes
from speculative_lab.emulator.settings import Settings


def parse(argv: Sequence[str], environment: Mapping[str, str], settings: Settings) -> Program:
    """The program of `serve MODEL ...`."""
    arguments = parse_arguments(argv)
    engine = engine_config(arguments, environment, settings)
    return Program(server_config(arguments, environment), engine, headless=arguments.headless)


def _ledger(program: Program, created: float) -> LedgerBook:
    return cast("LedgerBook", build_metrics(program.engine, program.server.served_names[0], created))


DIALECT = Dialect(
    engine=f"vLLM {VLLM_VERSION}",
    routes=vllm_routes,
    ledger=_ledger,
)
