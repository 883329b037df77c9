"""TGI's routes: the OpenAI ones, `/info` and metrics; not its own `/generate`. Handed to `server` by `__main__`."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from speculative_lab.emulator import notice
from speculative_lab.emulator.http.app import Handler, health, openai_routes
from speculative_lab.emulator.http.completions import Service
from speculative_lab.emulator.tgi import ENGINE, VERSION


def routes(service: Service, started: int, exposition: Callable[[], str]) -> list[Route]:
    """Every route; `exposition` makes the text of /metrics."""

    async def metrics(_: HttpRequest) -> Response:
        return PlainTextResponse(exposition())

    return [
        *openai_routes(service, started, service.engine.model),
        Route("/info", _info(service), methods=["GET"]),
        Route("/ping", health(service), methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


def _info(service: Service) -> Handler:
    async def answer(_: HttpRequest) -> Response:
        engine = service.engine
        return JSONResponse(
            {
                "model_id": engine.model,
                "max_concurrent_requests": service.server.max_in_flight,
                "max_total_tokens": engine.max_model_len,
                "version": VERSION,
                "emulator": notice(ENGINE),
            }
        )

    return answer
