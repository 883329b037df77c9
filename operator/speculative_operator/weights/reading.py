"""Small reads on top of `Source.read`. Used by the inspector."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ijson

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.patience import Limits, steadily
from speculative_operator.weights.source import Entry, Source, WeightsError

_LIMITS = Limits(attempts=3, pause=0.5, longest_wait=20.0)


def whole(source: Source, entry: Entry, most: int) -> bytes:
    """The content of a file of at most `most` bytes. Raises WeightsError for a larger one."""
    if entry.size > most:
        raise WeightsError(
            Reason.PAIR_UNREAD,
            f"{source.pin.source.uri}: the file has {entry.size} bytes, but at most {most} are expected",
            file=entry.path,
        )
    return part(source, entry, 0, entry.size)


def part(source: Source, entry: Entry, start: int, end: int) -> bytes:
    """Bytes `start` to `end` (excluded) of a file, fewer where the file ends before."""
    return b"".join(_steadily(source, entry, start, min(end, entry.size)))


def events(source: Source, entry: Entry) -> Iterator[tuple[str, str, Any]]:
    """Yield the events of a JSON file of any size, as ijson tells them: prefix, kind and value. Closing the iterator
    ends the transfer."""
    yield from ijson.parse(ijson.from_iter(_steadily(source, entry, 0, entry.size)))


def _steadily(source: Source, entry: Entry, start: int, end: int) -> Iterator[bytes]:
    return steadily(source, entry, (start, end), _LIMITS, lambda _, seconds: time.sleep(seconds))


def json_object(source: Source, entry: Entry, most: int) -> Mapping[str, Any]:
    """The content of a file that holds one JSON object. Raises WeightsError for anything else."""
    content = whole(source, entry, most)
    with wrap_parse_errors(source, entry):
        content = json.loads(content)
        if not isinstance(content, dict):
            raise ValueError("no object")
    return content


@contextmanager
def wrap_parse_errors(source: Source, entry: Entry) -> Iterator[None]:
    """Turn errors of parsing the file's content into WeightsError."""
    try:
        yield
    except (ijson.JSONError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise WeightsError(
            Reason.PAIR_UNREAD,
            f"{source.pin.source.uri}: cannot parse the file ({str(error)[:200] or type(error).__name__})",
            file=entry.path,
            remedy="the published file is damaged, or another kind of file has this name",
        ) from error
