"""The part of the kubelet API that `kubectl logs` needs, on https://ADDRESS:PORT.

Reachable inside the enclosure only, and without authentication.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from .config import NodeConfig
from .container import ContainerRunner

FindRunner = Callable[[str, str, str], ContainerRunner | None]
_CHUNK = 65536
_POLL_SECONDS = 0.2


def tail_offset(path: Path, lines: int) -> int:
    """Where the last `lines` lines of a file begin."""
    text = path.read_bytes()
    if lines <= 0:
        return len(text)
    before, *kept = text.removesuffix(b"\n").rsplit(b"\n", lines)
    return len(before) + 1 if len(kept) == lines else 0


class LogServer:
    """Serves /containerLogs."""

    def __init__(self, config: NodeConfig, find: FindRunner) -> None:
        self._config = config
        self._find = find
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises OSError."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self._config.certificate, self._config.key)
        await web.TCPSite(self._runner, self._config.address, self._config.kubelet_port, ssl_context=tls).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        where = request.match_info
        runner = self._find(where["namespace"], where["pod"], where["container"])
        if runner is None:
            return web.Response(
                status=404, text=f"no container {where['container']} of pod {where['namespace']}/{where['pod']} here\n"
            )
        query = request.query
        previous = query.get("previous", "false").lower() in ("true", "1")
        path = runner.log_of(runner.status.restarts - 1) if previous else runner.log_path
        if not path.exists():
            return web.Response(
                status=400, text=f"container {where['container']} has no {'previous ' if previous else ''}log yet\n"
            )
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        tail = query.get("tailLines")
        offset = tail_offset(path, int(tail)) if tail is not None else 0
        left = int(query.get("limitBytes", 2**62))
        follow = query.get("follow", "false").lower() in ("true", "1") and not previous
        await _copy(path, offset, left, response, lambda: follow and runner.writes(path))
        return response


async def _copy(path: Path, offset: int, left: int, response: web.StreamResponse, more: Callable[[], bool]) -> None:
    """Send a file from an offset on, and what is appended to it while `more` says so."""
    with path.open("rb") as file:
        file.seek(offset)
        while left > 0:
            going_on = more()
            data = file.read(min(_CHUNK, left))
            if data:
                left -= len(data)
                await response.write(data)
            elif going_on:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return
