"""What can go wrong with a request to the API server: errors as types, and JSON that somebody nested without end, which
is cut. Raised by `kube`, handled by `reconciler`, `writes`, `leader` and `resync`; `watches` cuts what kopf is given.

The API server stores values that nest 10,000 levels deep wherever a definition allows any field. Parsing, comparing or
copying such a value raises RecursionError, at a depth that differs between releases of Python. Nothing that is real
nests a quarter as deep as DEEPEST; what lies deeper is left out, so that the rest of a list or a watch stays readable,
and `api.convert` refuses the object by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

DEEPEST = 128
"""Most levels of nesting that are read."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN = re.compile(_STRING.pattern + rb"|[\[\]{}]", re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}


@dataclass(eq=False)
class ApiError(Exception):
    """The API server did not do what was asked.

    `status` is the HTTP status, 0 when there was none; `retry_after` seconds, when the server named them.
    """

    verb: str
    what: str
    """Resource and name, such as `deployments default/gemma`."""
    message: str
    status: int = 0
    retry_after: float | None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.what}: {self.message}"


class ConflictError(ApiError):
    """Somebody else changed, created or replaced the object: look again."""


class OutdatedError(ApiError):
    """The request was not sent: while it waited for its turn, its grounds changed, or another replica took over."""


class ForbiddenError(ApiError):
    """The ServiceAccount may not do this; verb and resource are in the message."""


class NamespaceTerminatingError(ApiError):
    """The namespace is going away: nothing to do, and nothing to complain about."""


class NotFoundError(ApiError):
    """The object, its namespace or its kind does not exist."""


class InvalidError(ApiError):
    """The object as sent is wrong: sending it again cannot help."""


class ThrottledError(ApiError):
    """The API server asked the operator to wait."""


class UnauthorizedError(ApiError):
    """The API server does not accept the credentials, or no longer."""


class UnavailableError(ApiError):
    """No answer, or an answer that says nothing about the request (5xx, timeout, connection)."""


class ExpiredListError(ApiError):
    """The continuation of a LIST is too old (410): start over."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredListError,
    413: InvalidError,
    415: InvalidError,
    422: InvalidError,
    429: ThrottledError,
}


def from_response(verb: str, what: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that an answer of the API server stands for. Never raises, whatever the body is."""
    answer = _status_object(body)
    message = str(answer.get("message") or body[:300].decode("utf-8", "replace").strip() or f"HTTP {status}")
    return _kind(status, answer, message)(verb, what, message, status, _seconds(headers.get("Retry-After")))


def _kind(status: int, answer: Mapping[str, Any], message: str) -> type[ApiError]:
    if status == 403 and _terminating(answer, message):
        return NamespaceTerminatingError
    if status == 500 and "typed patch object" in message:
        # Server-side apply answers 500, not 422, when a field is not in the schema.
        return InvalidError
    return _BY_STATUS.get(status, UnavailableError)


def _terminating(answer: Mapping[str, Any], message: str) -> bool:
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, Mapping) and cause.get("reason") == "NamespaceTerminating":
            return True
    return "because it is being terminated" in message


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        answer = parse(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _seconds(value: str | None) -> float | None:
    """Seconds of `Retry-After`, at most 300; None without them, or for the form of a date, which Kubernetes does not
    use."""
    try:
        return max(0.0, min(float(value), 300.0)) if value is not None else None
    except ValueError:
        return None


def parse(data: bytes) -> Any:
    """The value in `data`, with null for each value below DEEPEST levels. Raises ValueError for what is not JSON."""
    return json.loads(shallow(data))


def shallow(data: bytes) -> bytes:
    """`data` itself where it nests at most DEEPEST levels, else with null for each value below them."""
    opened = data.count(b"{") + data.count(b"[")
    if opened <= DEEPEST or _depth(data) <= DEEPEST:
        return data
    parts, depth, start = [], 0, 0
    for token in _TOKEN.finditer(data):
        step = _STEP.get(data[token.start()], 0)
        if step > 0 and depth == DEEPEST:
            parts.append(data[start : token.start()] + b"null")
        elif step < 0 and depth == DEEPEST + 1:
            start = token.end()
        depth += step
    return b"".join((*parts, data[start:] if depth <= DEEPEST else b""))


def _depth(data: bytes) -> int:
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)
