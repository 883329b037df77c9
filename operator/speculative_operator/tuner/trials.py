"""Chooses trials: K that the engine tries beside the active K, at which loads, for which share of its blocks.

Called by decide(). A trial costs the speed that its K loses, and is worth the improvement from knowing its speed:
with a gain d over the active K, believed with standard deviation s, `s phi(d/s) + d Phi(d/s)`. The engine itself lets
the share fall as blocks are compared, so that exploring ends without another write.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import Actuator, KTable, Trial
from speculative_operator.tuner.grid import nearest
from speculative_operator.tuner.outlook import Outlook, incumbent_of
from speculative_operator.tuner.prior import Array
from speculative_operator.tuner.targets import Targets, limits

MOST_SHARE = 0.15
LEAST_SHARE = 0.004
ASKING_SHARE = 0.03
"""Share where the active K is 0, so that trials show when drafts would be accepted again."""
RESTING_SHARE = 0.003
"""The most where the speculator is skipped: before each block it must catch up with all requests, and the engine takes
that time from the share too. So trials are the rarer the more requests there are: one in 15,000 steps at 60 of them."""
SHARE_OF_WORTH = 20.0
"""Share of the blocks per unit of expected improvement (log speed), within the limits above."""
MOST_COST = 0.003
"""Largest expected log speed that trials cost at first, before the share falls."""
LEAST_WORTH = 0.0002
"""Expected improvement below which a K is not tried."""
WORST = -1.0
"""Expected log speed against the active K below which a K is not tried, whatever knowing is worth."""
MOST_KS = 3
BASELINE_BLOCKS = 16.0
"""Blocks that compare K = 0 near a load, below which every trial there has K = 0 too, so that they never run dry."""
LEAST_BASELINE = 0.001
"""Least share of a trial of K = 0: pods without a speculator are never so slow that it costs more than `MOST_COST`."""
MISSING_WORTH = 0.003
"""Expected improvement by a K without a trial, at a present load, from which the table is written again."""


def may_try(policy: Policy, windows: Mapping[str, PodWindow]) -> bool:
    """True where the engine can run trials: in every busy pod a plug-in re-reads its table and reports its steps."""
    busy = [window for window in windows.values() if window.decode_request_steps > 0]
    return (
        policy.mode is Mode.AUTO
        and policy.trials
        and policy.knobs.actuator is Actuator.LIVE
        and all(window.cells and window.live is not False for window in busy)
    )


def worth_trying(view: Outlook, table: KTable, targets: Targets | None = None) -> tuple[Trial, ...]:
    """Trials to run while `table` is active, for every load; the engine uses those of the loads that occur."""
    incumbent = incumbent_of(view, table)
    worth, gain = _worth(view, incumbent, targets), view.against(incumbent).mean
    rows = [
        _row(view, table, low, high, worth, gain)
        for first, last in _ranges(view.policy.knobs.max_batch)
        for low, high in _pieces(table, first, last)
    ]
    return tuple(_rare(row, view.policy, table) for row in rows if row is not None)


def _rare(row: Trial, policy: Policy, table: KTable) -> Trial:
    """`row` with K ascending, and with a smaller share where the speculator is skipped at its loads."""
    skipped = table.k_at(row.first) == 0 and policy.skips
    return replace(row, ks=tuple(sorted(row.ks)), share=min(row.share, RESTING_SHARE) if skipped else row.share)


def _row(view: Outlook, table: KTable, first: int, last: int, worth: Array, gain: Array) -> Trial | None:
    """The trial for loads `first` to `last`, weighted by the time spent at each load, K in the order of their worth;
    None where no K is worth one and the active K drafts."""
    rows = np.flatnonzero((view.points >= first) & (view.points <= last))
    drafts = table.k_at(first) > 0
    asking = None if drafts else _asking(view, first, last)
    if not rows.size:
        return Trial(first, last, (0,), LEAST_BASELINE) if drafts and view.baseline else asking
    time = np.array(view.traffic.load)[rows] if len(view.traffic.load) == len(view.points) else np.zeros(len(rows))
    share = (time + 1e-3) / (time + 1e-3).sum()
    gained, lost = share @ worth[rows], share @ np.maximum(-gain, 0.0)[rows]
    best = [int(column) for column in np.argsort(-gained)[:MOST_KS] if gained[column] >= LEAST_WORTH]
    taken = LEAST_SHARE
    if best:
        cost = max(float(np.mean(lost[best])), 1e-9)
        taken = max(min(SHARE_OF_WORTH * float(gained[best[0]]), MOST_COST / cost, MOST_SHARE), LEAST_SHARE)
    row = Trial(first, last, tuple(view.ks[column] for column in best), round(taken, 3))
    if drafts and view.baseline and 0 not in row.ks:
        known = view.blocks_without(float(view.points[rows[np.argmax(share)]]))
        return _with_baseline(row, float(lost[0]), known)
    if asking is not None and not {*row.ks} & {*asking.ks}:
        return replace(row, ks=(*asking.ks, *row.ks[: MOST_KS - 1])) if best else asking
    return row if best else None


def _with_baseline(row: Trial, lost: float, known: float) -> Trial:
    """`row` with K = 0, which loses log speed `lost`; without it where it would slow the other trials down and `known`
    blocks, which are enough, have compared it."""
    affordable = min(1 + len(row.ks), MOST_KS) * MOST_COST / max(lost, 1e-9)
    if row.ks and affordable < row.share and known >= BASELINE_BLOCKS:
        return row
    wanted = row.share if row.ks else ASKING_SHARE
    return replace(row, ks=(0, *row.ks[: MOST_KS - 1]), share=round(max(min(wanted, affordable), LEAST_BASELINE), 3))


def _asking(view: Outlook, first: int, last: int) -> Trial | None:
    """The least K where nothing is drafted: nothing else tells whether drafts would be accepted again."""
    return next((Trial(first, last, (k,), ASKING_SHARE) for k in view.ks if k > 0), None)


def _ranges(max_batch: int) -> list[tuple[int, int]]:
    """(first, last) loads of rows: 1, 2..7, 8..31 and so on. Rows are wide, since a block whose load leaves its row is
    lost."""
    firsts = [1, *(first for first in (2 * 4**n for n in range(10)) if first <= max_batch)]
    return list(zip(firsts, [*(first - 1 for first in firsts[1:]), max_batch], strict=True))


def missing(
    view: Outlook, table: KTable, trials: Collection[Trial], loads: Collection[float], targets: Targets | None = None
) -> float:
    """Largest expected improvement, at the present loads, by a K that is neither active nor tried there."""
    if any(_untold(view, table, trials, load) for load in loads):
        return math.inf
    worth = _worth(view, incumbent_of(view, table), targets)
    return max((_missing(view, worth, trials, load) for load in loads), default=0.0)


def _untold(view: Outlook, table: KTable, trials: Collection[Trial], load: float) -> bool:
    """True where no pod drafts and no trial tells whether drafts would be accepted, and where drafts are made and
    nothing tells any more what they gain."""
    tried = _trial_ks(trials, load)
    if table.k_at(max(load, 1.0)) == 0:
        return not tried and view.ks[-1] > 0
    return view.baseline and 0 not in tried and view.blocks_without(load) < BASELINE_BLOCKS


def _trial_ks(trials: Collection[Trial], load: float) -> set[int]:
    return {k for row in trials if row.first <= round(load) <= row.last for k in row.ks}


def _missing(view: Outlook, worth: Array, trials: Collection[Trial], load: float) -> float:
    trial_ks = _trial_ks(trials, load)
    here = worth[nearest(load, view.policy.knobs.max_batch)]
    return max((float(one) for k, one in zip(view.ks, here, strict=True) if k not in trial_ks), default=0.0)


def _worth(view: Outlook, incumbent: NDArray[np.int64], targets: Targets | None) -> Array:
    """Expected improvement by knowing each K, [point, K]; 0 where a K may not be tried."""
    found = view.against(incumbent)
    worth = expected_improvement(found.mean, found.deviation)
    possible = (found.mean > WORST) & (worth >= LEAST_WORTH)
    possible[np.arange(len(incumbent)), incumbent] = False
    if targets is not None:
        possible &= np.asarray(limits(view, targets), dtype=bool)
    return np.where(possible, worth, 0.0)


def expected_improvement(gain: Array, spread: Array) -> Array:
    """E[max(0, g)] of g normal with mean `gain` and standard deviation `spread`."""
    wide = np.maximum(spread, 1e-12)
    z = np.clip(gain / wide, -30.0, 30.0)
    below = 0.5 * _ERFC(-z / math.sqrt(2.0))
    return np.asarray(wide * np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi) + gain * below, dtype=float)


_ERFC = np.vectorize(math.erfc, otypes=[float])


def _pieces(table: KTable, first: int, last: int) -> list[tuple[int, int]]:
    """`first`..`last` cut where the K of `table` changes."""
    return [
        (max(first, band.first), min(last, band.last)) for band in table if band.first <= last and band.last >= first
    ]
