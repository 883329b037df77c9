"""`/v1/completions` and `/v1/chat/completions`: submit to the driver, wait or stream. Routes are made in `http.app`."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from speculative_lab.emulator.acceptance import TENDENCIES, WORKLOADS
from speculative_lab.emulator.config import Drain, EngineConfig, ServerConfig
from speculative_lab.emulator.driver import EngineDriver, Ledger
from speculative_lab.emulator.http.answers import Chunks, Envelope, Plan, whole
from speculative_lab.emulator.http.protocol import (
    ApiError,
    Generation,
    bad_request,
    generation,
    output_limit,
    parse_body,
)
from speculative_lab.emulator.recorder import Recording, summary
from speculative_lab.emulator.requests import FinishReason, Request
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.texts import Answer

_SHUT_DOWN = "cannot schedule new futures after shutdown"


@dataclass(slots=True)
class Service:
    """What the routes share. `accepting` turns False when the process drains."""

    server: ServerConfig
    engine: EngineConfig
    settings: Settings
    driver: EngineDriver
    metrics: Ledger
    rng: np.random.Generator
    accepting: bool = True
    load: int = 0


class Waiter:
    """Listener of one request: a growing token count that a coroutine can await."""

    def __init__(self) -> None:
        self.generated = 0
        self.reason: FinishReason | None = None
        self._changed: asyncio.Future[None] | None = None

    def progress(self, generated: int) -> None:
        self.generated = generated
        self._notify()

    def finish(self, request: Request, reason: FinishReason) -> None:
        self.generated, self.reason = request.generated, reason
        self._notify()

    def _notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def more(self, seen: int) -> None:
        """Return once more than `seen` tokens exist or the request has ended."""
        while self.reason is None and self.generated <= seen:
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed


@dataclass(frozen=True, slots=True)
class Job:
    """One request under way: what was asked, where the answer ends, and who waits for it."""

    service: Service
    asked: Generation
    plan: Plan
    request: Request
    waiter: Waiter

    @property
    def finish(self) -> str:
        """Why the answer ended: stop, length or abort."""
        return self.plan.finish if self.waiter.reason is not FinishReason.ABORT else "abort"

    async def finished(self, receive: Receive) -> None:
        """Wait for the whole answer; a client that leaves ends it. Raises ApiError when the engine failed."""
        self.service.load += 1
        try:
            await _until_finished(self.service, receive, self.request, self.waiter)
        finally:
            self.service.load -= 1
        _raise_if_failed(self.waiter)


def begin(service: Service, asked: Generation) -> Job:
    """Check and submit a request. Raises ApiError for what the server does not take."""
    if not service.accepting and service.server.drain is Drain.REFUSES:
        raise ApiError(500, _SHUT_DOWN, "InternalServerError")
    _check(service, asked)
    plan = _plan(asked, output_limit(asked, service.engine.max_model_len), service.settings.seed)
    waiter = Waiter()
    job = Job(service, asked, plan, _request(service, asked, plan, waiter), waiter)
    service.driver.submit(job.request)
    return job


async def complete(service: Service, http: HttpRequest, chat: bool) -> Response:
    """Answer one completion request."""
    asked = generation(parse_body(await http.body()), http.headers, chat)
    job = begin(service, asked)
    envelope = Envelope(job.request.identity, int(time.time()), asked.model or service.server.served_names[0], chat)
    if asked.stream:
        return EventStream(job, Chunks(envelope, asked))
    await job.finished(http.receive)
    metrics = _record(service, job.request)
    return JSONResponse(
        whole(envelope, job.plan, asked.prompt_tokens, job.waiter.generated, job.finish, asked.token_ids, metrics)
    )


class Events(Protocol):
    """Server-sent events of one stream, as a dialect words them."""

    def opening(self) -> bytes:
        """Before the first piece; may be empty."""

    def piece(self, text: str, generated: int, finish: str | None, stop: str | None, ids: list[int]) -> bytes:
        """A step's text; `generated` tokens exist by now."""

    def closing(self, generated: int) -> bytes:
        """After the last piece; may be empty."""


class EventStream(Response):
    """A streamed answer: one event for each engine step that gave this request tokens."""

    def __init__(self, job: Job, events: Events) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self._service, self._request, self._waiter = job.service, job.request, job.waiter
        self._asked, self._plan, self._events = job.asked, job.plan, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        watcher = asyncio.create_task(_abort_on_disconnect(self._service, receive, self._request))
        self._service.load += 1
        try:
            await self._pump(send)
        finally:
            self._service.load -= 1
            watcher.cancel()
            self._service.driver.abort(self._request)

    async def _pump(self, send: Send) -> None:
        waiter, plan, seen = self._waiter, self._plan, 0
        await _send(send, self._events.opening())
        while waiter.reason is None:
            await waiter.more(seen)
            last = waiter.generated
            finish, stop = self._ending()
            ids = plan.answer.tokens(seen, last) if self._asked.token_ids else []
            await _send(send, self._events.piece(plan.text(seen, last), last, finish, stop, ids))
            seen = last
        await _send(send, self._events.closing(seen))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _ending(self) -> tuple[str | None, str | None]:
        """finish_reason and stop_reason of the chunk that is sent now."""
        reason = self._waiter.reason
        if reason is None:
            return None, None
        if reason in (FinishReason.ABORT, FinishReason.ERROR):
            return reason.value, None
        return self._plan.finish, self._plan.stop


async def _send(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_finished(service: Service, receive: Receive, request: Request, waiter: Waiter) -> None:
    watcher = asyncio.create_task(_abort_on_disconnect(service, receive, request))
    try:
        while waiter.reason is None:
            await waiter.more(request.target)
    finally:
        watcher.cancel()


async def _abort_on_disconnect(service: Service, receive: Receive, request: Request) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    service.driver.abort(request)


def _raise_if_failed(waiter: Waiter) -> None:
    if waiter.reason is FinishReason.ERROR:
        raise ApiError(
            500, "EngineCore encountered an issue. See stack trace (above) for the root cause.", "InternalServerError"
        )


def _check(service: Service, asked: Generation) -> None:
    """Refusals that depend on the process: unknown model, queue limits."""
    names = service.server.served_names
    if service.server.checks_model and asked.model is not None and asked.model not in names:
        raise ApiError(404, f"The model `{asked.model}` does not exist.", "NotFoundError", "model")
    if service.engine.speculative is not None and asked.unsupported_with_drafts:
        raise bad_request("The min_p and logit_bias sampling parameters are not supported with speculative decoding.")
    _check_queue(service, asked)


def _check_queue(service: Service, asked: Generation) -> None:
    most = service.server.max_in_flight
    if most is not None and service.driver.unfinished >= most:
        service.metrics.reject("overloaded")
        raise ApiError(429, "Model is overloaded", "overloaded")
    requests, tokens = service.server.max_queued_requests, service.server.max_queued_tokens
    if requests is not None and service.driver.waiting >= requests:
        raise _rejected(service, "max_num_queued_reqs", requests)
    if tokens is not None and service.driver.waiting_tokens + asked.prompt_tokens > tokens:
        raise _rejected(service, "max_num_queued_tokens", tokens)


def _rejected(service: Service, name: str, limit: int) -> ApiError:
    service.metrics.reject(name)
    return ApiError(503, f"The queue is full: {name} is {limit}. Try again later.", "ServiceUnavailableError")


def _plan(asked: Generation, limit: int, seed: int) -> Plan:
    """Where the answer ends: at a stop string, by itself, or at the limit."""
    answer = Answer.to(asked.prompt, seed)
    target, finish = limit, "length"
    if not asked.ignore_eos and max(answer.natural_length, asked.min_tokens) < limit:
        target, finish = max(answer.natural_length, asked.min_tokens, 1), "stop"
    hit = answer.stop_at(asked.stops, target) if asked.stops else None
    if hit is None or hit[0] < asked.min_tokens:
        return Plan(answer, target, finish)
    needed, position, stop = hit
    return Plan(answer, needed, "stop", stop, position + len(stop) if asked.include_stop else position)


def _request(service: Service, asked: Generation, plan: Plan, waiter: Waiter) -> Request:
    wanted = asked.workload or service.settings.workload
    prefix = "chatcmpl" if asked.chat else "cmpl"
    return Request(
        identity=f"{prefix}-{uuid.uuid4().hex}",
        prompt_tokens=asked.prompt_tokens,
        target=plan.target,
        reason=FinishReason(plan.finish),
        max_tokens=asked.max_tokens or plan.target,
        arrival=service.driver.now,
        workload=WORKLOADS.index(wanted),
        tendency=int(service.rng.integers(TENDENCIES)),
        streams=asked.stream,
        listener=waiter,
    )


def _record(service: Service, request: Request) -> dict[str, object] | None:
    if request.record is None or not service.server.reports_speculation:
        return None
    return summary(request.record, service.engine.max_k, Recording(service.engine.request_metrics))
