"""Loads one emulator process and measures the CPU it takes.

Closed loop: every finished request is replaced by a new one, so that the asked numbers of whole and streamed answers
are always in flight. The client runs in this process, the emulator in its own; its CPU share is read from the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from tests.contract.emulator_process import DRAFT, MODEL, Emulator, emulator


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured over the window."""

    cpu_share: float
    """Of one core."""
    stream_events: int
    failures: int
    running: float


class Client:
    """Keeps `whole` + `streamed` requests in flight until cancelled."""

    def __init__(self, url: str, prompt: int, output: int) -> None:
        self.stream_events = self.failures = 0
        self._url, self._prompt, self._output = url, prompt, output
        self._random = random.Random(1)

    async def run(self, whole: int, streamed: int) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
            for index in range(whole + streamed):
                group.create_task(self._loop(session, stream=index >= whole))

    async def _loop(self, session: aiohttp.ClientSession, stream: bool) -> None:
        first = True
        while True:
            length = self._random.randint(8, self._output) if first else self._output
            first = False
            body = {
                "model": MODEL,
                "prompt": [self._random.randrange(1000) for _ in range(self._prompt)],
                "max_tokens": length,
                "ignore_eos": True,
                "stream": stream,
            }
            try:
                async with session.post(f"{self._url}/v1/completions", json=body) as answer:
                    async for line in answer.content:
                        self.stream_events += stream and line.startswith(b"data: {")
                    self.failures += answer.status != 200
            except aiohttp.ClientError:
                self.failures += 1


async def measure(whole: int, streamed: int, seconds: float, warm_up: float) -> Load:
    """What a fresh emulator takes under that load, over `seconds` after `warm_up`."""
    speculation = json.dumps({"method": "draft_model", "model": DRAFT, "num_speculative_tokens": 2})
    with emulator("--max-num-seqs", "512", "--speculative-config", speculation) as engine:
        client = Client(engine.url, prompt=200, output=200)
        load = asyncio.create_task(client.run(whole, streamed))
        await asyncio.sleep(warm_up)
        began, cpu, events = time.monotonic(), _cpu_seconds(engine), client.stream_events
        await asyncio.sleep(seconds)
        share = (_cpu_seconds(engine) - cpu) / (time.monotonic() - began)
        events = client.stream_events - events
        running = await asyncio.to_thread(engine.metric, "num_requests_running")
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await load
    return Load(share, events, client.failures, running)


def _cpu_seconds(engine: Emulator) -> float:
    """User and system time of the process and its threads."""
    fields = Path(f"/proc/{engine.process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
