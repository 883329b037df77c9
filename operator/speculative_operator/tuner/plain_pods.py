"""Tells how far off a speed over pods without a speculator may be: an 80 % interval, longer where hosts are slow.

Called by outlook for `plan` and `explain`. What the host does for drafts (launching passes, sampling, piecewise graphs)
is known to a factor of several only, and a pod without a speculator has none of it. A factor so wide lengthens a step
by far more than it shortens it, so the interval is not symmetric, and the gradient at its middle does not tell its
ends. They are found as the likeliest costs that lie so far off (design points of the first-order reliability method).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.domain.table import KnobSpace
from speculative_operator.physics.step_time import pays_graph_tax
from speculative_operator.tuner.costs import PREDICTION_NOISE, CostModel
from speculative_operator.tuner.prior import TERMS, Array, method_of

IN_GRAPHS_SD, LAUNCHED_SD = 0.5, 1.2
"""Log standard deviation of the host's part: where graphs hold whole draft passes, and where Python launches layer by
layer, as in speculators that are models of their own and in pods with piecewise graphs alone. Beyond its weights a pass
of the same 28 layers took 0.9 ms on one host (arXiv 2601.11580, fitted) and 4.9 ms on another (docs/decisions/0049):
1.2 is their standard deviation."""
ROUNDS = 8
"""Rounds of the search for an end of the interval; the last moves it by less than a thousandth."""
_DRAFTING = TERMS.index("drafting")


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One step by the prior: seconds of each of TERMS, the columns after TERMS, and the host's part of each term."""

    terms: Array
    local: Array
    host: Array


def host_deviation(model: CostModel, facts: PairFacts, knobs: KnobSpace) -> float:
    """Log standard deviation of the host's part: as before any evidence, less what the evidence says of drafting."""
    launched = pays_graph_tax(knobs) or (facts.method or method_of(facts, knobs)) is Method.DRAFT_MODEL
    before = np.linalg.inv(model.prior.precision[: len(TERMS), : len(TERMS)])[_DRAFTING, _DRAFTING]
    left = min(float(model.covariance[_DRAFTING, _DRAFTING] / before), 1.0)
    return (LAUNCHED_SD if launched else IN_GRAPHS_SD) * math.sqrt(left)


def span(model: CostModel, host_sd: float, on: Step, off: Step, earned: float, sides: float) -> tuple[float, float]:
    """How far below and above its middle the log speed of step `on` over step `off` ends, at `sides` standard
    deviations. `earned` is the log standard deviation of the tokens that both yield."""
    noise = math.hypot(earned, PREDICTION_NOISE)
    middle, slow, fast = (_longer(model, host_sd, on, off, noise, side) for side in (0.0, sides, -sides))
    return max(slow - middle, 0.0), max(middle - fast, 0.0)


def _longer(model: CostModel, host_sd: float, on: Step, off: Step, noise: float, sides: float) -> float:
    """Log seconds of `on` over those of `off`, less tokens, at the likeliest place `sides` deviations off."""
    size = len(model.mean)
    covariance = np.zeros((size + 1, size + 1))
    covariance[:size, :size], covariance[size, size] = model.covariance, host_sd**2
    start = np.append(model.mean, 0.0)
    place, rest = start, 0.0
    for _ in range(ROUNDS if sides else 0):
        apart = _gradient(on, place) - _gradient(off, place)
        towards = covariance @ apart
        whole = math.sqrt(max(float(apart @ towards), 0.0) + noise**2)
        place, rest = start + sides * towards / whole, sides * noise**2 / whole
    return _log_seconds(on, place) - _log_seconds(off, place) + rest


def _seconds(step: Step, place: Array) -> Array:
    first = len(TERMS)
    return np.asarray((step.terms + math.expm1(place[-1]) * step.host) * np.exp(place[:first]))


def _log_seconds(step: Step, place: Array) -> float:
    return math.log(float(_seconds(step, place).sum())) + float(step.local @ place[len(TERMS) : -1])


def _gradient(step: Step, place: Array) -> Array:
    """Derivative of `_log_seconds` by every coordinate and, last, by the log factor on the host's part."""
    seconds = _seconds(step, place)
    host = math.exp(place[-1]) * float(step.host @ np.exp(place[: len(TERMS)]))
    return np.concatenate((seconds / seconds.sum(), step.local, [host / seconds.sum()]))
