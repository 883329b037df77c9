"""Engines whose drafter rests while K = 0 lasts, and what they tell of it: for the tests of off in the real engine."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from payloadbench.server import PAYLOAD, Server, free_port, write_table
from realengine import paths, serving
from realengine.load import GREEDY, Answer, Client

BOOT = ((1, 13, 3), (14, 14, 2), (15, 15, 1), (16, 16, 0))
"""Every K that is in force later must be prepared at the start."""
BESIDE = Path(__file__).parent
LATCH = 16
"""Steps at K = 0 after which the drafter rests: few, so that it rests and is asked again many times."""
WITHIN = 600.0
SERIES = re.compile(r"^speculative_payload_(\w+?)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
OFF = re.compile(r'^speculative_payload_off\{part="(\w+)",reason="((?:[^"\\]|\\.)*)"', re.MULTILINE)


@dataclass
class Engine:
    """One that runs with the payload and the worker's part."""

    server: Server
    table: Path
    port: int
    version: int = 1

    def force(self, k: int) -> None:
        self.version += 1
        write_table(self.table, self.version, [[1, 16, k]])

    async def text(self) -> str:
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return await answer.text()

    async def refused(self) -> list[tuple[str, str]]:
        """Parts that have turned themselves off, and why."""
        return OFF.findall(await self.text())

    async def told(self) -> dict[str, float]:
        """Series without labels; no part has turned itself off."""
        text = await self.text()
        assert not OFF.findall(text), text
        return {name: float(value) for name, labels, value in SERIES.findall(text) if not labels}

    async def until(self, name: str, least: float, most: float = math.inf) -> dict[str, float]:
        began = time.monotonic()
        while not least <= (told := await self.told()).get(name, -1.0) <= most:
            assert time.monotonic() - began < WITHIN, (name, told.get(name))
            await asyncio.sleep(0.2)
        return told

    async def ranks(self) -> list[list[Any]]:
        """What each worker tells: steps that ran without the drafter, and why no further ones do."""
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.server.url}/collective_rpc", json={"method": "speculative_rested"}) as answer,
        ):
            found: list[list[Any]] = (await answer.json())["results"]
            return found

    async def generated(self, tokens: int) -> None:
        """Until so many more tokens are there; two ranks that wait for each other are slow where processors are few."""
        least = await self.counted("generation_tokens") + tokens
        async with asyncio.timeout(WITHIN):
            while await self.counted("generation_tokens") < least:  # noqa: ASYNC110  (what is awaited is another process's)
                await asyncio.sleep(0.2)

    async def rest(self, steps: float) -> None:
        """K = 0, until so many more steps have run without the drafter."""
        rested = (await self.told()).get("drafter_rested_steps_total", 0.0)
        self.force(0)
        told = await self.until("drafter_rested_steps_total", rested + steps)
        assert told["drafter_rested_steps_total"] <= told["drafter_off_steps_total"]

    async def counts(self, *names: str) -> list[float]:
        """vLLM's own counters, all from one look."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.server.url}/metrics") as answer:
            text = await answer.text()
        found = [re.findall(rf"^vllm:{name}_total\{{[^}}]*\}} (\S+)$", text, re.MULTILINE) for name in names]
        assert all(found), names
        return [sum(map(float, values)) for values in found]

    async def counted(self, name: str) -> float:
        """One of vLLM's own counters."""
        return (await self.counts(name))[0]

    async def drafts(self) -> list[float]:
        """Accepted and drafted tokens so far."""
        return await self.counts("spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens")

    async def drafts_since(self, before: Sequence[float], more: float) -> list[float]:
        """Accepted and drafted tokens, once so many more were drafted: how long that takes is the machine's."""
        began = time.monotonic()
        while (found := await self.drafts())[1] - before[1] < more:
            assert time.monotonic() - began < WITHIN, (before, found)
            await asyncio.sleep(0.2)
        return found


def share(before: Sequence[float], after: Sequence[float]) -> float:
    """Of the drafts between two looks, how many were accepted."""
    assert after[1] - before[1] > 60
    return (after[0] - before[0]) / (after[1] - before[1])


@contextmanager
def engine(
    python: Path,
    home: Path,
    method: str,
    models: Path,
    scheduler: str = "sync",
    fault: str = "",
    *,
    flags: Sequence[str] = (),
    off: bool = True,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Engine]:
    """On vLLM's V2 runner. `models`: a folder with the speculator, or with the verifier whose own layers draft."""
    table, port = home / "table.json", free_port()
    latch = {"SPECULATIVE_OFF_STEPS": str(LATCH)} if off else {}
    home.mkdir(exist_ok=True)
    write_table(table, 1, [[1, 16, 3]])
    before = [str(BESIDE / "asynchronous")] if scheduler == "async" else [str(BESIDE / "faulty")] if fault else []
    environment = {
        "PYTHONPATH": ":".join([*before, str(PAYLOAD)]), "SPECULATIVE_TABLE_FILE": str(table), **latch,
        "SPECULATIVE_TELEMETRY_PORT": str(port), "SPECULATIVE_TELEMETRY_HOST": "127.0.0.1", "SPECULATIVE_FAULT": fault,
        "VLLM_SERVER_DEV_MODE": "1", **serving.v2(), **(variables or {}),
    }  # fmt: skip
    config: dict[str, object] = {
        "method": method, "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": list(map(list, BOOT)),
    }  # fmt: skip
    if method not in ("mtp", "ngram"):
        config["model"] = str(models / {"draft_model": "draft"}.get(method, method))
    ours = ["--speculative-config", json.dumps(config), "--scheduler-cls", "speculative_scheduler.scheduler"]
    ours += ["--worker-extension-cls", "speculative_worker.Extension", *flags]
    if paths.on_accelerator() and scheduler == "sync":
        ours += ["--no-async-scheduling"]
    with Server(python, home, ours, environment, models / method if method == "mtp" else None) as server:
        yield Engine(server, table, port)


def texts(answers: Iterable[Answer]) -> dict[tuple[str, int], set[str]]:
    """Prompt and length -> all texts that came."""
    found: dict[tuple[str, int], set[str]] = {}
    for done in answers:
        found.setdefault((done.prompt, done.tokens), set()).add(done.text)
    return found


@contextmanager
def plain(python: Path, home: Path, variables: Mapping[str, str] | None = None) -> Iterator[str]:
    """Address of an engine without a drafter."""
    with Server(python, home, [], {**serving.v2(), **(variables or {})}) as server:
        yield server.url


async def said(
    url: str, asked: Iterable[tuple[str, int]], sampling: Mapping[str, float | None] = GREEDY
) -> dict[tuple[str, int], set[str]]:
    """What that engine says to each of these prompts, one at a time."""
    client = Client(url, "tiny", sampling=sampling)
    for prompt, tokens in asked:
        await client.ask(prompt, tokens)
    assert not client.failed
    return texts(client.answers)
