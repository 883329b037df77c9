"""/healthz, /readyz and /metrics on one port. Run by `operator`; asked by the kubelet and by Prometheus."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from speculative_operator.shell.telemetry import Telemetry

METRICS_SECONDS = 1.0
"""Seconds for which one text of the metrics is given out: frequent scrapes take no time from the loop that keeps the
Lease."""
Check = Callable[[], str]
"""Returns an empty text when all is well, else what is wrong."""


class Endpoints:
    """An HTTP server on `host:port`; `port` 0 takes a free one, readable from `port` after `start`."""

    def __init__(
        self,
        host: str,
        port: int,
        telemetry: Telemetry,
        healthy: Check,
        ready: Check,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self.port = port
        self._telemetry = telemetry
        self._healthy = healthy
        self._ready = ready
        self._clock = clock
        self._rendered: tuple[float, bytes] | None = None
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on the port. Raises OSError when the port is taken."""
        app = web.Application()
        app.router.add_get("/healthz", self._answer(self._healthy))
        app.router.add_get("/readyz", self._answer(self._ready))
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _answer(self, check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(_: web.Request) -> web.Response:
            wrong = check()
            return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)

        return handle

    async def _metrics(self, _: web.Request) -> web.Response:
        now = self._clock()
        if self._rendered is None or now - self._rendered[0] >= METRICS_SECONDS:
            self._rendered = now, self._telemetry.render()
        return web.Response(body=self._rendered[1], headers={"Content-Type": "text/plain; version=0.0.4"})
