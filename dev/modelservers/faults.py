"""What a server does wrong, on order: statuses, delays, answers that drip, break off or lie."""

from __future__ import annotations

import re
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Fault:
    """One thing that goes wrong with requests whose path matches."""

    path: str = ""
    """Regular expression, searched for in path and query."""
    status: int = 0
    """Answer with this status and no file."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """More headers of that answer, such as `Retry-After`."""
    delay: float = 0.0
    """Seconds before anything is answered."""
    drip: float = 0.0
    """Bytes per second, one at a time."""
    cut_after: int | None = None
    """Bytes of a body after which the connection is closed."""
    corrupt_at: int | None = None
    """Byte of the file of which one bit is flipped."""
    slow_to: float = 0.0
    """Bytes per second, evenly."""
    times: int | None = None
    """Requests that it strikes; None: all."""


@dataclass(frozen=True)
class Seen:
    """One request and its answer."""

    method: str
    path: str
    status: int
    range: str
    bytes: int
    """Of the body, as far as it was sent."""
    authorized: bool
    """Whether it carried credentials."""


SETTLES = 0.5
"""seconds: a client has read its answer a moment before the server has noted it. One that drips is not waited for."""


class Ledger:
    """Faults in force and requests seen. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._open = 0
        self._faults: list[Fault] = []
        self._seen: deque[Seen] = deque(maxlen=20_000)
        self._bytes: Counter[str] = Counter()

    def order(self, *faults: Fault) -> None:
        """Have `faults` and no others from now on."""
        with self._lock:
            self._faults = list(faults)

    def strike(self, path: str) -> Fault:
        """The first fault that is meant for a request; one that does nothing where none is."""
        with self._lock:
            self._open += 1
            for fault in self._faults:
                if fault.times != 0 and re.search(fault.path, path):
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
        return Fault()

    def note(self, seen: Seen) -> None:
        """The end of a request, which `strike` began."""
        with self._lock:
            self._open -= 1
            self._lock.notify_all()
            self._seen.append(seen)
            self._bytes[seen.path.partition("?")[0]] += seen.bytes

    def seen(self) -> list[Seen]:
        """All requests, those included whose answers were read just now."""
        with self._lock:
            self._lock.wait_for(lambda: self._open == 0, SETTLES)
            return list(self._seen)

    def clear(self) -> None:
        """Forget what was seen; faults stay."""
        with self._lock:
            self._lock.wait_for(lambda: self._open == 0, SETTLES)
            self._seen.clear()
            self._bytes.clear()

    @property
    def bytes(self) -> int:
        """Of all bodies sent."""
        with self._lock:
            return self._bytes.total()

    def bytes_by_path(self) -> dict[str, int]:
        with self._lock:
            return dict(self._bytes)
