"""What the threads of a fetch work on: runs of chunks, and the requests that bring them. Used by `crew` alone."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from time import monotonic

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.errors import WeightsError
from speculative_operator.weights.part import Part


@dataclass(eq=False)
class Run:
    """Consecutive chunks of a file, asked for in one request. Changed only by the one who works on it."""

    part: Part
    at: int
    """Next byte to come."""
    end: int
    claimed: bool = False
    """Claimed by a former run: read from the disk first."""
    crc: int = 0
    """Of the bytes before `at` in its chunk."""
    failures: int = 0
    """In a row."""


@dataclass(eq=False)
class Stream:
    """One request under way."""

    run: Run
    began: int
    marked: int
    """`run.at` when the present window of observation began, at `mark`."""
    mark: float = field(default_factory=monotonic)
    last: float = field(default_factory=monotonic)
    """When the last bytes came."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: bool = False
    """True once its thread has ended the run: then nobody gives the stream up."""
    given_up: bool = False


def runs_of(part: Part, longest: int) -> list[Run]:
    """What is to be done for a file, in the order of its bytes: what a former run claims is looked at first of all."""
    runs: list[Run] = []
    for index in range(part.chunks):
        at, end = part.span(index)
        claimed = index in part.claimed
        if runs and runs[-1].claimed == claimed and end - runs[-1].at <= max(longest, part.chunk):
            runs[-1].end = end
        else:
            runs.append(Run(part, at, end, claimed))
    return runs or [Run(part, 0, 0)]


def cut(path: str, message: str) -> WeightsError:
    """The error of a connection that ended or went silent while `path` came."""
    return WeightsError(
        Reason.SOURCE_UNREACHABLE, message, file=path, remedy="check the network, the proxy and the state of the source"
    )
