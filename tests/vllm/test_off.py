"""Off in the real engine: the drafter rests while K = 0 lasts, no text changes by it, and drafts come back."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from payloadbench.server import PAYLOAD, Server, free_port, write_table
from realengine.load import Client, Load

pytestmark = pytest.mark.timeout(600)

BOOT = ((1, 14, 3), (15, 15, 2), (16, 16, 0))
"""Every K that is in force later must be prepared at the start."""
PROMPTS = tuple(f"def {name}(self, value):\n    " for name in ("read", "write", "find", "close", "split", "join"))
TOKENS = 60
ASYNCHRONOUS, FAULTY = Path(__file__).parent / "asynchronous", Path(__file__).parent / "faulty"
FAULTS = ("rests", "why_not", "sample", "is_tensor", "empty", "latch", "told", "made", "rest", "before_pass", "_run")
"""Parts that fail in turn; the sampler's alone leaves the drafter resting."""
LATCH = 16
"""Steps at K = 0 after which the drafter rests: few, so that it rests and is asked again many times."""
WITHIN = 90.0
SERIES = re.compile(r"^speculative_payload_(\w+?)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


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

    async def told(self) -> dict[str, float]:
        """Series without labels; no part has turned itself off."""
        found = SERIES.findall(await self.text())
        assert not [labels for name, labels, _ in found if name == "off"], found
        return {name: float(value) for name, labels, value in found if not labels}


def flags(method: str, models: Path) -> list[str]:
    config = {
        "method": method, "model": str(models / {"draft_model": "draft"}.get(method, method)),
        "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": list(map(list, BOOT)),
    }  # fmt: skip
    return ["--speculative-config", json.dumps(config)]


@contextmanager
def engine(
    python: Path, home: Path, method: str, models: Path, scheduler: str = "sync", fault: str = ""
) -> Iterator[Engine]:
    home.mkdir(exist_ok=True)
    table, port = home / "table.json", free_port()
    write_table(table, 1, [[1, 16, 3]])
    before = [ASYNCHRONOUS] if scheduler == "async" else [FAULTY] if fault else []
    path = ":".join(map(str, [*before, PAYLOAD]))
    variables = {
        "PYTHONPATH": path, "SPECULATIVE_TABLE_FILE": str(table), "SPECULATIVE_OFF_STEPS": str(LATCH),
        "SPECULATIVE_TELEMETRY_PORT": str(port), "SPECULATIVE_TELEMETRY_HOST": "127.0.0.1", "SPECULATIVE_FAULT": fault,
    }  # fmt: skip
    ours = ["--scheduler-cls", "speculative_scheduler.scheduler"]
    ours += ["--worker-extension-cls", "speculative_worker.Extension"]
    with Server(python, home, [*flags(method, models), *ours], variables) as server:
        yield Engine(server, table, port)


async def until(one: Engine, name: str, least: float, most: float = math.inf) -> dict[str, float]:
    began = time.monotonic()
    while not least <= (told := await one.told()).get(name, -1.0) <= most:
        assert time.monotonic() - began < WITHIN, (name, told.get(name))
        await asyncio.sleep(0.2)
    return told


@pytest.mark.parametrize("scheduler", ["sync", "async"])
@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
async def test_the_drafter_rests_and_comes_back_and_no_text_tells(
    method: str, scheduler: str, engine_python: Path, small_models: Path, tmp_path: Path
) -> None:
    with engine(engine_python, tmp_path / "with", method, small_models, scheduler) as one:
        assert f'scheduler="{scheduler}"' in await one.text()
        client = Client(one.server.url, "tiny")
        load = Load(client, PROMPTS, TOKENS)
        await load.set_width(4)
        try:
            for turn in range(12):
                one.force(0)
                before = (await one.told()).get("drafter_rested_steps_total", 0.0)
                least = before + 40.0
                told = await until(one, "drafter_rested_steps_total", least)
                assert told["drafter_rested_steps_total"] <= told["drafter_off_steps_total"]
                one.force(3 if turn % 2 else 2)
                await until(one, "drafter_off", 0.0, most=0.0)
                await asyncio.sleep(0.5)
        finally:
            await load.stop()
        assert (await one.told())["requests_with_gaps"] == 0
    assert not client.failed
    texts: dict[tuple[str, int], set[str]] = {}
    for done in client.answers:
        texts.setdefault((done.prompt, done.tokens), set()).add(done.text)
    assert len(client.answers) > 2 * len(texts), "every request was sent more than once"
    assert {key: len(found) for key, found in texts.items()} == dict.fromkeys(texts, 1)
    home = tmp_path / "plain"
    home.mkdir()
    with Server(engine_python, home, [], {}) as server:
        plain = Client(server.url, "tiny")
        for prompt, tokens in texts:
            await plain.ask(prompt, tokens)
    assert {(done.prompt, done.tokens): {done.text} for done in plain.answers} == texts


LONG = tuple(" ".join(f"{name}{number} = {number}" for number in range(40)) for name in ("one", "two", "six", "ten"))
"""Prompts of several blocks, which the prefix cache keeps."""


CACHED = tuple(
    "\n".join(
        f"def {name}_{part}(self, {part}):\n    return self.{name}.{part}({number})"
        for number, part in enumerate(
            ("get", "put", "find", "copy", "close", "open", "clear", "items", "keys", "pop", "update", "values")
        )
    )
    for name in ("store", "queue", "table", "cache")
)


async def drafts(one: Engine) -> tuple[float, float]:
    """Accepted and drafted tokens so far."""
    async with aiohttp.ClientSession() as http, http.get(f"{one.server.url}/metrics") as answer:
        text = await answer.text()
    found = dict(re.findall(r"^vllm:spec_decode_num_(\w+)_tokens_total\{[^}]*\} (\S+)$", text, re.MULTILINE))
    return float(found["accepted"]), float(found["draft"])


def share(before: tuple[float, float], after: tuple[float, float]) -> float:
    assert after[1] - before[1] > 60
    return (after[0] - before[0]) / (after[1] - before[1])


@pytest.mark.parametrize("scheduler", ["sync", "async"])
async def test_a_draft_model_catches_up_with_what_it_missed(
    scheduler: str, engine_python: Path, small_models: Path, tmp_path: Path
) -> None:
    """The verifier drafts for itself: every draft is accepted, unless something is missing."""
    models = tmp_path / "models"
    models.mkdir()
    (models / "draft").symlink_to(small_models / "target")
    with engine(engine_python, tmp_path / "with", "draft_model", models, scheduler) as one:
        client = Client(one.server.url, "tiny")
        load = Load(client, LONG[:3], 700)
        await load.set_width(3)
        await asyncio.sleep(1.0)
        before = await drafts(one)
        await asyncio.sleep(4.0)
        never_off = share(before, await drafts(one))  # asynchronous drafts go on beyond the end of a request
        assert never_off > 0.94
        found: list[float] = []
        for turn in range(6):  # requests that ran while off
            one.force(0)
            told = await one.told()
            await until(one, "drafter_rested_steps_total", told.get("drafter_rested_steps_total", 0.0) + 100)
            await until(one, "requests_with_gaps", 1.0)
            before = await drafts(one)
            one.force(3 if turn % 2 else 2)
            await asyncio.sleep(2.0)
            found.append(share(before, await drafts(one)))
        await load.stop()
        assert min(found) > 0.93, found
        assert sum(found) / len(found) > never_off - 0.02, (found, never_off)
        one.force(0)  # and those whose prompts were cached while off
        await until(one, "table_version", one.version)
        for prompt in (LONG[0], *CACHED):
            await client.ask(prompt, 40)
        await until(one, "drafter_off", 1.0)
        one.force(3)
        await client.ask(LONG[0], 40)
        before = await drafts(one)
        for prompt in CACHED:
            await client.ask(prompt, 60)
        assert share(before, await drafts(one)) > never_off - 0.02
        await until(one, "requests_with_gaps", 0.0, most=0.0)
    assert not client.failed


@pytest.mark.parametrize("fault", FAULTS)
async def test_whatever_fails_in_here_serving_goes_on(
    fault: str, engine_python: Path, small_models: Path, tmp_path: Path
) -> None:
    with engine(engine_python, tmp_path / "with", "draft_model", small_models, fault=fault) as one:
        client = Client(one.server.url, "tiny")
        load = Load(client, PROMPTS, TOKENS)
        await load.set_width(4)
        try:
            for k in (0, 3, 0, 2):
                one.force(k)
                await asyncio.sleep(4.0)
        finally:
            await load.stop()
        parts = re.findall(r'^speculative_payload_off\{part="(\w+)",reason="([^"]*)"', await one.text(), re.MULTILINE)
        log = one.server.log.read_text()
    assert len(client.answers) > len(PROMPTS)
    assert not client.failed
    assert all(part == "Off" for part, _ in parts), parts
    assert bool(parts) is (fault != "sample")
    warnings = [line for line in log.splitlines() if "InjectedError" in line]
    assert 1 <= len(warnings) <= 2, warnings
