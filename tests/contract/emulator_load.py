"""Loads one emulator process and measures the CPU it takes: `python tests/contract/emulator_load.py --seconds 30`.

Closed loop: every finished request is replaced by a new one, so that the asked numbers of whole and streamed answers
are always in flight. The client runs in this process, the emulator in its own; its CPU share is read from the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.contract.emulator_process import DRAFT, MODEL, emulator


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured over the window."""

    cpu_share: float
    """Of one core."""
    seconds: float
    answers: int
    stream_events: int
    failures: int
    tokens_per_second: float
    running: float
    rss_mib: float


class Client:
    """Keeps `whole` + `streamed` requests in flight until cancelled."""

    def __init__(self, url: str, prompt: int, output: int) -> None:
        self.answers = self.stream_events = self.failures = 0
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
            self.answers += 1


async def measure(
    whole: int, streamed: int, seconds: float, warm_up: float, prompt: int = 200, output: int = 200
) -> Load:
    """CPU share and throughput of a fresh emulator under that load, over `seconds` after `warm_up`."""
    speculation = json.dumps({"method": "draft_model", "model": DRAFT, "num_speculative_tokens": 2})
    flags = ("--max-num-seqs", "512", "--speculative-config", speculation)
    with emulator(*flags) as running:
        url, process = running.url, running.process
        client = Client(url, prompt, output)
        load = asyncio.create_task(client.run(whole, streamed))
        await asyncio.sleep(warm_up)
        before = await _snapshot(url, process.pid, client)
        await asyncio.sleep(seconds)
        after = await _snapshot(url, process.pid, client)
        rss = _rss_mib(process.pid)
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await load
    span = after["time"] - before["time"]
    return Load(
        cpu_share=round((after["cpu"] - before["cpu"]) / span, 3),
        seconds=round(span, 1),
        answers=int(after["answers"] - before["answers"]),
        stream_events=int(after["events"] - before["events"]),
        failures=client.failures,
        tokens_per_second=round((after["tokens"] - before["tokens"]) / span),
        running=after["running"],
        rss_mib=round(rss, 1),
    )


async def _snapshot(url: str, pid: int, client: Client) -> dict[str, float]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        text = await answer.text()

    def value(name: str) -> float:
        return next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"vllm:{name}{{"))

    return {
        "time": time.monotonic(),
        "cpu": _cpu_seconds(pid),
        "answers": client.answers,
        "events": client.stream_events,
        "tokens": value("generation_tokens_total"),
        "running": value("num_requests_running"),
    }


def _cpu_seconds(pid: int) -> float:
    """User and system time of the process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--whole", type=int, default=256)
    parser.add_argument("--streamed", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warm-up", type=float, default=10.0)
    asked = parser.parse_args()
    print(json.dumps(asdict(asyncio.run(measure(asked.whole, asked.streamed, asked.seconds, asked.warm_up)))))


if __name__ == "__main__":
    main()
