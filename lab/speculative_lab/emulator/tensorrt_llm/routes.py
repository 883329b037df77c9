"""TensorRT-LLM's routes: OpenAI's, `/prometheus/metrics`, iterations as JSON. Handed to `server` by `__main__`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from speculative_lab.emulator.http.app import Exposition, Handler, health, openai_routes
from speculative_lab.emulator.http.completions import Service


def routes(service: Service, registry: CollectorRegistry, started: int) -> list[Route]:
    """Every route; the Prometheus one only with `return_perf_metrics`."""
    metrics = [Route("/prometheus/metrics", Exposition(registry))] if service.server.metrics else []
    return [
        *openai_routes(service, started, "tensorrt_llm"),
        Route("/health_generate", health(service), methods=["GET"]),
        Route("/version", _version, methods=["GET"]),
        Route("/metrics", _iterations(service), methods=["GET"]),
        *metrics,
    ]


async def _version(_: HttpRequest) -> Response:
    return JSONResponse({"version": "emulator"})


def _iterations(service: Service) -> Handler:
    """The list of iterations since the last call: emptied by reading, and here always empty."""

    async def answer(_: HttpRequest) -> Response:
        return JSONResponse([])

    return answer
