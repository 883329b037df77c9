"""The commands that compare, on the real engine: `compare` beside an object without a speculator, `verify` and `bench`.

On a CPU the speed says nothing; that figures, tokens and counters come through says much.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from devcluster.prometheus import INSIDE_URL
from realengine.e2e import rollouts, tables
from realengine.e2e.stage import until
from realengine.e2e.steps import NAME, START_SECONDS, Play, Traffic
from realengine.load import Client
from realengine.scene import NAMESPACE, Wish

PLAIN = f"{NAME}-plain"
COMMON_SECONDS = 330.0
"""Of load on both: nothing is decided before four minutes of it."""
COMMAND_SECONDS = 1800.0
LADDER = ("--rates", "1,2", "--seconds", "20", "--repeats", "1", "--prompt-tokens", "48", "--output-tokens", "32")


async def compare(play: Play) -> None:
    """Both objects serve the same load, and the commands tell of it."""
    stage, report = play.stage, play.report
    report.begin("Commands that compare")
    wish = Wish("draft_model", schedule=tables.BY_LOAD)
    await rollouts.change(play, wish, "a draft model, to be compared")
    await stage.apply(Wish("draft_model", name=PLAIN, mode="Disabled"))
    await until(f"{PLAIN} is ready", lambda: _ready(play, PLAIN), START_SECONDS, every=1.0)
    other = Client(await stage.url(PLAIN), "tiny", play.answers)
    async with Traffic(await play.client(), 2, pause=0.2), Traffic(other, 2, pause=0.2):
        await asyncio.sleep(COMMON_SECONDS)
        status, out, err = await _run("compare", PLAIN, NAME, "--since", "5m", "-o", "json", "--prometheus", INSIDE_URL)
        told = json.loads(out) if status in (0, 1, 2) and out.startswith("{") else {}
        known = [one["measure"] for one in told.get("measures", ()) if one["ratio"] is not None]
        report.check(
            "compare has figures of both and a verdict", "TPOT" in known, f"{told.get('verdict')}: {known} {err}"
        )
    status, out, err = await _run("verify", NAME, "--limit", "8", "--tokens", "64")
    report.check("verify finds the same outputs in the pod", status == 0, (out or err).strip().split("\n")[-1])
    status, out, err = await _run("verify", NAME, "--against", PLAIN, "--limit", "8", "--tokens", "64")
    report.check("and beside an object without a speculator", status == 0, (out or err).strip().split("\n")[-1])
    for against in ((), ("--against", PLAIN)):
        status, out, err = await _run("bench", NAME, *LADDER, *against, "--completions", "-o", "json")
        rungs = json.loads(out)["rungs"] if status == 0 else []
        steps = [step for rung in rungs for step in (*rung["plain"], *rung["drafted"])]
        drafted = all(one["k"] is None or one["drafts"] for one in steps) and any(one["k"] for one in steps)
        answered = len(steps) == 4 and all(one["done"] and not one["failed"] for one in steps)
        numbers = [(one["rate"], one["drafts"], one["done"], one["k"], one["acceptance_length"]) for one in steps]
        what = "bench beside it" if against else "bench in the pod"
        report.check(
            f"{what}: all requests answered, drafts on one side only", drafted and answered, f"{numbers} {err}"
        )


async def _ready(play: Play, name: str) -> bool:
    conditions = (await play.stage.get(name)).get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def _run(*words: str) -> tuple[int, str, str]:
    """Status and what `speculative` printed."""
    argv = [str(Path(sys.executable).parent / "speculative"), *words, "-n", NAMESPACE]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)

    done = await asyncio.to_thread(run)
    return done.returncode, done.stdout, done.stderr.strip().replace("\n", "; ")
