"""`python -m speculative_operator.compiled seed|keep`: what runs in serving pods whose spec has engine.compileCache.

`seed` always ends with status 0; `keep` ends with SIGTERM alone, and then at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from speculative_operator.compiled.keep import QUIET_SECONDS, Watch, keep
from speculative_operator.compiled.machine import machine
from speculative_operator.compiled.seed import seed
from speculative_operator.compiled.store import Store

_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run with `argv` (default: the process's arguments); the exit status."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, _end)
    os.umask(0)
    store = Store(options.volume, f"{options.key}-{machine()}")
    folders = tuple(options.folder)
    if options.command == "seed":
        try:
            seed(store, options.cache, folders)
        except Exception:
            _log.exception("unexpected error, a bug of this program: the engine compiles by itself")
        return 0
    watch = Watch(
        store, options.cache, folders, options.health, options.patience, socket.gethostname()[:63], options.quiet
    )
    try:
        keep(watch)
    except Exception:
        _log.exception("unexpected error, a bug of this program: no compiled code is published")
    while True:
        time.sleep(3600)  # a container that ends would be started again, and the pod not be ready meanwhile


def _end(*_: object) -> NoReturn:
    os._exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="speculative_operator.compiled", description="Keep compiled code of engines.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("seed", "restore compiled code before the engine starts"),
        ("keep", "publish compiled code while the engine runs"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "--volume", type=Path, required=True, metavar="DIR", help="root folder of the shared volume"
        )
        command.add_argument("--key", required=True, help="key of what the code was compiled for")
        command.add_argument("--cache", type=Path, required=True, metavar="DIR", help="the engine's cache folder")
        command.add_argument(
            "--folder", action="append", required=True, metavar="PATH", help="subfolder of it; may be repeated"
        )
        command.add_argument("--health", default="", metavar="URL", help="URL that answers 200 once the engine serves")
        command.add_argument("--patience", type=float, default=900.0, metavar="SECONDS")
        command.add_argument("--quiet", type=float, default=QUIET_SECONDS, metavar="SECONDS")
    return parser


if __name__ == "__main__":
    sys.exit(main())
