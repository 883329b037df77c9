"""What the payload costs a step with a constant table. Called by `__main__` and by the end-to-end harness of the real
engine.

One engine is loaded; its scheduler leaves the payload out in every other block of steps (`turns_scheduler`). Two blocks
and the one between them give one ratio.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from payloadbench.load import loop, prompts
from payloadbench.paired import FEWEST, Ratio, Verdict, ratio_of
from payloadbench.server import PAYLOAD, STEADY, Server, schedule, write_table
from realengine import paths

MAX_K = 4
BOOT = ((1, 12, 4), (13, 13, 3), (14, 14, 2), (15, 15, 1), (16, 16, 0))
"""Every K is prepared; a batch of up to 12 never sees another one than 4, with and without the payload."""
TABLE = ((1, 12, 4), (13, 16, 0))
CONCURRENCY = 8
MAX_TOKENS = 192
SECONDS = 300.0
"""The longest that the engine is loaded; its start comes on top."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Speed of a step with the payload over that of one without, and how many requests failed meanwhile."""

    ratio: Ratio
    failed: int


def measure(
    python: Path | None = None,
    seconds: float = SECONDS,
    report: Callable[[str], None] = lambda _: None,
    go: Callable[[], object] = lambda: None,
) -> Cost:
    """Starts the engine, calls `go`, which may wait for a quiet machine, loads it until the ratio has a verdict, for
    `seconds` at most. Raises RuntimeError where no engine is installed, ServerError where it does not start."""
    engine = python or paths.python()
    if engine is None:
        raise RuntimeError(paths.MISSING)
    with tempfile.TemporaryDirectory(prefix="payloadbench-") as temporary:
        place = Path(temporary)
        ratios, table = place / "ratios.json", place / "table.json"
        write_table(table, 1, TABLE)
        variables = {
            **STEADY, "PYTHONPATH": f"{PAYLOAD}:{Path(__file__).parent}", "SPECULATIVE_TABLE_FILE": str(table),
            "SPECULATIVE_TELEMETRY_PORT": "off", "PAYLOADBENCH_FILE": str(ratios),
        }  # fmt: skip
        flags = [*schedule(BOOT, MAX_K, paths.models() / "draft"), "--scheduler-cls", "turns_scheduler.scheduler"]
        with Server(engine, place / "engine", flags, variables) as server:
            report(f"the engine is up: {CONCURRENCY} requests at a time")
            go()
            return _loaded(server, ratios, seconds, report)


def _loaded(server: Server, ratios: Path, seconds: float, report: Callable[[str], None]) -> Cost:
    """Looks at each doubling of the number of ratios: who looks after every one stops where chance is kind."""
    until, failed, look, number = time.monotonic() + seconds, 0, FEWEST, 0
    found = ratio_of([])
    while time.monotonic() < until:
        number += 1
        answers = asyncio.run(loop(server.url, prompts(CONCURRENCY, number), CONCURRENCY, MAX_TOKENS))
        failed += answers.failed
        found = ratio_of(json.loads(ratios.read_text()) if ratios.exists() else [])
        report(f"round {number}: {answers.throughput:.0f} tokens/s, payload {found}")
        if found.pairs >= look:
            look *= 2
            if found.verdict() is not Verdict.UNDECIDED:
                break
    return Cost(found, failed)
