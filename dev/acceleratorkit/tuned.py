"""The tuner beside one engine: its scrapes go in, its tables come out, while the load climbs and falls.

Called by `program`. Between engine and tuner there is what an operator has there too: the text of both ports, and a
file. Everything is counted by the engine's own counters.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from payloadbench.load import WORDS
from realengine import counters
from realengine.load import Client, Load
from speculative_lab.plant.session import Session
from speculative_operator.cli.subject import subject
from speculative_operator.domain.table import BLOCK_STEPS

BETWEEN = 3.6
"""Seconds between scrapes: the tuner makes a window of 3.5 or more."""
TOKENS = 160


@dataclass(frozen=True, slots=True)
class Phase:
    """One load, and what was generated in the last part of it."""

    width: int
    tokens_per_second: float
    acceptance_length: float
    table: Any = None
    message: str = ""


class Tuner:
    """A session of the tuner that writes each new table to the file of an engine."""

    def __init__(self, spec: dict[str, Any], table: Path, version: int) -> None:
        found = subject(spec)
        self._session = Session(found.engine, found.policy)
        self._table, self._version = table, version
        self.decision: dict[str, Any] = {}

    def decide(self, text: str) -> None:
        """One scrape in, one decision out, and the table file as it says."""
        made = self._session.feed(time.time(), {"engine": text})
        rows = [[one.first, one.last, list(one.ks), one.share] for one in self._session.trials]
        tries = {"steps": BLOCK_STEPS, "rows": rows} if rows else None
        said = {"state": made.state.value, "table": made.table.rows(), "tries": tries, "message": made.message}
        if (said["table"], tries) != (self.decision.get("table"), self.decision.get("tries")):
            self._version += 1
            new = self._table.with_suffix(".new")
            tried = {"try": tries} if tries else {}
            new.write_text(json.dumps({"version": self._version, "rows": said["table"], **tried}))
            new.rename(self._table)
        self.decision = said


async def text(session: aiohttp.ClientSession, ports: Sequence[int]) -> str:
    """What the engine and the plug-in beside it expose."""
    found = []
    for port in ports:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            found.append(await answer.text())
    return "\n".join(found)


async def climb(
    ports: Sequence[int], widths: Sequence[int], seconds: float, counted: float, tuner: Tuner | None = None
) -> list[Phase]:
    """One load after another on one engine, `seconds` each, of which the last `counted` count."""
    client = Client(f"http://127.0.0.1:{ports[0]}", "tiny")
    load = Load(client, [f"# {number}\n{' '.join(WORDS[:12])}" for number in range(64)], TOKENS)
    phases = []
    async with aiohttp.ClientSession() as session:
        for width in widths:
            await load.set_width(width)
            before, since, ends = None, 0.0, time.monotonic() + seconds
            while (now := time.monotonic()) < ends:
                if before is None and now >= ends - counted:
                    before, since = counters.read(await text(session, ports[:1])), time.monotonic()
                if tuner is not None:
                    tuner.decide(await text(session, ports))
                    said = tuner.decision
                    print(width, *(said[key] for key in ("state", "table", "tries", "message")), file=sys.stderr)
                due = ends - counted if before is None else ends
                await asyncio.sleep(min(BETWEEN, max(0.0, due - time.monotonic())))
            assert before is not None
            seen, lasted = counters.read(await text(session, ports[:1])).since(before), time.monotonic() - since
            length = 1.0 + seen.accepted / seen.drafts if seen.drafts else 1.0
            table, message = (tuner.decision["table"], tuner.decision["message"]) if tuner else (None, "")
            phases.append(Phase(width, round(seen.generated / lasted, 1), round(length, 3), table, message))
        await load.stop()
    if client.failed:
        raise RuntimeError(f"{len(client.failed)} requests failed, such as {client.failed[0].error}")
    return phases
