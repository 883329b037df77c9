"""The table file against the real engine: one server, its K changed while it serves."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from payloadbench.server import PAYLOAD, Server, schedule, write_table
from realengine import counters
from realengine.counters import Counters
from realengine.load import Client, Load

pytestmark = pytest.mark.timeout(1800)

BOOT = ((1, 13, 4), (14, 14, 2), (15, 15, 1), (16, 16, 0))
PROMPTS = tuple(f"def {name}(self, value):\n    " for name in ("read", "write", "find", "close", "split", "join"))
TOKENS = 80
SECONDS = 10.0


@dataclass
class Engine:
    """A serving engine and the table file that it reads."""

    server: Server
    table: Path
    version: int = 1

    def write(self, *rows: tuple[int, int, int]) -> None:
        self.version += 1
        write_table(self.table, self.version, rows)

    async def look(self) -> Counters:
        async with aiohttp.ClientSession() as http, http.get(f"{self.server.url}/metrics") as answer:
            return counters.read(await answer.text())

    async def window(self, seconds: float) -> Counters:
        before = await self.look()
        await asyncio.sleep(seconds)
        return (await self.look()).since(before)

    async def until_k(self, k: int) -> float:
        """Seconds until the engine's counters show that K and nothing else."""
        started = time.monotonic()
        while time.monotonic() - started < SECONDS:
            seen = await self.window(0.25)
            if seen.generated > 20 and seen.k == k:
                return time.monotonic() - started
        pytest.fail(f"no K = {k} within {SECONDS:.0f} s: {seen}")

    def warnings(self) -> int:
        return self.server.log.read_text(errors="replace").count("stays in force")


@pytest.fixture(scope="module")
def engine(engine_python: Path, small_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home = tmp_path_factory.mktemp("engine")
    table = home / "table.json"
    write_table(table, 1, BOOT)
    flags = [*schedule(BOOT, 4, small_models / "draft"), "--scheduler-cls", "speculative_scheduler.scheduler"]
    variables = {
        "PYTHONPATH": str(PAYLOAD),
        "SPECULATIVE_TABLE_FILE": str(table),
        "SPECULATIVE_TELEMETRY_PORT": "0",
        "SPECULATIVE_TELEMETRY_HOST": "127.0.0.1",
    }
    with Server(engine_python, home, flags, variables) as server:
        yield Engine(server, table)


async def test_k_follows_the_file_and_the_output_does_not(engine: Engine) -> None:
    client = Client(engine.server.url, "tiny")
    load = Load(client, PROMPTS, TOKENS)
    await load.set_width(4)
    try:
        for k in (0, 1, 4, 2, 0, 4):
            engine.write((1, 16, k))
            assert await engine.until_k(k) < SECONDS
            seen = await engine.window(0.6)
            assert seen.generated > 0
            assert (seen.drafts > 0, seen.k) == (k > 0, k)
    finally:
        await load.stop()
    assert not client.failed
    texts: dict[tuple[str, int], set[str]] = {}
    for answer in client.answers:
        texts.setdefault((answer.prompt, answer.tokens), set()).add(answer.text)
    assert len(client.answers) > len(texts), "every request was sent more than once"
    assert {key: len(found) for key, found in texts.items()} == dict.fromkeys(texts, 1)


async def test_k_is_that_of_the_batch(engine: Engine) -> None:
    engine.write((1, 2, 4), (3, 12, 1), (13, 16, 0))
    client = Client(engine.server.url, "tiny")
    load = Load(client, PROMPTS, TOKENS)
    try:
        # the last has requests waiting, the first fills its band: their batches stay within
        for width, k in ((2, 4), (12, 1), (24, 0)):
            await load.set_width(width)
            await engine.until_k(k)
    finally:
        await load.stop()
    assert not client.failed


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 90, "rows": [[1, 16',
        json.dumps({"version": 91, "rows": [[1, 16, 3]]}),
        json.dumps({"version": 92, "rows": [[1, 4, 1], [6, 16, 4]]}),
        json.dumps({"version": 93, "rows": [[1, 16, True]]}),
        "",
    ],
    ids=["broken", "unprepared-k", "gap", "no-number", "empty"],
)
async def test_a_bad_table_changes_nothing(engine: Engine, text: str) -> None:
    client = Client(engine.server.url, "tiny")
    load = Load(client, PROMPTS, TOKENS)
    await load.set_width(3)
    try:
        engine.write((1, 16, 2))
        await engine.until_k(2)
        before = engine.warnings()
        fresh = engine.table.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(engine.table)
        await asyncio.sleep(1.5)  # the file is looked at five times a second
        assert engine.warnings() == before + 1, "one line for one bad table"
        seen = await engine.window(0.6)
        assert (seen.drafts > 0, seen.k) == (True, 2)
    finally:
        await load.stop()
    assert not client.failed
