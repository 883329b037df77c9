"""The session by which kopf watches: it reads the events itself, within a budget of bytes. Made by `informer`.

kopf keeps the watches going, and sees none of the objects: of its own lists it gets the version alone, because `resync`
lists page by page, and of each event a bookmark, because kopf would parse an event of any size and remember each object
that it ever saw.

kopf ends the whole process for one kind that it may not watch, for one answer that it cannot parse and for one error in
a stream. What it survives is a lost connection: it lists and watches that kind again, and leaves the others alone. So
this one reports every failure of a kind as such, after a pause, and remembers which kinds fail.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import kopf

from speculative_operator.shell.errors import parse
from speculative_operator.shell.resources import CHILDREN, OWNER, POD, Resource
from speculative_operator.shell.sizes import LINE_BYTES, OVERSIZE, size_told

log = logging.getLogger(__name__)

RESOURCES = {resource.plural: resource for resource in (OWNER, *CHILDREN, POD)}
LONGEST_PAUSE = 30.0
"""seconds between two tries of what keeps failing."""
PASSED_ON = frozenset({401, 429})
"""Answers that kopf handles: it logs in again, or waits."""
_GONE = b'{"type":"ERROR","object":{"code":410}}'
"""The end of a stream after which kopf lists anew."""
_ERROR = b'"type":"ERROR"'
_BOOKMARK = b'"type":"BOOKMARK"'
_HEAD = re.compile(rb'\{"type":"(\w+)","object":\{(?:"(?:kind|apiVersion)":"[^"]*",)*"metadata":')
"""What an event begins with, as the API server writes it."""
Told = Callable[[str, dict[str, Any]], None]
"""Is told the type of an event and its object, or an outline of one that is too large to be parsed."""


class Watches:
    """Knows which kinds cannot be watched. `told` hears of each event, `changed` of a plural and whether it fails, when
    that changes, `missed` of each watch that begins anew and each event that cannot be read."""

    def __init__(self, told: Told, changed: Callable[[str, bool], None], missed: Callable[[], None]) -> None:
        self._told = told
        self._changed = changed
        self._missed = missed
        self._failures: dict[tuple[str, str], int] = {}
        """Failures in a row by kind, and by path and verb."""

    @property
    def failing(self) -> frozenset[str]:
        """Plurals of the kinds whose list or watch fails."""
        return frozenset(plural for plural, _ in self._failures)

    def session(self, info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
        """A session with the credentials of `info`, in the form that kopf takes. kopf closes it."""
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers=info.as_http_headers(),
            proxy=info.proxy_url,
            trust_env=False,
            middlewares=(self._ask,),
            response_class=_Answer,
        )
        return kopf.AiohttpSession(server=info.server, aiohttp_session=session)

    async def _ask(self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        path, watch = request.url.path, "watch" in request.url.query
        plural = path.rpartition("/")[2]
        if plural not in RESOURCES:
            return await handler(request)
        key = plural, f"{'watch' if watch else 'list'} {path}"
        if key in self._failures:
            await asyncio.sleep(min(2.0 ** min(self._failures[key], 16), LONGEST_PAUSE))
        answer = await handler(request)
        if answer.status < 400 and isinstance(answer, _Answer):
            if watch:
                answer.watch(lambda line: self._line(key, line))
            else:
                answer.leave_out()
                self._works(key)
                self._missed()
        elif answer.status not in PASSED_ON:
            problem = (await answer.read())[:300].decode("utf-8", "replace")
            self._fails(key, f"{answer.status} {problem}")
            raise aiohttp.ClientConnectionError(f"{key[1]}: HTTP {answer.status}")
        return answer

    def _line(self, key: tuple[str, str], line: bytes) -> bytes:
        """Tell of a line of a stream; returns what kopf is given of it."""
        if not line.endswith(b"}"):
            raise aiohttp.ClientPayloadError(f"{key[1]}: an event is not JSON")
        start = line[:32]
        if _ERROR in start:
            error = _error(line)
            if error.get("code") != 410:
                self._fails(key, str(error.get("message") or error)[:300])
            return _GONE
        self._works(key)
        return line if _BOOKMARK in start else _bookmark(self._event(RESOURCES[key[0]], line))

    def _event(self, resource: Resource, line: bytes) -> dict[str, Any]:
        """Tell of an event; returns its object, empty where it cannot be read."""
        try:
            event, body = _read(resource, line)
            self._told(event, body)
        except Exception:
            log.exception("an event of %s cannot be taken; listing anew", resource.plural)
            self._missed()
            return {}
        return body

    def _fails(self, key: tuple[str, str], problem: str) -> None:
        new = key[0] not in self.failing
        self._failures[key] = self._failures.get(key, 0) + 1
        if new:
            log.warning("cannot %s: %s; listing the kind every minute until it can be watched", key[1], problem)
            self._changed(key[0], True)

    def _works(self, key: tuple[str, str]) -> None:
        if self._failures.pop(key, None) is not None and key[0] not in self.failing:
            log.info("%s can be watched again", key[0])
            self._changed(key[0], False)


class _Answer(aiohttp.ClientResponse):
    """An answer that shows a list without its objects, once `leave_out` was called, and a stream in whole lines, each
    as `told` makes it, once `watch` was."""

    _bare = False

    async def json(self, **_: Any) -> Any:
        try:
            found = parse(await self.read())
            return {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}} if self._bare else found
        except (ValueError, KeyError, TypeError) as error:
            raise aiohttp.ClientPayloadError(f"{self.url.path}: the answer is not JSON") from error

    def leave_out(self) -> None:
        self._bare = True

    def watch(self, told: Callable[[bytes], bytes]) -> None:
        self.content = _Lines(self.content, told)  # type: ignore[assignment]  # kopf uses this method of it alone


class _Lines:
    """The stream of a watch."""

    def __init__(self, content: aiohttp.StreamReader, told: Callable[[bytes], bytes]) -> None:
        self._content = content
        self._told = told

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines; the part of a line that a cut connection leaves is no event."""
        rest = bytearray()
        async for chunk in self._content.iter_chunked(size):
            *lines, tail = (rest + chunk).split(b"\n")
            rest = tail
            for line in lines:
                yield self._told(bytes(line)) + b"\n"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)


def _read(resource: Resource, line: bytes) -> tuple[str, dict[str, Any]]:
    """Type and object of an event; of one with too many bytes the metadata alone are parsed. Raises ValueError,
    KeyError or RecursionError for anything else."""
    if len(line) <= LINE_BYTES:
        event = parse(line)
        return event["type"], {"apiVersion": resource.api_version, "kind": resource.kind, **event["object"]}
    head = _HEAD.match(line)
    if head is None:
        raise ValueError(f"{len(line)} bytes without metadata")
    metadata, _ = json.JSONDecoder().raw_decode(line[head.end() :].decode("utf-8", "replace"))
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    return head[1].decode(), {**body, OVERSIZE: size_told(body, len(line))}


def _bookmark(body: dict[str, Any]) -> bytes:
    version = str((body.get("metadata") or {}).get("resourceVersion") or "")
    metadata = {"resourceVersion": version} if version else {}
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}).encode()


def _error(line: bytes) -> dict[str, Any]:
    try:
        error = json.loads(line)["object"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return error if isinstance(error, dict) else {}
