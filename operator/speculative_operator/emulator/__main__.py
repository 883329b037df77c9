"""`vllm-emulator serve MODEL ...`: exit code 2 for arguments that do not parse, 1 for a refused configuration."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from speculative_operator.emulator.arguments import parse
from speculative_operator.emulator.config import engine_config, server_config
from speculative_operator.emulator.errors import ConfigError, ValidationError
from speculative_operator.emulator.server import serve
from speculative_operator.emulator.settings import from_environment

log = logging.getLogger("speculative_operator.emulator")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments); the exit code."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(asctime)s [%(module)s] %(message)s", datefmt="%m-%d %H:%M:%S"
    )
    try:
        settings = from_environment(os.environ)
        engine = engine_config(arguments, os.environ, settings)
        server = server_config(arguments, os.environ)
        return _run(serve(server, engine, settings, os.environ))
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


if __name__ == "__main__":
    sys.exit(main())
