"""What the payload costs: throughput with it and a constant table, over throughput without. Called by `__main__` and by
the end-to-end harness of the real engine.

Three engines are up, two of them without the payload: what these differ by, two processes differ by. Only one is loaded
at a time, in short runs of the same requests, forth and back (A B C C B A ...), so that whatever else the machine does
falls on all. Each round of runs gives one ratio.
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
from payloadbench.paired import between, ratio_of, until_resolved
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
"""The longest that rounds are run; the engines' starts come on top."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the requests on one engine."""

    answers: Answers
    processor_seconds: float

    @property
    def seconds(self) -> float:
        """By the clock, per token."""
        return 1.0 / self.answers.throughput

    @property
    def processor(self) -> float:
        """Seconds of processor time per token."""
        return self.processor_seconds / self.answers.tokens


@dataclass(frozen=True, slots=True)
class Round:
    """One run of the same requests on each engine."""

    beside: Run
    without: Run
    copy: Run

    def ratio(self, seconds: Callable[[Run], float]) -> float:
        """Speed with the payload over the mean of both engines without."""
        return between(seconds(self.beside), seconds(self.without), seconds(self.copy))

    @property
    def copies(self) -> float:
        """Speed of the copy over that of the other engine without the payload."""
        return self.without.seconds / self.copy.seconds


def measure(
    python: Path | None = None,
    home: Path | None = None,
    seconds: float = SECONDS,
    seed: int = 1,
    report: Callable[[str], None] = lambda _: None,
    go: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Starts three engines, calls `go`, which may wait for a quiet machine, measures for `seconds` at most, stops them.

    Returns `ratio` (throughput with / without, as `paired.Ratio`), `copies` (that of both without), `processor`
    (`ratio` by processor time, which other programs on the machine hardly touch), `microseconds_per_step`
    (processor time of the payload's own code), `median_microseconds` (the same by the clock), `share` (of the
    processor time of the engine's thread that is the payload's own: 1 - share is the ratio that a quiet machine
    would show, and hardly scatters), `steps`, `identical` (every text the same with and without), `failed`
    requests. Raises RuntimeError where no engine is installed, ServerError where one does not start.
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
            Server(engine, place / "copy", flags, STEADY) as copy,
            Server(engine, place / "with", [*flags, *timed], _variables(place, costs)) as beside,
        ):
            report(f"three engines are up: rounds of {REQUESTS} requests at concurrency {CONCURRENCY}")
            go()
            runs = _runs((beside, without, copy), seconds, seed, report)
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
    engines: tuple[Server, Server, Server], seconds: float, seed: int, report: Callable[[str], None]
) -> list[Round]:
    """Of the engines with the payload, without it and the copy of the latter, until the ratios are known."""
    found: list[Round] = []

    def play(number: int) -> dict[str, float]:
        asked = prompts(REQUESTS, seed + max(0, number))
        order = engines if number % 2 == 0 else engines[::-1]
        runs = {server.port: _run(server, asked) for server in order}
        found.append(one := Round(*(runs[server.port] for server in engines)))
        told = ", ".join(f"{run.answers.throughput:.0f}" for run in (one.without, one.copy, one.beside))
        report(f"round {number + 1}: {told} tokens/s without, by its copy, with")
        return {"throughput": one.ratio(lambda run: run.seconds), "copies": one.copies}

    for number in range(-WARM_UP, 0):
        play(number)
    found.clear()
    until_resolved(play, seconds, time.monotonic)
    return found


def _run(server: Server, asked: Sequence[str]) -> Run:
    before = server.processor_seconds()
    answers = asyncio.run(loop(server.url, asked, CONCURRENCY, MAX_TOKENS))
    return Run(answers, server.processor_seconds() - before)


def _summary(rounds: Sequence[Round], told: dict[str, float]) -> dict[str, Any]:
    runs = [run for each in rounds for run in (each.beside, each.without, each.copy)]
    return {
        "ratio": ratio_of([each.ratio(lambda run: run.seconds) for each in rounds]),
        "copies": ratio_of([each.copies for each in rounds]),
        "processor": ratio_of([each.ratio(lambda run: run.processor) for each in rounds]),
        "microseconds_per_step": round(told["mean"], 1),
        "median_microseconds": round(told["median"], 1),
        "share": round(told["share"], 5),
        "steps": int(told["steps"]),
        "identical": all(each.beside.answers.texts == each.without.answers.texts for each in rounds),
        "failed": sum(run.answers.failed for run in runs),
    }
