"""Priors before any measurement: step costs with their uncertainty, in the coordinates in which they are learned;
acceptance; traffic.

Called by the learning and the judging parts of the tuner. Sources in order: published calibration of the pair, roofline
of hardware and shapes, and, where neither is known, a shape of costs with almost no opinion on its size.

Coordinates of step costs: log T = log(sum_i terms_i exp(theta_i)) + u(n) + v_K. Five factors say that the hardware is
faster or slower than thought; u, piecewise linear in log2 of the verified tokens n, takes up knees and steps that a
linear sum does not have; v_K takes up what is peculiar to one K (an unfortunate kernel, a broken dynamic path).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Workload
from speculative_operator.domain.table import KnobSpace
from speculative_operator.physics.acceptance import conditionals, prior_survival
from speculative_operator.physics.step_costs import StepCosts, estimated_costs, method_of, published_costs

Array = NDArray[np.float64]

TERMS = ("fixed", "tokens", "context", "drafting", "prefill")
"""The parts of a step whose size is learned, each by one factor on its prior."""
KNOT_SD = 0.05
"""Log standard deviation of the correction at one size: what capture staircases and tile sizes bring."""
K_SD = 0.08
"""Log standard deviation of the correction of one K."""
CALIBRATED_SD = (0.10, 0.15, 0.10, 0.20, 0.40)
"""Log standard deviation of each factor for a calibrated pair: the fit's own prior widths."""
ROOFLINE_SD = (0.25, 0.40, 0.25, 0.50, 0.50)
"""Log standard deviation of each factor for a roofline: 0.25 for memory traffic, 0.4 for arithmetic, 0.5 for
drafting."""
UNKNOWN_SD = (0.70, 0.70, 0.70, 0.70, 0.70)
COMMON_SD = {"calibrated": 0.25, "roofline": 0.40, "unknown": 1.50}
"""Log standard deviation of a factor common to all terms: the accelerator is slower or faster than thought."""
GENERIC = StepCosts(7e-3, 2e-5, 4e-8, 7e-4, 1e-6, 4e-9, 1.2e-3, 0.0)
"""Costs when nothing is known: shaped as an 8B model with a head on a large accelerator; evidence sets the size."""
CONTEXT_TOKENS = 1000.0
PROMPT_RATIO = 1.0
"""Context per request, and prompt tokens per output token, until the tuner has seen traffic."""


@dataclass(frozen=True)
class Basis:
    """Columns of the regression: TERMS, then a knot at each power of two of verified tokens, then one for each K."""

    ks: tuple[int, ...]
    knots: int

    @property
    def size(self) -> int:
        return len(TERMS) + self.knots + len(self.ks)

    def prior_precision(self, terms: Array) -> Array:
        """Prior precision of all columns, [size, size]; `terms` is the precision of the TERMS."""
        precision = np.zeros((self.size, self.size))
        first = len(TERMS)
        precision[:first, :first] = terms
        rest = np.r_[np.full(self.knots, KNOT_SD**-2), np.full(len(self.ks), K_SD**-2)]
        precision[range(first, self.size), range(first, self.size)] = rest
        return precision

    def local(self, tokens: ArrayLike, k: ArrayLike | None) -> Array:
        """Columns after TERMS, [..., knots + ks], of steps that verify `tokens` at mean K `k`.

        A mean K between two K counts as a share of each. `k` has the shape of `tokens`; None: no column of a K is set.
        """
        place = np.clip(np.log2(np.maximum(np.asarray(tokens, dtype=float), 1.0)), 0.0, self.knots - 1.0)
        out = np.zeros((*place.shape, self.knots + len(self.ks)))
        out[..., : self.knots] = np.maximum(1.0 - np.abs(place[..., None] - np.arange(self.knots)), 0.0)
        if k is not None:
            mean = np.asarray(k, dtype=float)[..., None]
            out[..., self.knots :] = np.maximum(1.0 - np.abs(mean - np.array(self.ks, dtype=float)), 0.0)
        return out


@lru_cache(maxsize=256)
def basis_of(knobs: KnobSpace) -> Basis:
    """The basis that covers every table that `knobs` allow."""
    ks = tuple(sorted(set(knobs.ks))) or (0,)
    most = knobs.max_batch * (ks[-1] + 1)
    return Basis(ks, math.ceil(math.log2(max(most, 2))) + 1)


@dataclass(frozen=True)
class Prior:
    """Step costs before any measurement, their precision, and whether hardware and models are known."""

    costs: StepCosts
    precision: Array
    """Prior precision of the columns of the basis."""
    from_models: bool


@lru_cache(maxsize=256)
def cost_prior(facts: PairFacts, knobs: KnobSpace) -> Prior:
    """The best prior of step costs for the pair: published, else roofline, else generic."""
    basis = basis_of(knobs)
    found = published_costs(facts)
    if found is not None:
        return Prior(found, basis.prior_precision(_precision(CALIBRATED_SD, COMMON_SD["calibrated"])), from_models=True)
    rough = estimated_costs(facts, knobs)
    if rough is not None:
        terms = _precision(ROOFLINE_SD, COMMON_SD["roofline"])
        return Prior(rough, basis.prior_precision(terms), from_models=True)
    return Prior(GENERIC, basis.prior_precision(_precision(UNKNOWN_SD, COMMON_SD["unknown"])), from_models=False)


@lru_cache(maxsize=256)
def acceptance_prior(facts: PairFacts, knobs: KnobSpace, workload: Workload) -> Array:
    """Expected conditional acceptance a_1..a_max: chance of draft j given that all before it were accepted."""
    return conditionals(prior_survival(method_of(facts, knobs), workload, max((*knobs.ks, 1))))


def _precision(deviations: tuple[float, ...], common: float) -> Array:
    return np.asarray(np.linalg.inv(np.diag(np.square(deviations)) + common**2))
