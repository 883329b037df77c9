"""`/v1/completions` and `/v1/chat/completions`: submit to the driver, wait or stream. Routes are made in `http.app`."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import numpy as np
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from speculative_lab.emulator.acceptance import TENDENCIES, WORKLOADS
from speculative_lab.emulator.config import Drain, EngineConfig, ServerConfig
from speculative_lab.emulator.driver import EngineDriver
from speculative_lab.emulator.http.answers import Chunks, Envelope, logprobs_of, whole_body
from speculative_lab.emulator.http.protocol import ApiError, Generation, generation, output_limit
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
    rng: np.random.Generator
    accepting: bool = True


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
    """One request under way: its answer, and who waits for it."""

    driver: EngineDriver
    answer: Answer
    request: Request
    waiter: Waiter

    async def finished(self, http: HttpRequest) -> FinishReason:
        """Wait for the whole answer, and say how it ended; a client that leaves ends it."""
        watcher = asyncio.create_task(self._abort_on_disconnect(http))
        try:
            while self.waiter.reason is None:
                await self.waiter.more(self.request.target)
        finally:
            watcher.cancel()
        return self.waiter.reason

    async def _abort_on_disconnect(self, http: HttpRequest) -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass
        self.driver.abort(self.request)

    async def events(self, chunks: Chunks) -> AsyncIterator[bytes]:
        """The parts of a streamed answer: one for each engine step that gave this request tokens."""
        waiter, seen = self.waiter, 0
        try:
            yield chunks.opening()
            while waiter.reason is None:
                await waiter.more(seen)
                last, finish = waiter.generated, waiter.reason.value if waiter.reason else None
                yield chunks.text_chunk(self.answer.text(seen, last), finish)
                seen = last
            yield chunks.closing(seen)
        finally:
            self.driver.abort(self.request)


async def complete(service: Service, http: HttpRequest, chat: bool) -> Response:
    """Answer one completion request. Raises ApiError for what the server does not take."""
    asked = generation(await http.body(), chat)
    job = _begin(service, asked)
    model = asked.model or service.server.served_names[0]
    envelope = Envelope(job.request.identity, int(time.time()), model, chat, asked.prompt_tokens)
    if asked.stream:
        return StreamingResponse(job.events(Chunks(envelope, asked.include_usage)), media_type="text/event-stream")
    reason = await job.finished(http)
    generated, right = job.waiter.generated, job.answer
    written = replace(right, corrupt_one_in=service.settings.corrupt_one_in) if job.request.drafts else right
    count = asked.logprobs
    told = logprobs_of(written, right, generated, count, ids=asked.tokens_as_ids) if count else None
    return JSONResponse(whole_body(envelope, written.text(0, generated), generated, reason.value, told))


def _begin(service: Service, asked: Generation) -> Job:
    """Check and submit a request."""
    if not service.accepting and service.server.drain is Drain.REFUSES:
        raise ApiError(500, _SHUT_DOWN)
    if service.server.checks_model and asked.model not in (None, *service.server.served_names):
        raise ApiError(404, f"The model `{asked.model}` does not exist.", "model")
    answer = Answer.to(asked.prompt, service.settings.seed)
    target, reason = output_limit(asked, service.engine.max_model_len), FinishReason.LENGTH
    if not asked.ignore_eos and answer.natural_length < target:
        target, reason = answer.natural_length, FinishReason.STOP
    waiter = Waiter()
    request = Request(
        identity=f"{'chatcmpl' if asked.chat else 'cmpl'}-{uuid.uuid4().hex}",
        prompt_tokens=asked.prompt_tokens,
        target=target,
        reason=reason,
        max_tokens=asked.max_tokens or target,
        arrival=service.driver.now,
        workload=WORKLOADS.index(service.settings.workload),
        tendency=int(service.rng.integers(TENDENCIES)),
        streams=asked.stream,
        listener=waiter,
    )
    service.driver.submit(request)
    return Job(service.driver, answer, request, waiter)
