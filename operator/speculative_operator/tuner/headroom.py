"""Predicts the load up to which a replica keeps the TPOT target with the active table. Called by decide().

Autoscalers use the result; no decision on K does. The measured P99 is carried to another load by the ratio
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
"""Largest load of a prediction, in multiples of the measured load: beyond it the P99 cannot be told."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """The largest load of a replica within the TPOT target."""

    load: float
    """Scheduled requests per replica, at most `FURTHEST_LOAD` times the measured load."""
    throughput: float
    """Tokens per second at that load over those at the measured load."""


def headroom(view: Outlook, look: Look, table: KTable, targets: Targets) -> Headroom | None:
    """The headroom of a replica with `table`; None where no TPOT target is set, no P99 was measured since the last
    change of K, or no load keeps the target, so that more replicas would not help."""
    asked, worst = targets.asked[0], targets.tails[0].high
    k = table.k_at(targets.load)
    if asked is None or not math.isfinite(worst) or k not in view.ks:
        return None
    # The histogram covers the last minutes, and so does `targets.load`.
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
