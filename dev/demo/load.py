"""The load generator: sends one replay to several models at once. A process of its own inside the cluster's network.

Open loop: a request goes out at its time whatever became of the others. One in STREAM_EVERY is streamed, so that
time to first token is also measured at the client; the rest ask for the whole answer, which costs the machine less.
Writes one JSON line a request to `--out`: target, at, status, ttft, seconds, tokens, error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import aiohttp

STREAM_EVERY = 16
WORDS = "the load climbs and falls while every answer stays the same and only its speed may change "


def prompt(tokens: int, number: int) -> str:
    """Text of about `tokens` tokens (four characters each), different for every request."""
    text = f"{number:08d} " + WORDS * (tokens * 4 // len(WORDS) + 1)
    return text[: max(4, tokens * 4)]


async def _answer(response: aiohttp.ClientResponse, started: float, stream: bool) -> tuple[float | None, int]:
    """Seconds to the first token (streamed only) and tokens of the answer."""
    if not stream:
        return None, int((await response.json())["usage"]["completion_tokens"])
    first: float | None = None
    tokens = 0
    async for line in response.content:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        first = first if first is not None else time.monotonic() - started
        tokens = int(((json.loads(line[6:]).get("usage")) or {}).get("completion_tokens", tokens))
    return first, tokens


async def send(
    session: aiohttp.ClientSession, target: dict[str, str], arrival: dict[str, Any], stream: bool
) -> dict[str, Any]:
    """One request; never raises: what went wrong is in the record."""
    body: dict[str, Any] = {
        "model": target["model"],
        "prompt": prompt(arrival["prompt"], arrival["number"]),
        "max_tokens": arrival["output"],
        "ignore_eos": True,
        "temperature": 0,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    record: dict[str, Any] = {"target": target["name"], "at": arrival["at"], "number": arrival["number"]}
    started = time.monotonic()
    try:
        async with session.post(f"{target['url']}/v1/completions", json=body) as response:
            record["status"] = response.status
            if response.status == 200:
                record["ttft"], record["tokens"] = await _answer(response, started, stream)
            else:
                record["error"] = (await response.text())[:200]
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
        record["error"] = f"{type(error).__name__}: {error}"
    record["seconds"] = time.monotonic() - started
    record["failed"] = record.get("status") != 200 or record.get("tokens") != arrival["output"]
    return record


async def replay(
    plan: dict[str, Any], out: TextIO, enough: Callable[[], bool], stream_every: int = STREAM_EVERY
) -> None:
    """Send every arrival to every target at its time until it is `enough`, and wait for the last answer."""
    timeout = aiohttp.ClientTimeout(total=plan["timeout"])
    # A connection for each request. A server that ends closes its idle connections, and what a client sends on one of
    # them at that instant is lost whatever the server does (RFC 9112, 9.3.1: clients send again). That is no answer of
    # the server, and answers are what is counted here.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def one(target: dict[str, str], arrival: dict[str, Any]) -> None:
            stream = arrival["number"] % stream_every == 0
            record = await send(session, target, arrival, stream)
            out.write(json.dumps(record) + "\n")
            out.flush()

        started = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for arrival in plan["arrivals"]:
                await asyncio.sleep(max(0.0, started + arrival["at"] - time.monotonic()))
                if enough():
                    break
                for target in plan["targets"]:
                    tasks.create_task(one(target, arrival))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--until", type=Path, help="send nothing more once this file exists")
    options = parser.parse_args()
    plan = json.loads(options.plan.read_text())
    with options.out.open("w") as out:
        asyncio.run(replay(plan, out, lambda: bool(options.until and options.until.exists())))
    return 0


def read_records(path: Path) -> list[dict[str, Any]]:
    """Complete lines of the load generator's output so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


if __name__ == "__main__":
    sys.exit(main())
