"""What the payload costs: throughput with it and a constant table, over throughput without. Called by `__main__` and by
the end-to-end harness of the real engine.

Two engines are up; only one is loaded at a time, in short runs of the same requests, turn about (A B B A A B B A ...),
so that whatever else the machine does falls on both. Each pair of runs gives one ratio.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from payloadbench.load import Answers, loop, prompts
from payloadbench.paired import ratio_of, until_resolved
from payloadbench.server import PAYLOAD, STEADY, Server, schedule, write_table
from realengine import paths

MAX_K = 4
BOOT = ((1, 12, 4), (13, 13, 3), (14, 14, 2), (15, 15, 1), (16, 16, 0))
"""Every K is prepared; a batch of up to 12 never sees another one than 4, with and without the payload."""
TABLE = ((1, 12, 4), (13, 16, 0))
CONCURRENCY = 8
REQUESTS = 16
MAX_TOKENS = 96
WARM_UP = 2
SECONDS = 600.0
"""The longest that pairs are run; the engines' starts come on top."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the requests on one engine."""

    answers: Answers
    processor_seconds: float


def measure(
    python: Path | None = None,
    home: Path | None = None,
    seconds: float = SECONDS,
    seed: int = 1,
    report: Callable[[str], None] = lambda _: None,
    go: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Starts two engines, calls `go`, which may wait for a quiet machine, measures for `seconds` at most, stops them.

    Returns `ratio` (throughput with / without, as `paired.Ratio`), `processor` (the same of tokens per second of
    processor time, which other programs on the machine hardly touch), `microseconds_per_step` (processor time of the
    payload's own code), `median_microseconds` (the same by the clock), `share` (of the processor time of the engine's
    thread that is the payload's own: 1 - share is the ratio that a quiet machine would show, and hardly scatters),
    `steps`, `identical` (every text the same with and without), `failed` requests. Raises RuntimeError where no engine
    is installed, ServerError where one does not start.
    """
    engine = python or paths.python()
    if engine is None:
        raise RuntimeError(paths.MISSING)
    with tempfile.TemporaryDirectory(prefix="payloadbench-") as temporary:
        place = home or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        flags = schedule(BOOT, MAX_K, paths.models() / "draft")
        costs = place / "costs.json"
        timed = ["--scheduler-cls", "timed_scheduler.scheduler"]
        with (
            Server(engine, place / "without", flags, STEADY) as without,
            Server(engine, place / "with", [*flags, *timed], _variables(place, costs)) as beside,
        ):
            report(f"two engines are up: pairs of {REQUESTS} requests at concurrency {CONCURRENCY}")
            go()
            runs = _runs(without, beside, seconds, seed, report)
        told = json.loads(costs.read_text())
    return _summary(runs, told)


def _variables(place: Path, costs: Path) -> dict[str, str]:
    table = place / "table.json"
    write_table(table, 1, TABLE)
    return {
        **STEADY,
        "PYTHONPATH": f"{PAYLOAD}:{Path(__file__).parent}",
        "SPECULATIVE_TABLE_FILE": str(table),
        "SPECULATIVE_TELEMETRY_PORT": "0",
        "SPECULATIVE_TELEMETRY_HOST": "127.0.0.1",
        "PAYLOADBENCH_FILE": str(costs),
    }


def _runs(
    without: Server, beside: Server, seconds: float, seed: int, report: Callable[[str], None]
) -> list[tuple[Run, Run]]:
    """(without, with) for each pair, until their ratio is known; the order within pairs alternates."""
    found: list[tuple[Run, Run]] = []

    def pair(number: int) -> dict[str, float]:
        asked = prompts(REQUESTS, seed + max(0, number))
        order = (without, beside) if number % 2 == 0 else (beside, without)
        runs = {server.port: _run(server, asked) for server in order}
        found.append((runs[without.port], runs[beside.port]))
        one, other = (run.answers.throughput for run in found[-1])
        report(f"pair {number + 1}: {one:.0f} tokens/s -> {other:.0f} tokens/s")
        return {"throughput": other / one}

    for number in range(-WARM_UP, 0):
        pair(number)
    found.clear()
    until_resolved(pair, seconds, time.monotonic)
    return found


def _run(server: Server, asked: Sequence[str]) -> Run:
    before = server.processor_seconds()
    answers = asyncio.run(loop(server.url, asked, CONCURRENCY, MAX_TOKENS))
    return Run(answers, server.processor_seconds() - before)


def _summary(runs: Sequence[tuple[Run, Run]], told: dict[str, float]) -> dict[str, Any]:
    return {
        "ratio": ratio_of([beside.answers.throughput / without.answers.throughput for without, beside in runs]),
        "processor": ratio_of(
            [_per_processor_second(beside) / _per_processor_second(without) for without, beside in runs]
        ),
        "microseconds_per_step": round(told["mean"], 1),
        "median_microseconds": round(told["median"], 1),
        "share": round(told["share"], 5),
        "steps": int(told["steps"]),
        "identical": all(without.answers.texts == beside.answers.texts for without, beside in runs),
        "failed": sum(run.answers.failed for pair in runs for run in pair),
    }


def _per_processor_second(run: Run) -> float:
    return run.answers.tokens / run.processor_seconds
