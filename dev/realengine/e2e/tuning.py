"""The operator finds, on the real engine, the K that a sweep of fixed K finds best there.

Nothing is known of this engine's costs beforehand: no accelerator is named, and a draft model on a CPU is nearly as
dear as its verifier. What is accepted is fixed (synthetic acceptance), so that the best K lies where nobody starts.

The sweep is over before the operator begins, and a machine shared with others may run at a tenth of its speed in one of
the two. So where what the operator holds looks worse, it meets the sweep's best in a run-off, turn about, and that
decides.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from realengine.e2e import rollouts
from realengine.e2e.retunes import until_counted
from realengine.e2e.stage import StageError
from realengine.e2e.steps import NAME, Play, Traffic, window
from realengine.scene import MAX_NUM_SEQS, Wish
from speculative_operator.api.convert import to_domain
from speculative_operator.engines.registry import engine_for

RATES = (0.9, 0.75, 0.03, 0.02)
"""Two drafts are nearly always right, a third nearly never: K = 2 is best unless drafting is free or very dear."""
WIDTH, TOKENS = 6, 150
ROUNDS, SECONDS = 3, 2.5
RUN_OFF_ROUNDS = 9
START_K = 4
MOST_SECONDS, STEADY_SECONDS = 240.0, 40.0
MOST_GAP_PERCENT = 5.0
AUTO = Wish(
    "draft_model", mode="Auto", max_k=len(RATES), start_k=START_K, rates=RATES,
    speculation={"objective": {"goal": "Throughput"}},
)  # fmt: skip


async def tune(play: Play) -> None:
    """Sweep, then let the operator do it, in the same engine process.

    The operator is paused for the sweep, whose tables are written by hand: what it then knows, it has learnt itself.
    """
    play.report.begin("Synthetic acceptance: the best K, swept and found")
    await rollouts.change(play, AUTO, "a drafter again", synthetic=True)
    spec = to_domain(AUTO.manifest())
    ks = engine_for(spec).knobs(spec).ks
    pod = await play.stage.pod(NAME)
    await play.stage.pause(NAME)
    async with Traffic(await play.client(synthetic=True), WIDTH, TOKENS):
        speeds = await sweep(play, pod, ks)
        await found(play, pod, speeds)


async def sweep(play: Play, pod: dict[str, Any], ks: Sequence[int]) -> dict[int, float]:
    """K -> tokens per second, the median of rounds in which every K has its turn."""
    measured = await _turns(play, pod, "sweep", ks, ROUNDS)
    title = f"Tokens per second at {WIDTH} requests by fixed K"
    play.report.table(title, ("K", "median", "rounds"), _rows(measured))
    return {k: median(speeds) for k, speeds in measured.items()}


async def run_off(play: Play, pod: dict[str, Any], held: Sequence[int], best: int) -> float:
    """Per cent by which the mean of the K held is slower than `best`: turns that are neighbours are compared."""
    await play.stage.pause(NAME)
    measured = await _turns(play, pod, "run-off", sorted({*held, best}), RUN_OFF_ROUNDS)
    await play.stage.resume(NAME)
    play.report.table("Run-off: tokens per second", ("K", "median", "rounds"), _rows(measured))
    return behind(measured, held, best)


def behind(measured: Mapping[int, Sequence[float]], held: Sequence[int], best: int) -> float:
    """Per cent: 1 less the mean, over the K held, of the median ratio to `best` in the same round."""
    ratios = {k: median(one / other for one, other in zip(measured[k], measured[best], strict=True)) for k in set(held)}
    return 100.0 * (1.0 - sum(ratios[k] for k in held) / len(held))


async def _turns(play: Play, pod: dict[str, Any], what: str, ks: Sequence[int], rounds: int) -> dict[int, list[float]]:
    """K -> tokens per second in each of the rounds, in which every K has its turn."""
    measured: dict[int, list[float]] = {k: [] for k in ks}
    version = int((await play.stage.table(NAME))["version"])
    current = -1
    for number in range(rounds):
        # there and back, so that whatever drifts falls on every K alike
        for k in ks if number % 2 else reversed(ks):
            if k != current:
                table = {"version": version, "rows": [[1, MAX_NUM_SEQS, k]]}
                await play.stage.write_table(NAME, json.dumps(table))
                await play.stage.poke(pod["metadata"]["name"], f"{what}-{number}-{k}")
                await until_counted(play, pod, k)
                current = k
            measured[k].append(await _speed(play, pod, k))
    return measured


def _rows(measured: Mapping[int, Sequence[float]]) -> list[list[Any]]:
    return [[k, round(median(speeds)), " ".join(f"{speed:.0f}" for speed in speeds)] for k, speeds in measured.items()]


async def _speed(play: Play, pod: dict[str, Any], k: int) -> float:
    """Tokens per second in one turn. Raises StageError when the engine did not keep to K."""
    started = time.monotonic()
    seen = await window(play.stage, pod, SECONDS)
    if seen.k != k:
        raise StageError(f"the engine drafted {seen.k:.3f} tokens at a time in the sweep's turn of K = {k}")
    return seen.generated / (time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class Moment:
    """One look while the operator decides: seconds since it began, K at this load, tokens per second since the last."""

    at: float
    k: int
    speed: float


async def found(play: Play, pod: dict[str, Any], speeds: Mapping[int, float]) -> None:
    """Hand over to the operator and judge what it holds in the last part of the time it has."""
    best = max(speeds, key=lambda k: speeds[k])
    generation = await play.stage.generation(NAME)
    await play.stage.resume(NAME)
    moments = await _watch(play, pod, speeds)
    last = [one.k for one in moments if one.at >= moments[-1].at - STEADY_SECONDS]
    gap, basis = 100.0 * (1.0 - mean_speed(speeds, last) / speeds[best]), "sweep"
    now = await play.stage.generation(NAME)
    status = (await play.stage.get(NAME))["status"]
    if gap > MOST_GAP_PERCENT:
        play.report.say(f"  the sweep puts it {gap:.1f} % behind K = {best}: run-off")
        gap, basis = await run_off(play, pod, last, best), f"run-off, after {gap:.1f} % in the sweep"
    play.report.figures["best_static_gap_percent"] = round(gap, 2)
    shares = {k: f"{100 * count / len(last):.0f} %" for k, count in sorted(Counter(last).items())}
    held = f"held in the last {STEADY_SECONDS:.0f} of {moments[-1].at:.0f} s: {shares}"
    play.report.check(
        f"the operator holds a K within {MOST_GAP_PERCENT:g} % of the best fixed one",
        gap <= MOST_GAP_PERCENT,
        f"best K = {best}; {held}; gap {gap:.1f} % ({basis})",
    )
    play.report.check("no pod was replaced for it", now == generation, f"generation {generation} before, {now} after")
    rows = [[f"{one.at:.0f}", one.k, f"{one.speed:.0f}"] for one in moments[::5]]
    play.report.table("The operator's K over time", ("second", "K", "tokens per second"), rows)
    told = [[one["time"], one["reason"], one["from"], one["to"], one["message"]] for one in status.get("decisions", [])]
    play.report.table("Decisions of the operator, newest first", ("time", "reason", "from", "to", "message"), told)


async def _watch(play: Play, pod: dict[str, Any], speeds: Mapping[int, float]) -> list[Moment]:
    """Look every second until the operator has held what is good enough for long enough, or its time is over."""
    best = max(speeds, key=lambda k: speeds[k])
    moments: list[Moment] = []
    started = last = time.monotonic()
    before = await play.stage.look(pod)
    while (at := time.monotonic() - started) < MOST_SECONDS:
        await asyncio.sleep(1.0)
        seen, now = await play.stage.look(pod), time.monotonic()
        moments.append(Moment(at, await _k(play), seen.since(before).generated / (now - last)))
        before, last = seen, now
        held = [one.k for one in moments if one.at >= at - STEADY_SECONDS]
        if at > STEADY_SECONDS and len(set(held)) == 1 and within(speeds, held, best):
            break
    return moments


async def _k(play: Play) -> int:
    """K of the table in force at this part's load."""
    rows = (await play.stage.table(NAME))["rows"]
    return int(next((k for first, last, k in rows if first <= WIDTH <= last), rows[-1][2]))


def mean_speed(speeds: Mapping[int, float], held: Sequence[int]) -> float:
    """Tokens per second with the K held, as the sweep measured them."""
    return sum(speeds[k] for k in held) / len(held)


def within(speeds: Mapping[int, float], held: Sequence[int], best: int) -> bool:
    return mean_speed(speeds, held) >= (1.0 - MOST_GAP_PERCENT / 100.0) * speeds[best]
