"""Closed-loop load on one address: as many requests at once as asked for, each greedy unless
the client says otherwise, each answer kept for comparison.

Every request opens a connection of its own, as clients behind a balancer do: only so does a request go where the
Service points now, and not to a pod that is on its way out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

TIMEOUT_SECONDS = 120.0
GREEDY: Mapping[str, float | None] = {"temperature": 0}


@dataclass(frozen=True, slots=True)
class Answer:
    """One request that ended: what was asked, when (unix seconds), what came; `error` is empty when it came whole."""

    prompt: str
    tokens: int
    text: str
    started: float
    seconds: float
    error: str = ""


@dataclass
class Client:
    """Sends to one engine or Service and remembers everything."""

    url: str
    model: str
    answers: list[Answer] = field(default_factory=list)
    sampling: Mapping[str, float | None] = field(default_factory=lambda: GREEDY)

    async def ask(self, prompt: str, tokens: int) -> Answer:
        """One completion of exactly `tokens` tokens; never raises for what the server does."""
        body = {
            "model": self.model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "seed": 0, **self.sampling,
        }  # fmt: skip
        started, text, error = time.time(), "", ""
        try:
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
            connector = aiohttp.TCPConnector(force_close=True)
            async with (
                aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
                session.post(f"{self.url}/v1/completions", json=body) as response,
            ):
                if response.status == 200:
                    answer = await response.json()
                    text = answer["choices"][0]["text"]
                    got = answer["usage"]["completion_tokens"]
                    error = "" if got == tokens else f"{got} tokens instead of {tokens}"
                else:
                    error = f"HTTP {response.status}: {(await response.text())[:200]}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        done = Answer(prompt, tokens, text, started, time.time() - started, error)
        self.answers.append(done)
        return done

    async def one_by_one(self, prompts: Sequence[str], tokens: int) -> dict[str, str]:
        """Prompt -> text, one request at a time: nothing else in the batch can change rounding."""
        return {prompt: (await self.ask(prompt, tokens)).text for prompt in prompts}

    @property
    def failed(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.error]


class Load:
    """Keeps `width` requests going until stopped; the width may change at any time."""

    def __init__(self, client: Client, prompts: Sequence[str], tokens: int, pause: float = 0.0) -> None:
        """`tokens` is the length of the first prompt's answer, that of the others differs a little from one to the
        next, so that requests do not end together; `pause` the seconds between an answer and the next request."""
        self._client = client
        self._prompts = prompts
        self._tokens = tokens
        self._pause = pause
        self._workers: list[asyncio.Task[None]] = []
        self._leaving: set[int] = set()
        self._count = 0

    async def set_width(self, width: int) -> None:
        """More workers begin at once; those too many end with the answer they wait for."""
        while len(self._workers) < width:
            number = len(self._workers)
            self._leaving.discard(number)
            self._workers.append(asyncio.create_task(self._work(number)))
        surplus = self._workers[width:]
        self._leaving.update(range(width, len(self._workers)))
        if surplus:
            await asyncio.wait(surplus)
            for worker in surplus:
                worker.result()
        del self._workers[width:]

    async def stop(self) -> None:
        """Let every request end."""
        await self.set_width(0)

    async def _work(self, number: int) -> None:
        while number not in self._leaving:
            self._count += 1
            index = self._count % len(self._prompts)
            answer = await self._client.ask(self._prompts[index], self._tokens + 5 * index)
            # a server that refuses at once must not be hammered
            await asyncio.sleep(max(self._pause, 0.2 if answer.error else 0.0))
