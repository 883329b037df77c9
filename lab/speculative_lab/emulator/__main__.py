"""`vllm-emulator serve MODEL ...`: exit code 2 for arguments that do not parse, 1 for a refused configuration."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from speculative_lab.emulator.server import run
from speculative_lab.emulator.vllm import DIALECT


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator with `argv` (default: the process's arguments); the exit code."""
    return run(DIALECT, argv)


if __name__ == "__main__":
    sys.exit(main())
