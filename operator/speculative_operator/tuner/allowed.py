"""Tables that a policy allows: the nearest one to any other.

Called wherever a table comes in from outside (reconcile, memory, session) or is put together (judge, probe, start).
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.prior import candidates


def fit(table: KTable, policy: Policy) -> KTable:
    """`table` over 1..max_batch with every K lowered to the next one that the policy allows (raised to the least), and,
    where K may only fall with load, to that of the loads below."""
    ks, max_batch = candidates(policy), policy.knobs.max_batch
    rises = policy.knobs.falling and any(one.k < other.k for one, other in pairwise(table))
    if table.max_batch == max_batch and table.ks <= set(ks) and not rises:
        return table
    dense = [max((k for k in ks if k <= wanted), default=ks[0]) for wanted in table.resized(max_batch).dense()]
    return KTable.from_dense(list(accumulate(dense, min)) if policy.knobs.falling else dense)
