"""Entry of `python -m devcluster`."""

import signal
import sys
from typing import NoReturn

from devcluster.cli import main


def _terminated(_number: int, _frame: object) -> NoReturn:
    """SIGTERM ends like Ctrl-C does, through every `finally`."""
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(main())
