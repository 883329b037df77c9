"""Up to which load a replica is predicted to keep the target of TPOT with the active table. Called by decide().

Told to autoscalers, never used for a decision on K. The P99 that was measured is carried to another load by the ratio
of predicted times per token, so that an error which is the same at both loads cancels out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from speculative_operator.domain.table import KTable
from speculative_operator.tuner.grid import choices
from speculative_operator.tuner.outlook import INFEASIBLE, Outlook
from speculative_operator.tuner.targets import Targets
from speculative_operator.tuner.traffic import Look

FURTHEST_LOAD = 2.0
"""Times the load that was seen: nobody can tell the P99 of a larger one."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """The largest load within the target."""

    load: float
    """Scheduled requests per replica, at most `FURTHEST_LOAD` times those seen."""
    throughput: float
    """Tokens per second at that load over those at the load that was seen."""


def headroom(view: Outlook, look: Look, table: KTable, targets: Targets) -> Headroom | None:
    """None where no target of TPOT is set, no P99 was measured since the last change of K, or no load keeps the target:
    more replicas would not help."""
    asked, worst = targets.asked[0], targets.tails[0].high
    k = table.k_at(targets.load)
    if asked is None or not math.isfinite(worst) or k not in view.ks:
        return None
    # The histogram is of the last minutes, and so is this load.
    here, most = view.at(targets.load, k), FURTHEST_LOAD * max(look.scheduled, targets.load, 1.0)
    if here <= INFEASIBLE / 2:
        return None
    slack, found = math.log(asked / worst), None
    for row, (load, chosen) in enumerate(zip(view.points, choices(table, view.policy.knobs.max_batch), strict=True)):
        speed = float(view.speed[row, view.ks.index(chosen)]) if chosen in view.ks else INFEASIBLE
        if load > most or speed <= INFEASIBLE / 2 or here - speed > slack:
            break
        found = Headroom(float(load), float(load) / targets.load * math.exp(speed - here))
    return found
