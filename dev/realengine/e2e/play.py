"""The run itself, in order, inside the cluster's network. Started by `__main__`; leaves its report as a file.

One object all the way: it is served, retuned, its pair changed twice, its drafter taken away and given back, tuned.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import traceback
from pathlib import Path

import aiohttp

from realengine.e2e import commands, retunes, rollouts, tables, trouble, tuning, weights
from realengine.e2e.report import Report
from realengine.e2e.stage import Stage
from realengine.e2e.steps import NAME, PROMPTS, Play, Traffic
from realengine.scene import Wish

TOKENS = Traffic.tokens
RETUNES = 31


async def speculate(play: Play) -> None:
    """A draft model: tables, retunes, bad tables."""
    play.report.begin("A draft model, retuned while it serves")
    await rollouts.change(play, Wish("draft_model", schedule=tables.BY_LOAD), "a draft model")
    await weights.anew(play)
    await tables.follow(play, tables.BY_LOAD)
    await retunes.retune(play, RETUNES)
    await trouble.bad_tables(play)


async def other_pairs(play: Play) -> None:
    """The same object with another pair, twice, and with none; every output so far against the last."""
    play.report.begin("n-gram")
    await rollouts.change(play, Wish("ngram", schedule=tables.CAP_BY_LOAD), "pair change draft_model to ngram")
    await tables.follow(play, tables.CAP_BY_LOAD, capped=True)
    play.report.begin("EAGLE-3")
    await rollouts.change(play, Wish("eagle3", schedule=tables.BY_LOAD), "pair change ngram to eagle3")
    await tables.follow(play, tables.BY_LOAD)
    play.report.begin("Without a drafter")
    await rollouts.change(play, Wish("eagle3", mode="Disabled"), "removal")
    client = await play.client()
    for index, prompt in enumerate(PROMPTS):
        for tokens in (TOKENS, rollouts.TOKENS):
            await client.ask(prompt, tokens + 5 * index)
    pod = await play.stage.pod(NAME)
    seen = await play.stage.look(pod)
    play.report.check("nothing is drafted", seen.drafts == 0 and seen.generated > 0, f"{seen.generated:.0f} tokens")
    rollouts.outputs(play)


PARTS = {"retunes": speculate, "pairs": other_pairs, "tuning": tuning.tune, "commands": commands.compare}


async def play_all(options: argparse.Namespace, report: Report) -> None:
    """Every step; an error ends the run but not the report."""
    async with aiohttp.ClientSession() as http:
        play = Play(Stage(os.environ["KUBECONFIG"], http), report)
        try:
            for name, part in PARTS.items():
                if name in options.parts:
                    await part(play)
        except Exception as error:
            traceback.print_exc()
            report.check("the run came to its end", False, f"{type(error).__name__}: {error}")
        play.note_restarts(await play.stage.pods(NAME))
        restarts = sum(play.restarts.values())
        answers = [*play.answers, *play.synthetic]
        failed = sum(bool(answer.error) for answer in answers)
        report.begin("Over the whole run")
        report.check("no request failed", bool(answers) and not failed, f"{failed} of {len(answers)}")
        report.check("no engine was restarted", not restarts, f"{restarts} restarts in {len(play.restarts)} pods")
        await weights.once(play)
        report.figures |= {
            "requests": {"total": len(answers), "failed": failed},
            "retunes": play.retunes,
            "engine_restarts": restarts,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--started", type=float, required=True, help="when the run began, by the monotonic clock")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    report = Report(started=options.started)
    try:
        asyncio.run(play_all(options, report))
    finally:
        report.save(options.out)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
