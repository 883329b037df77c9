"""Learning what steps cost: a recursive Bayesian regression of step time in log space around the prior.

Called by learning (each window) and judging (predictions for every K and batch size).

Step time is the sum of five terms (prior.TERMS) of known shape, each times an unknown factor exp(theta). One window
gives one equation: the mean step period that its requests saw. The equation is linearised at the present estimate (an
extended Kalman filter in information form), so that N windows cost N small matrix sums and memory stays constant.
Evidence fades with a time constant of half an hour, back to the prior. What one K still deviates after that is learned
as a correction of that K alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from speculative_operator.domain.knobs import KnobSpace
from speculative_operator.physics.step_time import StepCosts, hard_off_parts, step_parts
from speculative_operator.tuner.prior import TERMS, Array, Prior

NOISE = 0.10
"""Log standard deviation of one window around the model, errors of the model's form included."""
PREDICTION_NOISE = 0.03
"""Log standard deviation of a prediction that no evidence removes."""
FORGET_SECONDS = 1800.0
THETA_LIMIT = 3.0
"""Factors stay within exp(+-3): what lies beyond is not a step cost."""
SURPRISE_LIMIT = 1.0
"""No single window moves the estimate as if it were off by more than a factor e."""
K_PRIOR_WINDOWS = 3.0
"""Weight of "this K deviates by nothing", in windows."""


@dataclass(frozen=True, slots=True)
class CostEvidence:
    """Information beyond the prior: `precision` (row-major) and `information` over TERMS; and per K (sum, weight)."""

    precision: tuple[float, ...] = (0.0,) * len(TERMS) ** 2
    information: tuple[float, ...] = (0.0,) * len(TERMS)
    per_k: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepSample:
    """One window as the regression takes it."""

    terms: tuple[float, ...]
    """Seconds of each term as the prior has it."""
    seconds: float
    weight: float
    k: int | None
    """The one K of all its steps; None when mixed."""


@dataclass(frozen=True)
class CostModel:
    """Posterior of the step costs."""

    prior: Prior
    knobs: KnobSpace
    theta: Array
    covariance: Array
    per_k: Mapping[int, float]

    def log_seconds(self, terms: Array, k: ArrayLike = -1) -> Array:
        """Log seconds of steps whose prior terms are `terms[..., 5]`; `k` broadcasts and selects the correction."""
        chosen = np.asarray(k)
        extra = np.zeros(chosen.shape)
        for value, correction in self.per_k.items():
            extra = np.where(chosen == value, correction, extra)
        return np.asarray(np.log(terms @ np.exp(self.theta)) + extra)

    def shares(self, terms: Array) -> Array:
        """Share of each term in the step: the derivative of log seconds by theta."""
        weighted = terms * np.exp(self.theta)
        return np.asarray(weighted / weighted.sum(axis=-1, keepdims=True))

    def deviation(self, direction: Array) -> Array:
        """Log standard deviation of a prediction (its shares), or of a ratio of two (difference of their shares)."""
        variance = np.einsum("...i,ij,...j->...", direction, self.covariance, direction)
        return np.asarray(np.sqrt(variance + PREDICTION_NOISE**2))


def step_terms(
    costs: StepCosts, knobs: KnobSpace, batch: ArrayLike, k: ArrayLike, context: ArrayLike, prefill: ArrayLike
) -> Array:
    """Seconds of each of TERMS by the prior, stacked on the last axis; their sum is `physics.step_seconds`."""
    return _stacked(step_parts(costs, knobs, batch, k, context, prefill))


def off_terms(costs: StepCosts, batch: ArrayLike, context: ArrayLike, prefill: ArrayLike) -> Array:
    """The same for a pod without any speculator."""
    return _stacked(hard_off_parts(costs, batch, context, prefill))


def posterior(evidence: CostEvidence, prior: Prior, knobs: KnobSpace) -> CostModel:
    """The prior and the evidence put together."""
    size = len(TERMS)
    covariance = np.linalg.inv(prior.precision + np.array(evidence.precision).reshape(size, size))
    theta = np.clip(covariance @ np.array(evidence.information), -THETA_LIMIT, THETA_LIMIT)
    per_k = {k: total / (weight + K_PRIOR_WINDOWS) for k, total, weight in evidence.per_k}
    return CostModel(prior, knobs, theta, covariance, per_k)


def learn_costs(
    evidence: CostEvidence, samples: tuple[StepSample, ...], elapsed: float, prior: Prior, knobs: KnobSpace
) -> CostEvidence:
    """Evidence after `samples`, what was known before faded by `elapsed` seconds."""
    faded = _fade(evidence, math.exp(-max(elapsed, 0.0) / FORGET_SECONDS))
    if not samples:
        return faded
    model = posterior(faded, prior, knobs)
    terms = np.array([sample.terms for sample in samples])
    weights = np.array([sample.weight for sample in samples]) / NOISE**2
    shares = model.shares(terms)
    surprise = np.log([sample.seconds for sample in samples]) - model.log_seconds(terms)
    surprise = np.clip(surprise, -SURPRISE_LIMIT, SURPRISE_LIMIT)
    size = len(TERMS)
    precision = np.array(faded.precision).reshape(size, size) + shares.T @ (shares * weights[:, None])
    information = np.array(faded.information) + shares.T @ (weights * (surprise + shares @ model.theta))
    updated = replace(
        faded, precision=tuple(precision.ravel().tolist()), information=tuple(information.ravel().tolist())
    )
    return _learn_per_k(updated, samples, prior, knobs)


def _learn_per_k(
    evidence: CostEvidence, samples: tuple[StepSample, ...], prior: Prior, knobs: KnobSpace
) -> CostEvidence:
    model = posterior(evidence, prior, knobs)
    sums = {k: (total, weight) for k, total, weight in evidence.per_k}
    for sample in samples:
        if sample.k is None:
            continue
        rest = math.log(sample.seconds) - float(model.log_seconds(np.array(sample.terms)))
        rest = min(max(rest, -SURPRISE_LIMIT), SURPRISE_LIMIT)
        total, weight = sums.get(sample.k, (0.0, 0.0))
        sums[sample.k] = (total + sample.weight * rest, weight + sample.weight)
    return replace(evidence, per_k=tuple((k, *sums[k]) for k in sorted(sums)))


def _fade(evidence: CostEvidence, keep: float) -> CostEvidence:
    return CostEvidence(
        precision=tuple(keep * value for value in evidence.precision),
        information=tuple(keep * value for value in evidence.information),
        per_k=tuple((k, keep * total, keep * weight) for k, total, weight in evidence.per_k),
    )


def _stacked(parts: tuple[Array, ...]) -> Array:
    out = np.empty((*np.broadcast_shapes(*(part.shape for part in parts)), len(parts)))
    for index, part in enumerate(parts):
        out[..., index] = part
    return out
