"""A source over bytes in memory that fails as told, and remembers what it was asked for."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import Scheme
from speculative_operator.weights.fetch import total_bytes
from speculative_operator.weights.patience import Limits, Patience
from speculative_operator.weights.progress import Meter, Report
from speculative_operator.weights.source import Entry, Source

KIB = 1 << 10
COMMIT = "0123456789abcdef0123456789abcdef01234567"
BRISK = Limits(segment=64 * KIB, attempts=4, progress=KIB, pause=0.01, tell=0.05)
"""Patience of a test."""
SHORT = Patience(connect=5.0, read=1.5)
"""With a source over the loopback: an opening may take four times `read`, on a machine that is busy."""

Fault = Callable[["Asked"], Iterator[bytes] | None]


@dataclass
class Asked:
    """One read."""

    entry: Entry
    start: int
    end: int
    data: bytes
    """What a faultless source would give."""
    number: int
    """Reads of this file before this one."""
    given: int = 0


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@dataclass
class Shelf:
    """`files`: path -> bytes. A fault looks at what is asked and answers in the source's place, or returns None."""

    contents: dict[str, bytes]
    fault: Fault | None = None
    summed: bool = True
    block: int = 16 * KIB
    location: str = "small/model"
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pin(self) -> Pin:
        return Pin(Scheme.HF, self.location, "main", COMMIT)

    @property
    def files(self) -> tuple[Entry, ...]:
        return tuple(
            Entry(path, len(data), hashlib.sha256(data).hexdigest() if self.summed else "", f"etag-{len(data)}")
            for path, data in sorted(self.contents.items())
        )

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        with self.lock:
            before = sum(one.entry.path == entry.path for one in self.asked)
            asked = Asked(entry, start, end, self.contents[entry.path][start:end], before)
            self.asked.append(asked)
        answer = self.fault(asked) if self.fault else None
        for block in answer if answer is not None else blocks(asked.data, self.block):
            asked.given += len(block)
            yield block

    @property
    def given(self) -> int:
        return sum(one.given for one in self.asked)


def blocks(data: bytes, size: int = 16 * KIB) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def meter(source: Source, report: Report = lambda _: None) -> Meter:
    """Of one source; nobody listens unless `report` does."""
    return Meter(total_bytes(source), report, BRISK.tell)
