"""Fits tables and trials to a policy: the nearest table, and the trials, that it allows.

Called wherever a table comes in from outside (reconcile, memory, session) or is put together (judge, probe, start).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate, pairwise

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable, Trial
from speculative_operator.tuner.prior import candidates

MOST_SHARE = 0.4


def fit(table: KTable, policy: Policy) -> KTable:
    """`table` over 1..max_batch, every K lowered to the next one that the policy allows (or raised to the smallest).

    Where K may only fall with load, a K is also lowered to the K of the loads below it."""
    ks, max_batch = candidates(policy), policy.knobs.max_batch
    rises = policy.knobs.falling and any(one.k < other.k for one, other in pairwise(table))
    if table.max_batch == max_batch and table.ks <= set(ks) and not rises:
        return table
    dense = [max((k for k in ks if k <= wanted), default=ks[0]) for wanted in table.resize(max_batch).dense()]
    return KTable.from_dense(list(accumulate(dense, min)) if policy.knobs.falling else dense)


def fit_trials(tries: Iterable[Trial], table: KTable, policy: Policy) -> tuple[Trial, ...]:
    """The trials of `tries` that pods with `table` can run: each within one band, with K of the knobs other than the
    band's K, and a share of one digit. Equal trials make equal files, and an equal file is not written again."""
    if not policy.tries or policy.mode is not Mode.AUTO or policy.knobs.actuator is not Actuator.LIVE:
        return ()
    fitted: list[Trial] = []
    for one in sorted(tries, key=lambda row: row.first):
        band = next((band for band in table if band.first <= one.first <= one.last <= band.last), None)
        free = one.first > (fitted[-1].last if fitted else 0)
        share = float(f"{min(one.share, MOST_SHARE):.0e}") if one.share > 0.0 else 0.0
        ks = tuple(k for k in dict.fromkeys(one.ks) if k in policy.knobs.ks and band is not None and k != band.k)
        if free and ks and share > 0.0:
            fitted.append(replace(one, ks=ks, share=share))
    return tuple(fitted)
