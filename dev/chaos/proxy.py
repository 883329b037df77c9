"""A server in the middle of a connection: passes requests on, or does with them what a fault says.

One before the API server and one before Prometheus, both used by the operator alone: nodes, controllers, clients and
the judge reach the real ones. Serves from a thread of its own; everything public is called from another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web
from yarl import URL

OF_ONE_CONNECTION = {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade"}
ADDED = ("User-Agent", "Content-Type", "Accept", "Accept-Encoding")
"""What the client library would say in the name of who asked."""
HOST = "127.0.0.1"

Behaviour = Callable[["Proxy", web.Request], Awaitable[web.StreamResponse]]
Listener = Callable[[str, bool], None]
"""Told the method of each request twice: before it is passed on (False), and when it was answered (True)."""


async def pass_on(proxy: Proxy, request: web.Request) -> web.StreamResponse:
    """What a proxy does as long as no fault says otherwise."""
    return await proxy.forward(request)


class Proxy:
    """Listens on a free port of 127.0.0.1 without TLS, whatever the server behind it speaks."""

    def __init__(self, upstream: str, authority: Path | None = None) -> None:
        self._upstream = upstream.rstrip("/")
        self._tls = ssl.create_default_context(cafile=str(authority)) if authority else None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._site: web.TCPSite | None = None
        self._port = 0
        self.behaviour: Behaviour = pass_on
        self.listener: Listener | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def refuse(self) -> None:
        """Close the port and every connection."""
        self._call(self._close())

    def hang(self) -> None:
        """Take requests and answer nothing; what is being answered stops where it is."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def restore(self) -> None:
        """Pass on again, whatever was before."""
        self.behaviour = pass_on
        self._loop.call_soon_threadsafe(self._flowing.set)
        self._call(self._open())

    # -- in the proxy's own thread

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        self._flowing = asyncio.Event()
        self._flowing.set()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, handler_cancellation=True, shutdown_timeout=0.5
        )
        await self._runner.setup()
        await self._open()

    async def _open(self) -> None:
        if self._site is None:
            self._site = web.TCPSite(self._runner, HOST, self._port, reuse_address=True)
            await self._site.start()
            self._port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        site, self._site = self._site, None
        if site is not None:
            await site.stop()
        server = self._runner.server
        for connection in list(server.connections) if server else ():
            if connection.transport is not None:
                connection.transport.abort()

    async def _end(self) -> None:
        self._flowing.set()
        await self._close()
        await self._runner.cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        await self._flowing.wait()
        try:
            return await self.behaviour(self, request)
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            cut(request)
            return web.Response()

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on, and its answer back piece by piece, as watches need it."""
        async with self.ask(request) as answer:
            response = web.StreamResponse(status=answer.status, headers=_passed_on(answer.headers))
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await self._flowing.wait()
                await response.write(piece)
            await response.write_eof()
            return response

    @contextlib.asynccontextmanager
    async def ask(self, request: web.Request, **headers: str) -> Any:
        """The answer of the server behind to a request, with `headers` in place of the client's."""
        body = await request.read()
        self._tell(request, answered=False)
        asked = {**_passed_on(request.headers), **headers}
        url = URL(f"{self._upstream}{request.raw_path}", encoded=True)
        how: dict[str, Any] = {"headers": asked, "data": body or None, "allow_redirects": False}
        async with self._session.request(request.method, url, skip_auto_headers=ADDED, **how) as found:
            self._tell(request, answered=True)
            yield found

    def _tell(self, request: web.Request, *, answered: bool) -> None:
        if self.listener is not None:
            self.listener(request.method, answered)


def _passed_on(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in OF_ONE_CONNECTION}


def cut(request: web.Request) -> None:
    """End the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
