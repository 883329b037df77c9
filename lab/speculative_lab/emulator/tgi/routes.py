"""TGI's routes: `/generate` and its stream, the OpenAI ones, `/info`, metrics. Handed to `server` by `__main__`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from speculative_lab.emulator import notice
from speculative_lab.emulator.http.app import Handler, health, openai_routes
from speculative_lab.emulator.http.completions import EventStream, Job, Service, begin
from speculative_lab.emulator.http.protocol import ApiError, Generation, generation, parse_body
from speculative_lab.emulator.tgi import ENGINE, VERSION

_DEFAULT_TOKENS = 100


def routes(service: Service, started: int, exposition: Callable[[], str]) -> list[Route]:
    """Every route; `exposition` makes the text of /metrics."""

    async def metrics(_: HttpRequest) -> Response:
        return PlainTextResponse(exposition())

    return [
        *openai_routes(service, started, service.engine.model),
        Route("/generate", _generate(service), methods=["POST"]),
        Route("/generate_stream", _stream(service), methods=["POST"]),
        Route("/", _compatible(service), methods=["POST"]),
        Route("/info", _info(service), methods=["GET"]),
        Route("/ping", health(service), methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


async def _asked(http: HttpRequest, stream: bool) -> tuple[Generation, dict[str, Any]]:
    """The request in the words of /v1/completions, and its parameters. Raises ApiError for what has no input."""
    body = parse_body(await http.body())
    parameters = body.get("parameters") or {}
    if not isinstance(body.get("inputs"), str):
        raise ApiError(422, "Input validation error: `inputs` must be a text", "validation", "inputs")
    completion = {
        "prompt": body["inputs"],
        "max_tokens": parameters.get("max_new_tokens", _DEFAULT_TOKENS),
        "stop": parameters.get("stop"),
        "temperature": parameters.get("temperature"),
        "stream": stream,
    }
    return generation(completion, http.headers, chat=False), parameters


def _generate(service: Service) -> Handler:
    async def answer(http: HttpRequest) -> Response:
        asked, parameters = await _asked(http, stream=False)
        job = begin(service, asked)
        await job.finished(http.receive)
        text = job.plan.text(0, job.waiter.generated)
        body: dict[str, Any] = {"generated_text": text}
        if parameters.get("details"):
            body["details"] = _details(job)
        return JSONResponse(body)

    return answer


def _stream(service: Service) -> Handler:
    async def answer(http: HttpRequest) -> Response:
        asked, _ = await _asked(http, stream=True)
        job = begin(service, asked)
        return EventStream(job, _Events(job))

    return answer


def _compatible(service: Service) -> Handler:
    whole, streamed = _generate(service), _stream(service)

    async def answer(http: HttpRequest) -> Response:
        if parse_body(await http.body()).get("stream"):
            return await streamed(http)
        single = await whole(http)
        return Response(b"[" + bytes(single.body) + b"]", media_type="application/json")

    return answer


def _details(job: Job) -> dict[str, Any]:
    reason = "length" if job.finish == "length" else "eos_token"
    return {"finish_reason": reason, "generated_tokens": job.waiter.generated, "seed": None}


class _Events:
    """One event for each token; the last one holds the whole text."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sent = 0

    def opening(self) -> bytes:
        return b""

    def piece(self, text: str, generated: int, finish: str | None, stop: str | None, ids: list[int]) -> bytes:
        answer, events = self._job.plan.answer, []
        for place in range(self._sent, generated):
            last = finish is not None and place == generated - 1
            (token,) = answer.tokens(place, place + 1)
            event = {
                "index": place + 1,
                "token": {"id": token, "text": answer.text(place, place + 1), "logprob": 0.0, "special": False},
                "generated_text": self._job.plan.text(0, generated) if last else None,
                "details": _details(self._job) if last else None,
            }
            events.append(f"data:{json.dumps(event)}\n\n")
        self._sent = generated
        return "".join(events).encode()

    def closing(self, generated: int) -> bytes:
        return b""


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
