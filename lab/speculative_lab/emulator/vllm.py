"""The face of vLLM 0.32: the dialect that `vllm-emulator` speaks. Called by `__main__`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speculative_lab.emulator import VLLM_VERSION
from speculative_lab.emulator.arguments import parse as parse_arguments
from speculative_lab.emulator.config import engine_config, server_config
from speculative_lab.emulator.dialect import Dialect, Program
from speculative_lab.emulator.metrics import EngineMetrics
from speculative_lab.emulator.settings import Settings


def parse(argv: Sequence[str], environment: Mapping[str, str], settings: Settings) -> Program:
    """The program of `serve MODEL ...`."""
    arguments = parse_arguments(argv)
    engine = engine_config(arguments, environment, settings)
    return Program(server_config(arguments, environment), engine, headless=arguments.headless)


DIALECT = Dialect(
    engine=f"vLLM {VLLM_VERSION}",
    parse=parse,
    book=lambda program, created: EngineMetrics(program.engine, program.server.served_names[0], created),
    owner="vllm",
    checks=("/ping",),
)
