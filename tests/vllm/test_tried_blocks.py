"""Tried blocks in the real engine: what the table file says may be tried is compared, and no text changes by it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from payloadbench.server import PAYLOAD, Server, free_port, schedule
from realengine.load import Client, Load

pytestmark = pytest.mark.timeout(1800)

BOOT = ((1, 13, 4), (14, 14, 2), (15, 15, 1), (16, 16, 0))
"""Every K that is in force or tried later must be prepared at the start."""
PROMPTS = tuple(f"def {name}(self, value):\n    " for name in ("read", "write", "find", "close", "split", "join"))
TOKENS = 80
WITHIN = 600.0
SERIES = re.compile(r"^speculative_payload_(tried_\w+)_total\{([^}]*)\} (\S+)$", re.MULTILINE)


def put(path: Path, version: int, k: int, tries: Sequence[object]) -> None:
    """A table of one K, and what may be tried beside it."""
    new = path.with_name(f"{path.name}.new")
    data: dict[str, object] = {"version": version, "rows": [[1, 16, k]]}
    if tries:
        data["try"] = {"steps": 8, "rows": tries}
    new.write_text(json.dumps(data))
    new.rename(path)


def tried(text: str) -> dict[tuple[str, int, int, str], float]:
    """(figure, K tried, K in force, side) -> count, of everything the plug-in told."""
    found: dict[tuple[str, int, int, str], float] = {}
    for name, labels, value in SERIES.findall(text):
        told = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        key = (name, int(told["k"]), int(told["against"]), told.get("side", ""))
        found[key] = found.get(key, 0.0) + float(value)
    return found


async def test_what_is_tried_is_compared_and_changes_no_text(
    engine_python: Path, small_models: Path, tmp_path: Path
) -> None:
    table, port = tmp_path / "table.json", free_port()
    put(table, 1, 4, ())
    flags = [*schedule(BOOT, 4, small_models / "draft"), "--scheduler-cls", "speculative_scheduler.scheduler"]
    variables = {
        "PYTHONPATH": str(PAYLOAD),
        "SPECULATIVE_TABLE_FILE": str(table),
        "SPECULATIVE_TELEMETRY_PORT": str(port),
        "SPECULATIVE_TELEMETRY_HOST": "127.0.0.1",
    }
    with Server(engine_python, tmp_path, flags, variables) as server:
        client = Client(server.url, "tiny")
        load = Load(client, PROMPTS, TOKENS)
        await load.set_width(4)
        try:
            put(table, 2, 4, [[1, 16, [2, 0], 0.4]])
            seen: dict[tuple[str, int, int, str], float] = {}
            began = time.monotonic()
            while min(seen.get(("tried_blocks", k, 4, ""), 0.0) for k in (0, 2)) < 4:
                assert time.monotonic() - began < WITHIN, seen
                async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    seen = tried(await answer.text())
        finally:
            await load.stop()
    assert not client.failed
    for k in (0, 2):
        assert seen["tried_steps", k, 4, "tried"] > 0 < seen["tried_steps", k, 4, "beside"]
        assert seen["tried_step_seconds", k, 4, "tried"] > 0
        assert seen["tried_tokens", k, 4, "tried"] >= seen["tried_steps", k, 4, "tried"]
    texts: dict[tuple[str, int], set[str]] = {}
    for done in client.answers:
        texts.setdefault((done.prompt, done.tokens), set()).add(done.text)
    assert len(client.answers) > len(texts), "every request was sent more than once"
    assert {key: len(found) for key, found in texts.items()} == dict.fromkeys(texts, 1)
