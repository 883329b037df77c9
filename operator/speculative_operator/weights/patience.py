"""How long sources are waited for, and how patient a fetch is.

`Patience`, `within` and `at_a_rate` are used by every source that speaks over a network; `Limits` and `steadily` by
whoever reads from a source.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import uniform
from typing import TypeVar

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.source import Entry, Source, WeightsError

_LOG = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds, and bytes per second."""

    connect: float = 10.0
    read: float = 30.0
    """Most seconds of silence within an answer."""
    least_rate: float = 1024.0
    """An answer that brings less than this over `read` seconds counts as none: it would take days, and holds a
    connection meanwhile."""

    @property
    def listing(self) -> float:
        """Most seconds for all requests of an open: metadata of thousands of files come in a few seconds."""
        return 4 * self.read

    @classmethod
    def from_environment(cls) -> Patience:
        """The patience with `SPECULATIVE_SOURCE_TIMEOUT`, seconds, for `read`. Raises ValueError for what is no
        number."""
        seconds = os.environ.get("SPECULATIVE_SOURCE_TIMEOUT")
        whole = cls()
        return cls(connect=min(whole.connect, float(seconds)), read=float(seconds)) if seconds else whole


def within(seconds: float, uri: str, call: Callable[[], Result]) -> Result:
    """The result of `call()`; raises WeightsError after `seconds`: clients bound each read, but not an answer that
    comes byte by byte.

    The call is left to itself then, in a thread that does not keep the process alive.
    """
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:  # handed to the caller's thread, whatever it is
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if not outcome:
        raise WeightsError(
            Reason.SOURCE_UNREACHABLE,
            f"{uri}: no complete answer within {seconds:g} seconds",
            remedy="check the network, the proxy and the state of the source",
        )
    return outcome[0]


def at_a_rate(blocks: Iterator[bytes], uri: str, file: str, patience: Patience) -> Iterator[bytes]:
    """Yield `blocks`; raises WeightsError where they bring too little for too long, which keeps every limit on silence
    from firing."""
    since, count = time.monotonic(), 0
    for block in blocks:
        yield block
        count += len(block)
        spent = time.monotonic() - since
        if spent < patience.read:
            continue
        if count < patience.least_rate * spent:
            raise WeightsError(
                Reason.SOURCE_UNREACHABLE,
                f"{uri}: fewer than {patience.least_rate:g} bytes arrive per second",
                file=file,
                remedy="check the network, the proxy and the state of the source",
            )
        since, count = time.monotonic(), 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    segment: int = 128 << 20
    """Bytes asked for in one request, and journalled once they are on the disk: most that a kill costs each stream."""
    attempts: int = 8
    """Failures in a row of one segment before the fetch fails with the last one's reason: two minutes of pauses."""
    progress: int = 256 << 10
    """Bytes that a request must bring before it fails, so that its failures are counted anew."""
    pause: float = 1.0
    """Seconds to wait after the first failure; doubled after each further one."""
    longest_pause: float = 60.0
    longest_wait: float = 600.0
    """A source that asks for a longer pause than this (`Retry-After`) fails the fetch."""
    tell: float = 2.0
    """Seconds between reports of progress."""
    reserve: float = 0.0
    """Share of the volume that stays free, whoever else writes to it."""

    def wait_after(self, error: WeightsError, failures: int) -> float:
        """Seconds to wait after so many failures in a row; raises the last one when another try is worth no more."""
        if not error.transient:
            raise error
        delay = error.retry_after
        if failures >= self.attempts or (delay is not None and delay > self.longest_wait):
            error.message += f" (given up after {failures} failures in a row)" if failures > 1 else ""
            raise error
        pause = min(self.pause * 2 ** (failures - 1), self.longest_pause) * uniform(0.5, 1.0)  # noqa: S311  spreads load only
        seconds = pause if delay is None else delay
        _LOG.warning("%s: %s; retrying in %.0f s", error.file, error.message, seconds)
        return seconds


def steadily(
    source: Source, entry: Entry, span: tuple[int, int], limits: Limits, pause: Callable[[WeightsError, float], None]
) -> Iterator[bytes]:
    """Yield the bytes of `span` (end excluded). A transfer that breaks is taken up again where it broke, after `pause`,
    which takes the error and the seconds that `limits` give. Raises WeightsError where they give none."""
    (at, end), failures = span, 0
    while at < end:
        began = at
        try:
            for block in source.read(entry, at, end):
                at += len(block)
                yield block
        except WeightsError as error:
            error.file = error.file or entry.path
            failures = 1 if at - began >= limits.progress else failures + 1
            pause(error, limits.wait_after(error, failures))
