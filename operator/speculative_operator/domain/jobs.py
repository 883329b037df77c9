"""Jobs that read and fetch models, as the operator sees them: their results on the way back, their progress meanwhile.

`weights` encodes (it runs in the Job), `shell` reads the pod, `reconcile` decodes. A result travels as the container's
termination message, which Kubernetes cuts at 4096 bytes: so it is compressed. Progress is the last line of the log.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

MOST_BYTES = 4096
RESULT_FILE = "SPECULATIVE_RESULT_FILE"
"""Variable of the environment: a file that gets the result as JSON too, for the next container of the pod. No spec may
set names that begin so, and none must be able to have a file of a shared cache overwritten."""
_MARK = "z:"
_LARGEST = 1_000_000
"""Bytes that a result may have when unpacked."""


class Purpose(StrEnum):
    """What a Job is for; the value of the label `serving.speculative.dev/job`."""

    INSPECT = "inspect"
    FETCH = "fetch"


class Exit(IntEnum):
    """Exit statuses of `speculative-weights`. `render.jobs` tells the Job controller which end a Job at once."""

    DONE = 0
    AGAIN = 1
    """Another run may succeed although nobody changes anything."""
    MISUSED = 2
    """The command line was wrong: the exit status of argparse."""
    FINAL = 3
    """Another run would end in the same way."""


class Phase(StrEnum):
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a download; `bytes` and `total` count all files together."""

    bytes: int
    total: int
    rate: float
    """Bytes per second over the last half minute."""
    file: str = ""
    """Name of a file that is being fetched."""
    stalled_seconds: float = 0.0
    """Seconds since the last byte came."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the download ends at its present rate; None while nothing comes."""
        return max(self.total - self.bytes, 0) / self.rate if self.rate > 0 else None


@dataclass(frozen=True, slots=True)
class JobSeen:
    """One Job of an object."""

    name: str
    purpose: Purpose
    wanted: str
    """Hash of the request that the Job was made for: the value of its annotation `serving.speculative.dev/wanted`."""
    phase: Phase
    result: Mapping[str, Any] | None = None
    """Result of the Job at its end: facts or an `error`; None while it runs and where no result can be read."""
    progress: Progress | None = None
    trouble: str = ""
    """The message why the Job's pod does not run, such as unschedulable or image not pulled; else empty."""


def encode(result: Mapping[str, Any]) -> str:
    """`result` as a termination message. Raises ValueError when it is too long for one."""
    packed = base64.b64encode(zlib.compress(json.dumps(result, separators=(",", ":")).encode(), 9)).decode()
    if len(packed) + len(_MARK) > MOST_BYTES:
        raise ValueError(f"a result of {len(packed) + len(_MARK)} bytes does not fit a termination message")
    return _MARK + packed


def decode(message: str) -> Mapping[str, Any] | None:
    """The result in a termination message; None for any other text."""
    try:
        unpacked = zlib.decompressobj()
        found = json.loads(unpacked.decompress(base64.b64decode(message.removeprefix(_MARK)), _LARGEST))
    except (ValueError, zlib.error, RecursionError):
        return None
    return found if message.startswith(_MARK) and isinstance(found, Mapping) else None


def progress_line(progress: Progress) -> str:
    """`progress` as one line of JSON for the log."""
    seen = {"bytes": progress.bytes, "total": progress.total, "rate": round(progress.rate), "file": progress.file}
    return json.dumps({"progress": {**seen, "stalledSeconds": round(progress.stalled_seconds)}})


def progress_of(line: str) -> Progress | None:
    """The progress in a line of the log; None where it is another line."""
    try:
        seen = json.loads(line)["progress"]
        return Progress(
            bytes=int(seen["bytes"]),
            total=int(seen["total"]),
            rate=float(seen["rate"]),
            file=str(seen["file"]),
            stalled_seconds=float(seen["stalledSeconds"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
