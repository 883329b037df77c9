"""A stand-in for a Gateway: an HTTP proxy that divides requests by the weights of one HTTPRoute. Run by tests inside of
the cluster's network; it knows no hosts, paths, filters or listeners.

It answers with 503 where the route leads nowhere, and never sends a request a second time: what fails, clients see.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from aiohttp import web
from kubernetes import client, config

LOOK_SECONDS = 0.5
"""Seconds between two looks at the route: gateways follow a watch as quickly."""
_HOP = frozenset({"connection", "transfer-encoding", "keep-alive", "content-length", "host"})
"""Headers of one connection, which are not passed on."""
Backends = dict[str, int]
"""Address -> weight."""


class Gateway:
    """The proxy of the HTTPRoute `name` in `namespace`."""

    def __init__(self, namespace: str, name: str) -> None:
        load: Any = config.load_kube_config
        load()
        self._routes, self._services = client.CustomObjectsApi(), client.CoreV1Api()
        self._namespace, self._name = namespace, name
        self._chance = random.Random(1)  # noqa: S311  divides load
        self._backends: Backends = {}

    def read(self) -> Backends:
        """The addresses that the route leads to now."""
        group, version = "gateway.networking.k8s.io", "v1"
        route: Any = self._routes.get_namespaced_custom_object(
            group, version, self._namespace, "httproutes", self._name
        )
        found: Backends = {}
        for one in route["spec"]["rules"][0]["backendRefs"]:
            service: Any = self._services.read_namespaced_service(one["name"], self._namespace)
            found[f"http://{service.spec.cluster_ip}:{one['port']}"] = one.get("weight", 1)
        return found

    async def follow(self) -> None:
        """Look at the route again and again; what cannot be read stays as it was."""
        while True:
            with contextlib.suppress(client.ApiException, OSError, LookupError):
                self._backends = await asyncio.to_thread(self.read)
            await asyncio.sleep(LOOK_SECONDS)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on, and its answer back as it comes."""
        weighed = {one: weight for one, weight in self._backends.items() if weight}
        if not weighed:
            return web.Response(status=503, text="the route leads nowhere")
        (backend,) = self._chance.choices(list(weighed), list(weighed.values()))
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        session: aiohttp.ClientSession = request.app[SESSION]
        try:
            async with session.request(
                request.method, f"{backend}{request.path_qs}", headers=headers, data=await request.read()
            ) as found:
                back = {key: value for key, value in found.headers.items() if key.lower() not in _HOP}
                response = web.StreamResponse(status=found.status, headers=back)
                await response.prepare(request)
                async for piece in found.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response
        except aiohttp.ClientError as error:
            return web.Response(status=502, text=f"{backend}: {type(error).__name__}")


SESSION = web.AppKey("session", aiohttp.ClientSession)


def app(gateway: Gateway) -> web.Application:
    """The proxy as a server."""

    async def life(server: web.Application) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as server[SESSION]:
            following = asyncio.create_task(gateway.follow())
            yield
            following.cancel()

    made = web.Application(client_max_size=2**26)
    made.cleanup_ctx.append(life)
    made.router.add_route("*", "/{path:.*}", gateway.answer)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--route", required=True)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    web.run_app(app(Gateway(given.namespace, given.route)), host="127.0.0.1", port=given.port, print=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
