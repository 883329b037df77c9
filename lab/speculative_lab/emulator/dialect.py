"""One engine core, several faces: what a dialect is, and how its program starts.

`vllm`, `sglang`, `tensorrt_llm` and `tgi` each give a parser and a `Dialect`; everything behind them is shared.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry
from starlette.routing import Route

from speculative_lab.emulator.book import Book
from speculative_lab.emulator.config import EngineConfig, ServerConfig
from speculative_lab.emulator.driver import Ledger
from speculative_lab.emulator.errors import ConfigError, ValidationError
from speculative_lab.emulator.http.completions import Service
from speculative_lab.emulator.lengths import DraftLengths
from speculative_lab.emulator.settings import Settings, from_environment


class LedgerBook(Book, Ledger):
    """Metric families that know what a step adds to them."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a command line asks for."""

    server: ServerConfig
    engine: EngineConfig
    lengths: DraftLengths | None = None
    """How K is chosen; None: by the schedule in `engine`, which may be none."""
    options: Mapping[str, int] = field(default_factory=dict)
    """What only the dialect's own ledger needs to know."""
    headless: bool = False
    """A worker of another node's engine, which serves nothing itself."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What an engine looks like from outside."""

    engine: str
    """Name and release, as the log tells them."""
    routes: Callable[[Service, CollectorRegistry, int], Sequence[Route]]
    """Routes of a service, the registry of its metrics and the unix time of its start."""
    ledger: Callable[[Program, float], LedgerBook]
    """Metrics of a program that starts at a unix time."""


Parser: TypeAlias = Callable[[Sequence[str], Mapping[str, str], Settings], Program]
"""Arguments and environment to a program. Raises SystemExit(2) as argparse does, ConfigError for what is refused."""
Serve: TypeAlias = Callable[[Dialect, Program, Settings], Coroutine[Any, Any, int]]


def run(dialect: Dialect, parse: Parser, serve: Serve, argv: Sequence[str] | None) -> int:
    """Serve with `argv` (default: the process's arguments); the exit code, 1 for a refused configuration."""
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(asctime)s [%(module)s] %(message)s", datefmt="%m-%d %H:%M:%S"
    )
    try:
        settings = from_environment(os.environ)
        program = parse(sys.argv[1:] if argv is None else argv, os.environ, settings)
        return _run(serve(dialect, program, settings))
    except ConfigError as error:
        name = "pydantic_core._pydantic_core.ValidationError" if isinstance(error, ValidationError) else "ValueError"
        sys.stderr.write(f"{name}: {error}\n")
        return 1


def _run(serving: Coroutine[Any, Any, int]) -> int:
    """Run the coroutine on uvloop where there is one: it halves the cost of a request."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serving)
    return uvloop.run(serving)
