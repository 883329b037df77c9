"""`python -m speculative_operator.compiled seed|keep`: what runs in serving pods whose spec has engine.compileCache.

`seed` always ends with status 0; `keep` ends with SIGTERM alone, and then at once.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from speculative_operator.compiled.keep import QUIET_SECONDS, Watch, keep
from speculative_operator.compiled.seed import seed
from speculative_operator.compiled.store import Store

_CPU = ("model name", "flags", "Features", "CPU implementer", "CPU part", "processor version")
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


def machine(root: Path = Path("/")) -> str:
    """Eight hexadecimal digits that are the same on nodes of one kind: processor, driver and accelerators.

    Compiled code depends on them, and no manifest tells them. Code compiled for one processor ends a process on another
    one, so nodes of different kinds never share a folder. Files of /proc and /sys are the same in every container of a
    node; what cannot be read tells nothing.
    """
    told = [platform.machine(), *_processor(root), *_accelerators(root)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:8]


def _processor(root: Path) -> Iterator[str]:
    """Yield the lines of the first processor that say what code it runs."""
    for line in _lines(root / "proc/cpuinfo"):
        if not line.strip():
            return
        name, _, value = line.partition(":")
        if name.strip() in _CPU:
            yield f"{name.strip()}: {' '.join(sorted(value.split()))}"


def _accelerators(root: Path) -> Iterator[str]:
    nvidia = root / "proc/driver/nvidia"
    yield from _lines(nvidia / "version")[:1]
    found = {line for file in nvidia.glob("gpus/*/information") for line in _lines(file) if line.startswith("Model:")}
    amd = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    found |= {line for file in amd for line in _lines(file) if line.startswith("gfx_target_version")}
    yield from sorted(found)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


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
