"""Small reads on top of `Source.read`. Used by the inspector."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.errors import WeightsError
from speculative_operator.weights.source import Entry, Source


def whole(source: Source, entry: Entry, most: int) -> bytes:
    """A whole file of at most `most` bytes. Raises WeightsError for a larger one."""
    if entry.size > most:
        raise WeightsError(
            Reason.PAIR_UNREAD,
            f"{source.pin.source.uri}: a file of {entry.size} bytes where at most {most} are expected",
            file=entry.path,
        )
    return part(source, entry, 0, entry.size)


def part(source: Source, entry: Entry, start: int, end: int) -> bytes:
    """Bytes `start` to `end` (excluded), fewer where the file ends before."""
    end = min(end, entry.size)
    return b"".join(source.read(entry, start, end)) if end > start else b""


def stream(source: Source, entry: Entry) -> Iterator[bytes]:
    """The file from its beginning; closing the iterator ends the transfer."""
    if entry.size:
        yield from source.read(entry, 0, entry.size)


def json_object(source: Source, entry: Entry, most: int) -> Mapping[str, Any]:
    """A file that holds one JSON object. Raises WeightsError for anything else."""
    content = whole(source, entry, most)
    with understood(source, entry):
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError("no object")
    return found


@contextmanager
def understood(source: Source, entry: Entry) -> Iterator[None]:
    """Whatever parsing says of a file's content becomes WeightsError."""
    try:
        yield
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise WeightsError(
            Reason.PAIR_UNREAD,
            f"{source.pin.source.uri}: the file cannot be understood ({str(error)[:200] or type(error).__name__})",
            file=entry.path,
            remedy="it was published damaged, or is another kind of file under this name",
        ) from error
