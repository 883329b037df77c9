"""Tells how far off a speed over pods without a speculator may be: an 80 % interval, longer where hosts are slow.

Called by outlook for `plan` and `explain`. What the host does for drafts (launching passes, sampling, piecewise graphs)
is known to a factor of several only, and a pod without a speculator has none of it. A factor so wide lengthens a step
by far more than it shortens it, so the interval is not symmetric: each end adds the host's own in quadrature.
"""

from __future__ import annotations

import math

import numpy as np

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.domain.table import KnobSpace
from speculative_operator.physics.step_costs import method_of
from speculative_operator.physics.step_time import pays_graph_tax
from speculative_operator.tuner.costs import CostModel
from speculative_operator.tuner.prior import TERMS

IN_GRAPHS_SD, LAUNCHED_SD = 0.5, 1.2
"""Log standard deviation of the host's part: where graphs hold whole draft passes, and where Python launches layer by
layer, as in speculators that are models of their own and in pods with piecewise graphs alone. Beyond its weights a pass
of the same 28 layers took 0.9 ms on one host (arXiv 2601.11580, fitted) and 4.9 ms on another (docs/decisions/0015):
1.2 is their standard deviation."""
_DRAFTING = TERMS.index("drafting")


def host_deviation(model: CostModel, facts: PairFacts, knobs: KnobSpace) -> float:
    """Log standard deviation of the host's part: as before any evidence, less what the evidence says of drafting."""
    launched = pays_graph_tax(knobs) or (facts.method or method_of(facts, knobs)) is Method.DRAFT_MODEL
    before = np.linalg.inv(model.prior.precision[: len(TERMS), : len(TERMS)])[_DRAFTING, _DRAFTING]
    left = min(float(model.covariance[_DRAFTING, _DRAFTING] / before), 1.0)
    return (LAUNCHED_SD if launched else IN_GRAPHS_SD) * math.sqrt(left)


def span(wide: float, share: float, host: float) -> tuple[float, float]:
    """How far below and above its middle the log speed over pods without a speculator ends. `wide`: half width without
    the host's part, which takes `share` of a step and is longer or shorter by up to the log factor `host`."""
    slow, fast = (math.log1p(share * math.expm1(factor)) for factor in (host, -host))
    return math.hypot(wide, slow), math.hypot(wide, fast)
