"""Thirty changes of K and more on a serving engine: how fast each comes into force, and that nothing breaks."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from demo.figures import spread
from realengine.counters import Counters
from realengine.e2e.stage import StageError, processes
from realengine.e2e.steps import NAME, Play, Traffic, next_version, set_schedule, window
from realengine.e2e.tables import shows
from realengine.scene import MAX_NUM_SEQS, Rows

ORDER = (4, 0, 1, 2, 0, 4, 1, 0, 2, 4, 2, 1, 4, 0, 1, 2, 0, 4, 1, 0, 2, 4, 2, 1, 4, 0, 1, 2, 0, 4, 1, 2)
"""K of the band in use, change by change: every step from one K to another occurs. The first is the one in force."""
WIDTH = 4
MEDIAN_SECONDS, MOST_SECONDS = 3.0, 10.0
_ENDS = (6, 10, 13, MAX_NUM_SEQS)
_POLL_SECONDS = 0.05
_ENOUGH_TOKENS = 8


def schedule(k: int) -> Rows:
    """`k` up to six requests, the other K above: the set of K stays, so that the same engine process can do it."""
    others = [other for other in (4, 2, 1, 0) if other != k]
    starts = (1, *(end + 1 for end in _ENDS[:-1]))
    return tuple(zip(starts, _ENDS, (k, *others), strict=True))


@dataclass(frozen=True, slots=True)
class Retune:
    """One change: K, seconds from the edit until the engine's counters showed it, and what the engine did then."""

    k: int
    seconds: float
    after: Counters

    @property
    def right(self) -> bool:
        """The engine drafts exactly what the table says."""
        return shows(self.after, self.k)


async def retune(play: Play, count: int) -> None:
    """Change K `count` times under load. The object must serve with `schedule(ORDER[0])`'s set of K."""
    stage, report = play.stage, play.report
    pod = await stage.pod(NAME)
    name = pod["metadata"]["name"]
    pids, generation = processes(name), await stage.generation(NAME)
    client = await play.client()
    before = len(play.answers)
    async with Traffic(client, WIDTH):
        await set_schedule(stage, schedule(ORDER[0]))
        await next_version(stage, schedule(ORDER[0]))
        await until_counted(play, pod, ORDER[0])
        done = [await _one(play, pod, ORDER[1:][number % (len(ORDER) - 1)]) for number in range(count)]
    play.retunes += len(done)
    answers = play.answers[before:]
    failed = [answer for answer in answers if answer.error]
    report.check(f"{count} retunes under load, no request failed", not failed, f"{len(answers)} requests")
    wrong = [one for one in done if not one.right]
    report.check(
        "after each, drafted tokens per draft are the new K",
        not wrong,
        f"{len(done) - len(wrong)} of {len(done)}" + "".join(f"; K {one.k}: {one.after}" for one in wrong[:3]),
    )
    same = processes(name) == pids and (await stage.pod(NAME))["metadata"]["uid"] == pod["metadata"]["uid"]
    report.check("engine processes are the same", same, f"{len(pids)} processes, started before the first change")
    now = await stage.generation(NAME)
    report.check("the Deployment was not touched", now == generation, f"generation {generation} before, {now} after")
    _judge_seconds(play, done)


async def _one(play: Play, pod: dict[str, Any], k: int) -> Retune:
    stage, changed = play.stage, time.time()
    await set_schedule(stage, schedule(k))
    seconds = await until_counted(play, pod, k) - changed
    return Retune(k, seconds, await window(stage, pod, 0.4))


async def until_counted(play: Play, pod: dict[str, Any], k: int, seconds: float = 20.0) -> float:
    """Wait for the first steps whose counters show that K; the moment."""
    deadline = time.monotonic() + seconds
    before = await play.stage.look(pod)
    while time.monotonic() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
        seen = await play.stage.look(pod)
        step = seen.since(before)
        if step.generated < _ENOUGH_TOKENS:
            continue
        if step.k == k:
            return time.time()
        before = seen
    raise StageError(f"the engine did not come to K = {k} within {seconds:.0f} s; last {step}")


def _judge_seconds(play: Play, done: list[Retune]) -> None:
    """Hold how long changes took to what they may take."""
    whole = spread([one.seconds for one in done])
    play.report.figures["decision_to_engine_seconds"] = whole
    play.report.check(
        f"decision to changed K: median <= {MEDIAN_SECONDS:g} s, most <= {MOST_SECONDS:g} s",
        bool(done) and (whole["p50"] or 0) <= MEDIAN_SECONDS and (whole["max"] or 0) <= MOST_SECONDS,
        f"median {whole['p50']} s, most {whole['max']} s over {len(done)} changes",
    )
