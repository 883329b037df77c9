"""Changes that need other pods: the old ones end only when the new ones serve, and no request is lost."""

from __future__ import annotations

import time

from realengine.e2e import weights
from realengine.e2e.steps import NAME, Play, Traffic, distinct, ready
from realengine.scene import Wish

_WIDTH, _PAUSE, TOKENS = 2, 1.5, 25
"""Light: an engine that starts takes what it can get, and old engine and clients share the machine with it."""


async def change(play: Play, wish: Wish, what: str, *, synthetic: bool = False) -> None:
    """Replace the object's spec under traffic and wait until only new pods are left; create it where there is none."""
    stage, report = play.stage, play.report
    if not await stage.pods(NAME):
        await stage.apply(wish)
        await ready(stage, 1)
        await weights.check(play, wish.drafts, what)
        return
    old = (await stage.pod(NAME))["metadata"]
    play.note_restarts(await stage.pods(NAME))
    # Wrong text on purpose comes from the new pods only, but the same clients ask both.
    client = await play.client(synthetic=synthetic)
    asked = play.synthetic if synthetic else play.answers
    started, before = time.monotonic(), len(asked)
    async with Traffic(client, _WIDTH, TOKENS, _PAUSE):
        await stage.apply(wish)
        generation = int((await stage.get(NAME))["metadata"]["generation"])
        await ready(stage, generation, without=old["uid"])
    answers = asked[before:]
    failed = [answer for answer in answers if answer.error]
    new = (await stage.pod(NAME))["metadata"]
    seconds = time.monotonic() - started
    report.check(
        f"{what}: other pods, no request failed",
        not failed and old["uid"] != new["uid"],
        f"{len(answers)} requests in {seconds:.0f} s" + "".join(f"; {one.error}" for one in failed[:3]),
    )
    await weights.check(play, wish.drafts, what)


def outputs(play: Play) -> None:
    """Every greedy answer of every method, table and pod is the one that the verifier gives alone."""
    found = distinct(play.answers)
    differing = {key: texts for key, texts in found.items() if len(texts) > 1}
    whole = [answer for answer in play.answers if not answer.error]
    play.report.figures["identical_outputs"] = bool(found) and not differing
    play.report.check(
        "every greedy output is byte-identical to the one without speculation",
        bool(found) and not differing,
        f"{len(whole)} answers, {len(found)} different requests, {len(differing)} with more than one text",
    )
