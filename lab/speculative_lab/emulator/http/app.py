"""Routes that every dialect shares, and the application around them. `server` builds it once per process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, make_asgi_app
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from speculative_lab.emulator import NOTICE, VLLM_VERSION
from speculative_lab.emulator.config import Drain
from speculative_lab.emulator.errors import EngineDeadError
from speculative_lab.emulator.http.completions import Service, complete
from speculative_lab.emulator.http.protocol import ApiError

Handler = Callable[[HttpRequest], Awaitable[Response]]


def application(routes: Sequence[Route]) -> ASGIApp:
    """The ASGI application of one engine."""
    handlers = {ApiError: _api_error, HTTPException: _http_error, EngineDeadError: _engine_dead}
    return Starlette(routes=routes, exception_handlers=handlers)


def openai_routes(service: Service, started: int, owner: str) -> list[Route]:
    """Completions, chat, models and health; `started` (unix time) and `owner` are shown by /v1/models."""
    return [
        Route("/v1/completions", _completions(service, chat=False), methods=["POST"]),
        Route("/v1/chat/completions", _completions(service, chat=True), methods=["POST"]),
        Route("/v1/models", _models(service, started, owner), methods=["GET"]),
        Route("/health", health(service), methods=["GET"]),
    ]


def vllm_routes(service: Service, registry: CollectorRegistry, started: int) -> list[Route]:
    """Routes of vLLM."""
    return [
        *openai_routes(service, started, "vllm"),
        Route("/ping", health(service), methods=["GET", "POST"]),
        Route("/version", _version, methods=["GET"]),
        Route("/metrics", Exposition(registry)),
    ]


class Exposition:
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


def health(service: Service) -> Handler:
    """200 while the engine lives; a SGLang that drains is no longer healthy."""

    async def answer(_: HttpRequest) -> Response:
        draining = not service.accepting and service.server.drain is Drain.SERVES
        return Response(status_code=200 if service.driver.dead is None and not draining else 503)

    return answer


async def _version(_: HttpRequest) -> Response:
    return JSONResponse({"version": VLLM_VERSION, "emulator": NOTICE})


async def _api_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), status_code=error.status)


async def _engine_dead(_: HttpRequest, error: Exception) -> Response:
    return JSONResponse(ApiError(500, str(error), "InternalServerError").body(), status_code=500)


async def _http_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, status_code=error.status_code, headers=error.headers)
