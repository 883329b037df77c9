"""`vllm-emulator serve MODEL ...`: exit code 2 for arguments that do not parse, 1 for a refused configuration."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from speculative_lab.emulator.dialect import run
from speculative_lab.emulator.server import serve
from speculative_lab.emulator.vllm import DIALECT, parse


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments); the exit code."""
    return run(DIALECT, parse, serve, argv)


if __name__ == "__main__":
    sys.exit(main())
