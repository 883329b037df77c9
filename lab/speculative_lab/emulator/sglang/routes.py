"""SGLang's routes: `/generate` beside the OpenAI ones, health, readiness, metrics. Handed to `server` by `__main__`."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from speculative_lab.emulator import notice
from speculative_lab.emulator.http.app import Exposition, Handler, health, openai_routes
from speculative_lab.emulator.http.completions import EventStream, Job, Service, begin
from speculative_lab.emulator.http.protocol import bad_request, generation, parse_body
from speculative_lab.emulator.sglang import ENGINE, VERSION

_DEFAULT_TOKENS = 128


def routes(service: Service, registry: CollectorRegistry, started: int) -> list[Route]:
    """Every route; /metrics only where metrics were asked for."""
    metrics = [Route("/metrics", Exposition(registry))] if service.server.metrics else []
    return [
        *openai_routes(service, started, "sglang"),
        Route("/generate", _generate(service), methods=["POST", "PUT"]),
        Route("/health_generate", health(service), methods=["GET"]),
        Route("/ready", health(service), methods=["GET"]),
        Route("/ping", health(service), methods=["GET"]),
        Route("/model_info", _model_info(service), methods=["GET"]),
        Route("/get_model_info", _model_info(service), methods=["GET"]),
        Route("/server_info", _server_info(service), methods=["GET"]),
        Route("/set_internal_state", _set_internal_state, methods=["POST", "PUT"]),
        *metrics,
    ]


def _generate(service: Service) -> Handler:
    async def answer(http: HttpRequest) -> Response:
        body = parse_body(await http.body())
        asked = generation(_completion(body), http.headers, chat=False)
        job = begin(service, asked)
        if asked.stream:
            return EventStream(job, _Events(job))
        await job.finished(http.receive)
        text = job.plan.text(0, job.waiter.generated)
        return JSONResponse(_answer(job, text, job.waiter.generated, job.finish))

    return answer


def _completion(body: dict[str, Any]) -> dict[str, Any]:
    """The body of /generate in the words of /v1/completions. Raises ApiError for what has no prompt."""
    prompt = body.get("text", body.get("input_ids"))
    if prompt is None:
        raise bad_request("Either text, input_ids or input_embeds should be provided.", "text")
    sampling = body.get("sampling_params") or {}
    return {
        "prompt": prompt,
        "max_tokens": sampling.get("max_new_tokens", _DEFAULT_TOKENS),
        "min_tokens": sampling.get("min_new_tokens"),
        "ignore_eos": sampling.get("ignore_eos"),
        "stop": sampling.get("stop"),
        "temperature": sampling.get("temperature"),
        "stream": body.get("stream"),
        "user": body.get("user"),
    }


def _answer(job: Job, text: str, generated: int, finish: str | None) -> dict[str, Any]:
    reason = {"type": finish, "length": generated} if finish == "length" else {"type": finish} if finish else None
    meta: dict[str, Any] = {
        "id": job.request.identity,
        "finish_reason": reason,
        "prompt_tokens": job.asked.prompt_tokens,
        "completion_tokens": generated,
        "cached_tokens": 0,
    }
    steps = job.request.steps
    if job.service.engine.speculative is not None and finish and steps:
        meta["spec_verify_ct"] = steps
        meta["spec_accept_length"] = generated / steps
    return {"text": text, "output_ids": job.plan.answer.tokens(0, generated), "meta_info": meta}


class _Events:
    """Each event holds the whole text so far."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._text = ""

    def opening(self) -> bytes:
        return b""

    def piece(self, text: str, generated: int, finish: str | None, stop: str | None, ids: list[int]) -> bytes:
        self._text += text
        return f"data: {json.dumps(_answer(self._job, self._text, generated, finish))}\n\n".encode()

    def closing(self, generated: int) -> bytes:
        return b"data: [DONE]\n\n"


def _model_info(service: Service) -> Handler:
    async def answer(_: HttpRequest) -> Response:
        model = service.engine.model
        return JSONResponse({"model_path": model, "tokenizer_path": model, "is_generation": True})

    return answer


def _server_info(service: Service) -> Handler:
    async def answer(_: HttpRequest) -> Response:
        engine, drafts = service.engine, service.engine.speculative
        return JSONResponse(
            {
                "version": VERSION,
                "emulator": notice(ENGINE),
                "model_path": engine.model,
                "served_model_name": service.server.served_names[0],
                "max_running_requests": engine.max_num_seqs,
                "context_length": engine.max_model_len,
                "speculative_num_steps": drafts.k if drafts else None,
            }
        )

    return answer


async def _set_internal_state(http: HttpRequest) -> Response:
    """What may change at run time; the number of steps is not among it."""
    allowed = {
        "pp_max_micro_batch_size",
        "speculative_accept_threshold_single",
        "speculative_accept_threshold_acc",
        "dspark_force_budget_frac",
        "dspark_clear_info_records",
    }
    for key in parse_body(await http.body()).get("server_args", {}):
        if key not in allowed:
            raise bad_request(f"Updating {key} is not supported.", key)
    return JSONResponse({"updated": True})
