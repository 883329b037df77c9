"""A range vector as Prometheus sends it, series by series while its bytes come. Used by `prometheus`.

A whole answer parsed at once takes ten times its size. Here no more than one piece and one series are held as text, so
that what an answer takes is what its reader keeps of it.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

LARGEST_SERIES = 2**20
"""Characters of one series: an hour of samples each second has a tenth."""
LARGEST_ENVELOPE = 2**16
"""Characters before the first series, and after the last one."""
_RESULT = re.compile(r'"result"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_NO_STATUS = "the answer says nothing of success; check that the URL is that of Prometheus"
_DECODER = json.JSONDecoder()


class BadAnswerError(Exception):
    """Prometheus answered something that is not a whole, successful result."""


class TooLargeError(BadAnswerError):
    """The answer is larger than what may be held."""


def entries(pieces: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """Each entry of `data.result`, unread.

    Raises BadAnswerError, also after the last one: only then it is known whether the answer was whole.
    """
    texts = map(codecs.getincrementaldecoder("utf-8")("replace").decode, pieces)
    text = head = ""
    for more in texts:
        text += more
        found = _RESULT.search(text)
        if found is not None:
            head, text = text[: found.end()], text[found.end() :]
            break
        if len(text) > LARGEST_ENVELOPE:
            raise BadAnswerError("the answer is not a range vector; check that the URL is that of Prometheus")
    at = 0
    while head:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if text[at : at + 1] == "]":
            break
        try:
            entry, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            more = next(texts, "")
            if not more or len(text) - at > LARGEST_SERIES or isinstance(error, RecursionError):
                raise BadAnswerError("the answer ends within a series, or has none") from error
            text, at = text[at:] + more, 0
        else:
            yield entry
    check(head + _rest(text[at:], texts))


def _rest(text: str, more: Iterable[str]) -> str:
    parts: list[str] = []
    size = 0
    for part in chain((text,), more):
        size += len(part)
        if size > 2 * LARGEST_ENVELOPE:
            raise TooLargeError("the answer is larger than its series")
        parts.append(part)
    return "".join(parts)


def check(text: str) -> None:
    """Raises BadAnswerError unless `text`, an answer without its series, is of a whole and successful matrix."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadAnswerError("the answer is not JSON; check that the URL is that of Prometheus") from error
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise BadAnswerError(f"the query failed: {_NO_STATUS}")
    if answer.get("warnings") or answer.get("isPartial"):
        raise BadAnswerError("the answer may be partial: it has warnings, or says so")
    data = answer.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise BadAnswerError("the answer has no range vector")


def labels_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """Labels of a series, `__name__` among them. Raises BadAnswerError."""
    try:
        labels = {str(name): str(value) for name, value in entry["metric"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise BadAnswerError("the answer has a malformed series") from error
    if "__name__" not in labels:
        raise BadAnswerError("the answer has a series without a name")
    return labels


def samples_of(entry: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Samples of a series; NaN and infinities stay, for the engine adapter to judge. Raises BadAnswerError."""
    try:
        return tuple((float(moment), float(value)) for moment, value in entry.get("values") or ())
    except (TypeError, ValueError) as error:
        raise BadAnswerError("the answer has a malformed series") from error
