"""Says what a policy allows: which K, the nearest table and trials, and whether a decision may become active.

Called wherever a table comes in from outside (reconcile, memory, session) or is put together (judge, guards, outlook).
`lawful` is the last check before reconcile writes a table, and before a session of the laboratory takes one over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate, pairwise

from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import Actuator, KTable, Trial

MOST_SHARE = 0.4


def candidates(policy: Policy) -> tuple[int, ...]:
    """Every K that a table of `policy` may hold, ascending; without 0 when the user forbids turning off.

    A table of mode Static comes from the user and may hold 0 all the same.
    """
    ks = tuple(sorted({k for k in policy.knobs.ks if k >= 0})) or (0,)
    if policy.off_policy is OffPolicy.NEVER and policy.mode is not Mode.STATIC and ks[-1] > 0:
        return tuple(k for k in ks if k > 0)
    return ks


def fit(table: KTable, policy: Policy) -> KTable:
    """`table` over 1..max_batch, every K lowered to the next one that the policy allows (or raised to the smallest).

    Where K may only fall with load, a K is also lowered to the K of the loads below it."""
    ks, max_batch = candidates(policy), policy.knobs.max_batch
    rises = policy.knobs.falling and any(one.k < other.k for one, other in pairwise(table))
    if table.max_batch == max_batch and table.ks <= set(ks) and not rises:
        return table
    dense = [max((k for k in ks if k <= wanted), default=ks[0]) for wanted in table.resize(max_batch).dense()]
    return KTable.from_dense(list(accumulate(dense, min)) if policy.knobs.falling else dense)


def fit_trials(trials: Iterable[Trial], table: KTable, policy: Policy) -> tuple[Trial, ...]:
    """Those of `trials` that pods with `table` can run: each within one band, with K of the knobs other than the
    band's K, and a share of one digit. Equal trials make equal files, and an equal file is not written again."""
    if not policy.trials or policy.mode is not Mode.AUTO or policy.knobs.actuator is not Actuator.LIVE:
        return ()
    fitted: list[Trial] = []
    for one in sorted(trials, key=lambda row: row.first):
        band = next((band for band in table if band.first <= one.first <= one.last <= band.last), None)
        free = one.first > (fitted[-1].last if fitted else 0)
        share = float(f"{min(one.share, MOST_SHARE):.0e}") if one.share > 0.0 else 0.0
        ks = tuple(k for k in dict.fromkeys(one.ks) if k in policy.knobs.ks and band is not None and k != band.k)
        if free and ks and share > 0.0:
            fitted.append(replace(one, ks=ks, share=share))
    return tuple(fitted)


def lawful(decision: Decision, observation: Observation, policy: Policy) -> bool:
    """True when `decision` is valid, changes the table, rests on windows, and names a table that the engine can run.

    `METRICS_LOST` needs no windows: in a long outage K only falls, on earlier evidence."""
    seen = observation.gap is None and bool(observation.windows)
    return (
        decision.valid
        and decision.changed
        and (seen or decision.reason is Reason.METRICS_LOST)
        and fit(decision.table, policy) == decision.table
        and (policy.knobs.actuator is not Actuator.RESTART or len(decision.table.ks) == 1)
    )
