"""The operator's table reaches the engine, and the engine drafts what the table says for the load it has."""

from __future__ import annotations

from realengine.e2e.steps import Play, Traffic, in_force, next_version, set_schedule, settle, window
from realengine.scene import MAX_NUM_SEQS, Rows

BY_LOAD: Rows = ((1, 2, 4), (3, 6, 2), (7, 12, 1), (13, MAX_NUM_SEQS, 0))
CAP_BY_LOAD: Rows = ((1, 6, 4), (7, 12, 2), (13, MAX_NUM_SEQS, 0))
_SECONDS = 2.5
_SHARE = 0.02
"""Share by which drafts per step may differ from K between the lowest band and the highest: in a step or two, when
several requests end together, the batch falls into the band below."""


def k_at(table: Rows, requests: int) -> int:
    """K of a table for a number of scheduled requests."""
    return next(k for first, last, k in table if first <= requests <= last)


async def follow(play: Play, table: Rows, *, capped: bool = False) -> None:
    """Put a table into the spec and hold the engine to each of its bands.

    The load is as wide as a band's end, so that what ends and begins stays within it; the last band has requests
    waiting, so that its batch is always full. `capped`: K is a bound (n-gram drafts what it finds).
    """
    stage, report = play.stage, play.report
    pod = await stage.pod("tiny")
    await set_schedule(stage, table)
    version = await next_version(stage, table)
    client = await play.client()
    async with Traffic(client, 1) as load:
        moment = await in_force(stage, pod["metadata"]["name"], version)
        report.check("the operator's table reaches the engine", moment > 0, f"version {version}: {table}")
        for _first, last, k in table:
            full = last == MAX_NUM_SEQS
            await load.set_width(last + 6 if full else last)
            await settle(stage, pod, last)
            seen = await window(stage, pod, _SECONDS)
            numbers = (
                f"{seen.draft_tokens:.0f} drafted tokens in {seen.drafts:.0f} drafts = {seen.k:.3f}, "
                f"{seen.generated:.0f} tokens generated"
            )
            if k == 0:
                good = seen.drafts == 0 and seen.draft_tokens == 0 and seen.generated > 0
                report.check(f"K = 0 at {last} requests drafts nothing", good, numbers)
            elif capped:
                good = seen.drafts > 0 and seen.k <= k
                report.check(f"at {last} requests at most K = {k} tokens are drafted at once", good, numbers)
            else:
                tolerance = 0.0 if last == table[0][1] else _SHARE * k
                good = seen.drafts > 0 and abs(seen.k - k) <= tolerance
                report.check(f"at {last} requests every draft has K = {k} tokens", good, numbers)
