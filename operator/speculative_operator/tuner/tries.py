"""Which K the engine is to try beside those in force, at which loads, and for which share of its blocks of steps.

Called by decide(). Trying costs what the K tried is slower, and is worth what knowing its speed better would improve:
with a gain d over the K in force, believed with standard deviation s, `s phi(d/s) + d Phi(d/s)`. The engine itself lets
the share fall as blocks are compared, so that exploring ends without another write.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable, Try
from speculative_operator.tuner.comparisons import bands
from speculative_operator.tuner.grid import nearest
from speculative_operator.tuner.judge import incumbent_of
from speculative_operator.tuner.outlook import Outlook
from speculative_operator.tuner.prior import Array
from speculative_operator.tuner.targets import Targets, limits

MOST_SHARE = 0.3
LEAST_SHARE = 0.004
SHARE_OF_WORTH = 20.0
"""Share of the blocks for one of expected improvement (log speed), between these limits."""
LEAST_WORTH = 0.0002
"""Expected improvement below which a K is not tried."""
WORST = -0.15
"""Expected log speed against the K in force below which a K is not tried, whatever knowing is worth."""
FURTHEST = 2
"""Steps of K from the one in force within which K are tried; no drafts at all may be tried from everywhere."""
MOST_KS = 3
MISSING_WORTH = 0.004
"""Expected improvement by a K that is not tried, at a load there is now, for which a table is written again."""


def may_try(policy: Policy, windows: Mapping[str, PodWindow]) -> bool:
    """True where the engine compares blocks: a plug-in re-reads its table in every pod, and says what it sees."""
    busy = [window for window in windows.values() if window.decode_request_steps > 0]
    return (
        policy.mode is Mode.AUTO
        and policy.tries
        and policy.knobs.actuator is Actuator.LIVE
        and all(window.cells and window.live is not False for window in busy)
    )


def worth_trying(view: Outlook, table: KTable, targets: Targets | None = None) -> tuple[Try, ...]:
    """What to try while `table` is in force, at every load: which of them occur is seen by the engine."""
    incumbent = incumbent_of(view, table)
    found = view.against(incumbent)
    worth = expected_improvement(found.mean, found.deviation)
    near = np.abs(np.arange(len(view.ks))[None, :] - incumbent[:, None]) <= FURTHEST
    possible = (near | (view.columns == 0)) & (found.mean > WORST) & (worth >= LEAST_WORTH)
    possible[np.arange(len(incumbent)), incumbent] = False
    possible &= limits(view, targets) if targets is not None else True
    rows: list[Try] = []
    max_batch = view.policy.knobs.max_batch
    for first, last in bands(max_batch):
        for low, high, k in _pieces(table, first, last):
            row = nearest(math.sqrt(low * high), max_batch)
            best = sorted(np.flatnonzero(possible[row]).tolist(), key=lambda column: -worth[row, column])[:MOST_KS]
            ks = tuple(sorted(view.ks[column] for column in best if view.ks[column] != k))
            if ks:
                share = SHARE_OF_WORTH * float(worth[row, best[0]])
                rows.append(Try(low, high, ks, round(min(max(share, LEAST_SHARE), MOST_SHARE), 3)))
    return tuple(rows)


def missing(
    view: Outlook, table: KTable, tries: Collection[Try], loads: Collection[float], targets: Targets | None = None
) -> float:
    """Most expected improvement, at loads there are now, by a K that is neither in force nor tried there."""
    wanted = {(row.first, row.last): row for row in worth_trying(view, table, targets)}
    return max((_missing(wanted.values(), tries, load) for load in loads), default=0.0)


def _missing(wanted: Collection[Try], tries: Collection[Try], load: float) -> float:
    here = [row for row in wanted if row.first <= round(load) <= row.last]
    tried = {k for row in tries if row.first <= round(load) <= row.last for k in row.ks}
    return max((row.share / SHARE_OF_WORTH for row in here if not set(row.ks) & tried), default=0.0)


def expected_improvement(gain: Array, spread: Array) -> Array:
    """E[max(0, g)] of g normal with mean `gain` and standard deviation `spread`."""
    wide = np.maximum(spread, 1e-12)
    z = np.clip(gain / wide, -30.0, 30.0)
    below = 0.5 * _ERFC(-z / math.sqrt(2.0))
    return np.asarray(wide * np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi) + gain * below, dtype=float)


_ERFC = np.vectorize(math.erfc, otypes=[float])


def _pieces(table: KTable, first: int, last: int) -> list[tuple[int, int, int]]:
    """`first`..`last` cut where the K of `table` changes."""
    return [
        (max(first, band.first), min(last, band.last), band.k)
        for band in table
        if band.first <= last and band.last >= first
    ]
