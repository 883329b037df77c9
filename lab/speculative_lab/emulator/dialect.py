"""One engine core, several faces: what a dialect is. Everything behind it is shared.

`vllm`, `sglang` and `tensorrt_llm` each give one; `server` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from speculative_lab.emulator.book import Book
from speculative_lab.emulator.config import EngineConfig, ServerConfig
from speculative_lab.emulator.core import DraftLengths
from speculative_lab.emulator.settings import Settings


@dataclass(frozen=True, slots=True)
class Program:
    """What a command line asks for."""

    server: ServerConfig
    engine: EngineConfig
    lengths: DraftLengths | None = None
    """How K is chosen; None: by the schedule in `engine`, which may be none."""
    headless: bool = False
    """A worker of another node's engine, which serves nothing itself."""


Parser: TypeAlias = Callable[[Sequence[str], Mapping[str, str], Settings], Program]
"""Arguments and environment to a program. Raises SystemExit(2) as argparse does, ConfigError for what is refused."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What an engine looks like from outside."""

    engine: str
    """Name and release, as the log tells them."""
    parse: Parser
    book: Callable[[Program, float], Book]
    """Metrics of a program that starts at a unix time."""
    owner: str
    """Of the models, as /v1/models tells it."""
    metrics: str = "/metrics"
    """Path of the metrics, where the command line asks for them."""
    checks: tuple[str, ...] = ()
    """Paths that answer as /health does."""
