"""A closed loop of greedy requests against one engine: the same prompts in the same order, whatever the engine.

Called by `measure`. Everything is counted from the answers, nothing from the engine's own metrics.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

WORDS = (
    *("def", "class", "return", "import", "self", "value", "index", "buffer", "stream", "parse", "yield", "lambda"),
    *("for", "while", "raise", "except", "len", "range", "print", "open", "close", "read", "write", "append"),
)


@dataclass(frozen=True, slots=True)
class Answers:
    """What one run of the loop gave: seconds of wall clock, tokens generated, and the texts by request."""

    seconds: float
    tokens: int
    texts: tuple[str, ...]
    failed: int

    @property
    def throughput(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def prompts(count: int, seed: int, words: int = 12) -> list[str]:
    """Made-up code-like prompts, each different, from a linear congruential sequence: the same everywhere."""
    state = seed * 2_654_435_761 % 2**32
    made = []
    for number in range(count):
        chosen = []
        for _ in range(words):
            state = (state * 1_664_525 + 1_013_904_223) % 2**32
            chosen.append(WORDS[(state >> 8) % len(WORDS)])
        made.append(f"# {number}\n" + " ".join(chosen))
    return made


async def loop(
    url: str, asked: Sequence[str], concurrency: int, max_tokens: int, sampled_every: int = 0, *, seeded: bool = True
) -> Answers:
    """Sends each prompt once, `concurrency` at a time, in order. A failed request counts and has an empty text.

    Greedy, but for every `sampled_every`-th request from the first on: those are sampled at a high temperature. Where
    it is `seeded`, chance is the same for the same request of every run.
    """
    texts = [""] * len(asked)
    tokens = [0] * len(asked)
    queue = iter(range(len(asked)))
    timeout, connector = aiohttp.ClientTimeout(total=600), aiohttp.TCPConnector(limit=0)  # it holds back at 100
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def client() -> None:
            for number in queue:
                body = {
                    "model": "tiny", "prompt": asked[number], "max_tokens": max_tokens,
                    "temperature": 1.5 if sampled_every and number % sampled_every == 0 else 0,
                    "seed": number if seeded else None, "ignore_eos": True,
                }  # fmt: skip
                async with session.post(f"{url}/v1/completions", json=body) as answer:
                    if answer.status == 200:
                        told = await answer.json()
                        texts[number] = told["choices"][0]["text"]
                        tokens[number] = told["usage"]["completion_tokens"]

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(concurrency)))
        seconds = time.perf_counter() - began
    return Answers(seconds, sum(tokens), tuple(texts), sum(count == 0 for count in tokens))
