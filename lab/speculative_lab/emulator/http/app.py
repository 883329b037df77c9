"""Routes that every dialect shares, and the application around them. `server` builds it once per process."""

from __future__ import annotations

import hmac
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
from speculative_lab.emulator.http.protocol import ApiError, bad_request, parse_body
from speculative_lab.emulator.texts import count_tokens, tokenize

GUARDED = ("/v1", "/v2", "/inference", "/cohere")
"""Paths that --api-key covers; everything else is open, as in vLLM."""

Handler = Callable[[HttpRequest], Awaitable[Response]]


def application(service: Service, routes: Sequence[Route], guarded: tuple[str, ...]) -> ASGIApp:
    """The ASGI application of one engine. `guarded` are beginnings of paths that need an API key where keys are set."""
    app = Starlette(
        routes=routes,
        exception_handlers={ApiError: _api_error, HTTPException: _http_error, EngineDeadError: _engine_dead},
    )
    return ApiKeys(app, service.server.api_keys, guarded) if service.server.api_keys else app


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
        Route("/load", _load(service), methods=["GET"]),
        Route("/tokenize", _tokenize(service), methods=["POST"]),
        Route("/metrics", Exposition(registry)),
    ]


class ApiKeys:
    """Bearer tokens on the guarded paths."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...], guarded: tuple[str, ...]) -> None:
        self._app, self._guarded, self._keys = app, guarded, tuple(key.encode() for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] == "http" and scope["path"].startswith(self._guarded) and scope["method"] != "OPTIONS"
        if guarded and not self._allowed(dict(scope["headers"]).get(b"authorization", b"")):
            await JSONResponse({"error": "Unauthorized"}, status_code=401)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allowed(self, header: bytes) -> bool:
        scheme, _, token = header.partition(b" ")
        return scheme.lower() == b"bearer" and any(hmac.compare_digest(token, key) for key in self._keys)


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


def _load(service: Service) -> Handler:
    async def answer(_: HttpRequest) -> Response:
        return JSONResponse({"server_load": service.load if service.server.track_load else 0})

    return answer


def _tokenize(service: Service) -> Handler:
    async def answer(http: HttpRequest) -> Response:
        body = parse_body(await http.body())
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            raise bad_request("prompt must be a text", "prompt")
        return JSONResponse(
            {
                "count": count_tokens(prompt),
                "max_model_len": service.engine.max_model_len,
                "tokens": tokenize(prompt),
                "token_strs": None,
            }
        )

    return answer


async def _api_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), status_code=error.status)


async def _engine_dead(_: HttpRequest, error: Exception) -> Response:
    return JSONResponse(ApiError(500, str(error), "InternalServerError").body(), status_code=500)


async def _http_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, status_code=error.status_code, headers=error.headers)
