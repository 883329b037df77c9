"""The session by which kopf lists and watches. Made by `informer`.

kopf ends the whole process for one kind that it may not watch, for one answer that it cannot parse and for one error in
a stream. What it survives is a lost connection: it lists and watches that kind again, and leaves the others alone. So
this one reports every failure of a kind as such, after a pause, and remembers which kinds fail.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import kopf

from speculative_operator.shell.errors import parse, shallow
from speculative_operator.shell.resources import CHILDREN, OWNER, POD

log = logging.getLogger(__name__)

PLURALS = frozenset(resource.plural for resource in (OWNER, *CHILDREN, POD))
LONGEST_PAUSE = 30.0
"""seconds between two tries of what keeps failing."""
PASSED_ON = frozenset({401, 429})
"""Answers that kopf handles: it logs in again, or waits."""
_GONE = b'{"type":"ERROR","object":{"code":410}}'
"""The end of a stream after which kopf lists anew."""
_ERROR = b'"type":"ERROR"'


class Watches:
    """Knows which kinds cannot be watched. `changed` is told a plural and whether it fails, when that changes."""

    def __init__(self, changed: Callable[[str, bool], None]) -> None:
        self._changed = changed
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
        if plural not in PLURALS:
            return await handler(request)
        key = plural, f"{'watch' if watch else 'list'} {path}"
        if key in self._failures:
            await asyncio.sleep(min(2.0 ** min(self._failures[key], 16), LONGEST_PAUSE))
        answer = await handler(request)
        if answer.status < 400 and isinstance(answer, _Answer):
            if watch:
                answer.watch(lambda line: self._line(key, line))
            else:
                self._works(key)
        elif answer.status not in PASSED_ON:
            problem = (await answer.read())[:300].decode("utf-8", "replace")
            self._fails(key, f"{answer.status} {problem}")
            raise aiohttp.ClientConnectionError(f"{key[1]}: HTTP {answer.status}")
        return answer

    def _line(self, key: tuple[str, str], line: bytes) -> bytes:
        """A line of a stream in a form that kopf can take."""
        if not line.endswith(b"}"):
            raise aiohttp.ClientPayloadError(f"{key[1]}: an event is not JSON")
        if _ERROR not in line[:32]:
            self._works(key)
            return shallow(line)
        error = _error(line)
        if error.get("code") != 410:
            self._fails(key, str(error.get("message") or error)[:300])
        return _GONE

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
    """An answer whose JSON never nests too deep for kopf, and whose stream, once `watch` was called, is handed out in
    whole lines, each as `told` makes it."""

    async def json(self, **_: Any) -> Any:
        try:
            return parse(await self.read())
        except ValueError as error:
            raise aiohttp.ClientPayloadError(f"{self.url.path}: the answer is not JSON") from error

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


def _error(line: bytes) -> dict[str, Any]:
    try:
        error = json.loads(line)["object"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return error if isinstance(error, dict) else {}
