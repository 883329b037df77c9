"""Telling how far something long is, and doing it only once at a time. Used by everything that builds or installs."""

import fcntl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Report = Callable[[str], None]


class Reporter:
    """Progress on standard error with the seconds since the first line, so that standard output stays the answer."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, line: str) -> None:
        print(f"[{time.monotonic() - self._started:5.1f} s] {line}", file=sys.stderr, flush=True)


def announce(line: str) -> None:
    """The report of whoever gives none: minutes of silence would look like a hang."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def alone(directory: Path, what: str, report: Report) -> Iterator[None]:
    """Only one process works on a directory that is to come; others are told `what` it does and wait for it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(f".{directory.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another process {what}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
