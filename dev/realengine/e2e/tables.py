"""The operator's table reaches the engine, and the engine drafts what the table says for the load it has."""

from __future__ import annotations

from typing import Any

from realengine.counters import Counters
from realengine.e2e.steps import NAME, Play, Traffic, next_version, set_schedule, settle, wait_until_active, window
from realengine.scene import MAX_NUM_SEQS, Rows

BY_LOAD: Rows = ((1, 2, 4), (3, 6, 2), (7, 12, 1), (13, MAX_NUM_SEQS, 0))
CAP_BY_LOAD: Rows = ((1, 6, 4), (7, 12, 2), (13, MAX_NUM_SEQS, 0))
_SECONDS, _LOOKS = 1.0, 15
"""Looks of so many seconds at one load. When several requests end together, or clients are slow, a batch falls into the
band below for some steps: then one looks again. An engine with another K than the table's never shows it."""

_ENOUGH_DRAFTS = 5


def k_at(table: Rows, requests: int) -> int:
    """K of a table for a number of requests that decode."""
    return next(k for first, last, k in table if first <= requests <= last)


async def follow(play: Play, table: Rows, *, capped: bool = False) -> None:
    """Put a table into the spec and hold the engine to each of its bands.

    The load is as wide as a band's end, so that what ends and begins stays within it; the last band has requests
    waiting, so that its batch is always full. `capped`: K is a bound (n-gram drafts what it finds).
    """
    stage, report = play.stage, play.report
    pod = await stage.pod(NAME)
    await set_schedule(stage, table)
    version = await next_version(stage, table)
    client = await play.client()
    async with Traffic(client, 1) as load:
        moment = await wait_until_active(stage, pod["metadata"]["name"], version)
        report.check("the operator's table reaches the engine", moment > 0, f"version {version}: {table}")
        for _first, last, k in table:
            await load.set_width(last + 4 if last == MAX_NUM_SEQS else last)
            await settle(stage, pod, last)
            seen = await _look(play, pod, k, capped=capped)
            numbers = (
                f"{seen.draft_tokens:.0f} drafted tokens in {seen.drafts:.0f} drafts = {seen.k:.3f}, "
                f"{seen.generated:.0f} tokens generated"
            )
            if k == 0:
                claim = f"K = 0 at {last} requests drafts nothing"
            elif capped:
                claim = f"at {last} requests at most K = {k} tokens are drafted at once"
            else:
                claim = f"at {last} requests every draft has K = {k} tokens"
            report.check(claim, shows(seen, k, capped=capped), numbers)


def shows(seen: Counters, k: int, *, capped: bool = False) -> bool:
    """Whether an engine counted what K asks for: every draft of K tokens (`capped`: at most K), none at 0."""
    if k == 0:
        return seen.drafts == 0 and seen.draft_tokens == 0 and seen.generated > 0
    return seen.drafts >= _ENOUGH_DRAFTS and (0 < seen.k <= k if capped else seen.k == k)


async def _look(play: Play, pod: dict[str, Any], k: int, *, capped: bool) -> Counters:
    """A window that shows K, or the last of those that did not."""
    for _ in range(_LOOKS):
        seen = await window(play.stage, pod, _SECONDS)
        if shows(seen, k, capped=capped):
            break
    return seen
