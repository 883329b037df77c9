"""What is measured one after another within a time, and the file that holds what was found so far.

Called by `program`. The file is written anew after each finding, so that a run that is cut off keeps what it had.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

GRACE = 30.0
"""Seconds after its time at which a stage is stopped, for what hangs: of itself it ends before."""


class OutOfTimeError(BaseException):
    """A stage that did not end; no `except Exception` of it holds it up."""


class Record:
    """What was found: one JSON object (docs/development.md says what it holds), and the file with it."""

    def __init__(self, path: Path, found: dict[str, Any]) -> None:
        self.path, self.found = path, found

    def add(self, key: str, entry: Any) -> None:
        """One more entry of a list, kept at once."""
        self.found.setdefault(key, []).append(entry)
        self.save()

    def put(self, key: str, value: Any) -> None:
        """A value of its own, kept at once."""
        self.found[key] = value
        self.save()

    def save(self) -> None:
        """Write the file. Where that fails, say so and go on: what was found is printed at the end, too."""
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            new.write_text(json.dumps(self.found, indent=1) + "\n")
            new.replace(self.path)
        except OSError as error:
            print(f"{self.path} cannot be written: {error}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Stage:
    """One measurement. `run` is given the monotonic time at which it ends of itself."""

    name: str
    run: Callable[[float], None]
    most: float
    """Seconds that it is given if they are left."""
    least: float = 0.0
    """Seconds below which it is not begun."""


@contextmanager
def stopped_at(until: float, clock: Callable[[], float]) -> Iterator[None]:
    """Raises OutOfTimeError in the main thread at `until`."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(0.1, until - clock()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def run(
    stages: Sequence[Stage], record: Record, until: float, clock: Callable[[], float] = time.monotonic,
    grace: float = GRACE,
) -> None:  # fmt: skip
    """All stages that time is left for; one that fails leaves the others theirs. An interrupt ends them all."""
    for stage in stages:
        left = until - clock()
        if left < stage.least or left <= 0:
            note(record, stage.name, "skipped", 0.0, f"{max(0, round(left))} s were left, {stage.least:.0f} are needed")
            continue
        began, ends = clock(), min(until, clock() + stage.most)
        print(f"{stage.name}: at most {ends - began:.0f} s", flush=True)
        try:
            with stopped_at(ends + grace, clock):
                stage.run(ends)
        except OutOfTimeError:
            note(record, stage.name, "cut", clock() - began, "it did not end in its time")
        except KeyboardInterrupt:
            note(record, stage.name, "cut", clock() - began, "interrupted")
            raise
        except Exception as error:
            traceback.print_exc()
            note(record, stage.name, "failed", clock() - began, f"{type(error).__name__}: {error}"[:4000])
        else:
            note(record, stage.name, "done", clock() - began)


def note(record: Record, name: str, state: str, seconds: float, why: str = "") -> None:
    """Keep how a stage ended."""
    print(f"{name}: {state} after {seconds:.0f} s{f': {why}' if why else ''}", flush=True)
    record.add("stages", {"name": name, "state": state, "seconds": round(seconds, 1), "why": why})
