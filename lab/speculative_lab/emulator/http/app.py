"""The application of one engine: its routes, over one `EngineDriver`. `server` builds it once per process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CollectorRegistry, make_asgi_app
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from speculative_lab.emulator import NOTICE, VLLM_VERSION
from speculative_lab.emulator.config import Drain
from speculative_lab.emulator.dialect import Dialect
from speculative_lab.emulator.http.completions import Service, complete
from speculative_lab.emulator.http.protocol import ApiError

Handler = Callable[[HttpRequest], Awaitable[Response]]


def application(dialect: Dialect, service: Service, registry: CollectorRegistry, started: int) -> ASGIApp:
    """Completions, chat, models, health and metrics; `started` (unix time) is shown by /v1/models."""
    health = _health(service)
    routes = [
        Route("/v1/completions", _completions(service, chat=False), methods=["POST"]),
        Route("/v1/chat/completions", _completions(service, chat=True), methods=["POST"]),
        Route("/v1/models", _models(service, started, dialect.owner), methods=["GET"]),
        *(Route(path, health, methods=["GET", "POST"]) for path in ("/health", *dialect.checks)),
        Route("/version", _version, methods=["GET"]),
    ]
    if service.server.metrics:
        routes.append(Route(dialect.metrics, _Exposition(registry)))
    return Starlette(routes=routes, exception_handlers={ApiError: _api_error})


class _Exposition:
    """prometheus_client's own endpoint; a class, because starlette takes a plain function for a request handler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._app: ASGIApp = make_asgi_app(registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _completions(service: Service, chat: bool) -> Handler:
    async def answer(http: HttpRequest) -> Response:
        return await complete(service, http, chat)

    return answer


def _models(service: Service, started: int, owner: str) -> Handler:
    def entry(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": owner,
            "root": service.engine.model,
            "parent": None,
            "max_model_len": service.engine.max_model_len,
            "permission": [],
        }

    async def answer(_: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [entry(name) for name in service.server.served_names]})

    return answer


def _health(service: Service) -> Handler:
    """200 while the engine lives; a SGLang that drains is no longer healthy."""

    async def answer(_: HttpRequest) -> Response:
        draining = not service.accepting and service.server.drain is Drain.SERVES
        return Response(status_code=503 if draining else 200)

    return answer


async def _version(_: HttpRequest) -> Response:
    return JSONResponse({"version": VLLM_VERSION, "emulator": NOTICE})


async def _api_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), status_code=error.status)
