"""Learns what steps cost: a recursive Bayesian regression of step time in log space around the prior.

Called by learning (each window) and outlook (predictions for every K and batch size). The coordinates are those of
`prior`. One window gives one equation: the mean step period that its requests saw. It is linearised at the present
estimate (an extended Kalman filter in information form), so that N windows cost N small matrix sums and memory stays
constant. Evidence fades: the estimate stays, the certainty goes back to the prior's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from speculative_operator.domain.table import KnobSpace
from speculative_operator.physics.step_costs import StepCosts
from speculative_operator.physics.step_time import plain_parts, step_parts
from speculative_operator.tuner.prior import TERMS, Array, Basis, Prior, basis_of

NOISE = 0.02
"""Log standard deviation of one window of five seconds around the model, its errors of form included."""
PREDICTION_NOISE = 0.01
"""Log standard deviation of a ratio of two predictions that no evidence removes."""
FORGET_SECONDS = 3600.0
FORGET_FORM_SECONDS = 14_400.0
"""Time constants of forgetting: of the factors on terms, and of the corrections by size and K, fixed by hardware."""
THETA_LIMIT = 3.0
"""Factors stay within exp(+-3): no step costs more or less than that."""
FORM_LIMIT = 1.5
SURPRISE_LIMIT = 1.0
"""No single window moves the estimate as if it were off by more than a factor e."""
OUTLIER = 2.5
"""A window further off than this many standard deviations counts in inverse proportion (Huber)."""
UNREST_WINDOWS = 40.0
"""Windows over which the unrest of step times is averaged: three minutes."""
SPELLS = 4.0
"""Spells of unrest last some windows: the variance between distant windows is so many times that of neighbours."""
ALIKE = 0.1
"""Unrest is measured only between windows whose predicted log step seconds differ by less: a difference that comes
with load, context or K is no unrest."""
MOST_UNREST = 0.5
"""Log standard deviation beyond which an engine cannot be more restless."""


@dataclass(frozen=True, slots=True)
class Look:
    """Step seconds of one observation, all windows together, from which unrest is measured."""

    seconds: float
    """Measured log seconds of a step, weighted mean."""
    size: float
    """Log seconds of a step by the prior. A learned estimate may not take its place, since it moves by itself."""


@dataclass(frozen=True, eq=False)
class CostEvidence:
    """`mean` [size] is the estimate, `precision` [size, size] the information beyond the prior. Empty: the prior."""

    mean: Array = field(default_factory=lambda: np.zeros(0))
    precision: Array = field(default_factory=lambda: np.zeros((0, 0)))
    unrest: float = 0.0
    """Variance of log step time common to all K: large where others work on the same accelerator, so that a slow spell
    is not taken for the cost of the K that happened to run."""
    swing: float = 0.0
    """Running mean of half the squared log difference between neighbouring windows, less noise."""
    last: Look | None = None
    """The last observation; None before the first."""

    def resize(self, basis: Basis) -> CostEvidence:
        """The evidence, or empty evidence (unrest kept) where it was gathered for other knobs."""
        if len(self.mean) == basis.size:
            return self
        return CostEvidence(
            np.zeros(basis.size), np.zeros((basis.size, basis.size)), self.unrest, self.swing, self.last
        )


@dataclass(frozen=True, slots=True)
class StepSample:
    """One window, or one cell of it, as an equation of the regression."""

    terms: tuple[float, ...]
    """Seconds of each term of a step by the prior."""
    seconds: float
    weight: float
    """Weight of the equation, in windows of five seconds."""
    tokens: float
    """Tokens verified per step, prefill excluded."""
    k: float | None
    """Mean K of the steps that drafted; None for pods without speculator."""
    share: float = 1.0
    """Share of request-steps that drafted; the other request-steps ran K = 0."""


@dataclass(frozen=True, eq=False)
class CostModel:
    """Posterior of the step costs."""

    prior: Prior
    knobs: KnobSpace
    basis: Basis
    mean: Array
    covariance: Array
    unrest: float = 0.0
    """Log standard deviation of a slowness that all steps of a moment share."""

    def log_seconds(self, terms: Array, local: Array) -> Array:
        """Log seconds of steps with prior terms `terms[..., 5]` and columns `local[..., knots + ks]`."""
        first = len(TERMS)
        return np.asarray(np.log(terms @ np.exp(self.mean[:first])) + local @ self.mean[first:])

    def surprise(self, samples: tuple[StepSample, ...]) -> float:
        """Weighted mean log seconds by which `samples` took longer than predicted; 0 for no samples."""
        weight = math.fsum(sample.weight for sample in samples)
        if weight <= 0:
            return 0.0
        terms = np.array([sample.terms for sample in samples])
        apart = np.log([sample.seconds for sample in samples]) - self.log_seconds(terms, _local(self.basis, samples))
        return float(apart @ np.array([sample.weight for sample in samples]) / weight)

    def gradient(self, terms: Array, local: Array) -> Array:
        """Derivative of `log_seconds` by every coordinate, [..., size]."""
        weighted = terms * np.exp(self.mean[: len(TERMS)])
        shares = weighted / weighted.sum(axis=-1, keepdims=True)
        return np.concatenate((shares, local), axis=-1)

    def deviation(self, direction: Array) -> Array:
        """Log standard deviation of a prediction with gradient `direction`, or of a ratio of two (their difference)."""
        variance = np.sum((direction @ self.covariance) * direction, axis=-1)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + PREDICTION_NOISE**2))


def prefill_overlap(batch: Array) -> Array:
    """Share of the prompts that are prefilled in steps in which others decode, at a mean batch of `batch`.

    A prompt that is prefilled alone delays no request. Poisson arrivals at a mean of L requests see b = L / (1 - e^-L)
    and meet 1 - e^-L; a closed loop of b requests, (b - 1) / b. Between the two, and equal to both at 1 and far above
    it.
    """
    return np.asarray(1.0 - np.maximum(batch, 1.0) ** -1.5)


def step_terms(costs: StepCosts, knobs: KnobSpace, batch: Array, k: Array, context: Array, prefill: Array) -> Array:
    """Seconds of each of TERMS by the prior, stacked on the last axis, as a decoding request sees them.

    `prefill`: prompt tokens per step; prompts that are prefilled alone do not count.
    """
    return _stack(step_parts(costs, knobs, batch, k, context, prefill * prefill_overlap(batch)))


def exact_terms(costs: StepCosts, knobs: KnobSpace, batch: Array, k: Array, context: Array, prefill: Array) -> Array:
    """Seconds of each of TERMS where all `prefill` prompt tokens ran in steps with decoding requests."""
    return _stack(step_parts(costs, knobs, batch, k, context, prefill))


def off_terms(costs: StepCosts, batch: Array, context: Array, prefill: Array) -> Array:
    """Seconds of each of TERMS by the prior for a pod without a speculator, arguments as in `step_terms`."""
    return _stack(plain_parts(costs, batch, context, prefill * prefill_overlap(batch)))


def posterior(evidence: CostEvidence, prior: Prior, knobs: KnobSpace) -> CostModel:
    """Posterior of the step costs from the prior and the evidence."""
    basis = basis_of(knobs)
    known = evidence.resize(basis)
    covariance = np.asarray(np.linalg.inv(prior.precision + known.precision))
    return CostModel(prior, knobs, basis, known.mean, covariance, math.sqrt(known.unrest))


def learn_costs(
    evidence: CostEvidence, samples: tuple[StepSample, ...], elapsed: float, prior: Prior, knobs: KnobSpace
) -> CostEvidence:
    """Evidence after `samples`; the earlier evidence fades by `elapsed` seconds."""
    basis = basis_of(knobs)
    known = _fade(evidence.resize(basis), max(elapsed, 0.0))
    if not samples:
        return known
    terms = np.array([sample.terms for sample in samples])
    local = _local(basis, samples)
    seconds = np.log([sample.seconds for sample in samples])
    windows = np.array([sample.weight for sample in samples])
    share = windows / max(math.fsum(windows), 1e-9)
    look = Look(float(share @ seconds), float(share @ np.log(terms.sum(axis=1))))
    known = _doubt(known, prior, look, math.fsum(windows))
    model = CostModel(prior, knobs, basis, known.mean, np.zeros((0, 0)))
    rows = model.gradient(terms, local)
    surprise = seconds - model.log_seconds(terms, local)
    believed = np.sum(rows * np.linalg.solve(prior.precision + known.precision, rows.T).T, axis=1)
    weights = windows / (NOISE**2 + known.unrest)
    spread = np.sqrt(1.0 / np.maximum(weights, 1e-9) + believed)
    weights = weights * np.minimum(1.0, OUTLIER / np.maximum(np.abs(surprise) / spread, 1e-9))
    surprise = np.clip(surprise, -SURPRISE_LIMIT, SURPRISE_LIMIT)
    gained = rows.T @ (rows * weights[:, None])
    mean = known.mean + np.linalg.solve(prior.precision + known.precision + gained, rows.T @ (weights * surprise))
    limits = np.r_[np.full(len(TERMS), THETA_LIMIT), np.full(basis.size - len(TERMS), FORM_LIMIT)]
    return CostEvidence(np.clip(mean, -limits, limits), known.precision + gained, known.unrest, known.swing, known.last)


def _doubt(known: CostEvidence, prior: Prior, look: Look, windows: float) -> CostEvidence:
    """Evidence with the unrest after `look`, which stands for `windows` windows.

    Unrest comes from differences between neighbouring looks: a lasting change, as a slower machine or a wrongly priced
    K, makes one jump and is no unrest. When unrest rises, earlier evidence counts less in proportion, because its noise
    was larger than assumed; evidence of few windows so goes back to the prior.
    """
    before, after = known.last, replace(known, last=look)
    if before is None or abs(look.size - before.size) > ALIKE:
        return after
    apart = ((look.seconds - look.size) - (before.seconds - before.size)) ** 2 / 2.0 - NOISE**2
    swing = known.swing + min(windows / UNREST_WINDOWS, 1.0) * (min(apart, MOST_UNREST**2) - known.swing)
    # A mean of few windows scatters: a swing within the noise itself is no unrest.
    unrest = SPELLS * max(swing - NOISE**2, 0.0)
    after = replace(after, swing=swing, unrest=unrest)
    trust = (NOISE**2 + known.unrest) / (NOISE**2 + unrest)
    if trust >= 1.0:
        return after
    precision = trust * known.precision
    told_of = trust * ((prior.precision + known.precision) @ known.mean)
    mean = np.asarray(np.linalg.solve(prior.precision + precision, told_of), dtype=float)
    return replace(after, mean=mean, precision=precision)


def _local(basis: Basis, samples: tuple[StepSample, ...]) -> Array:
    """Columns after TERMS, [sample, knots + ks]; a sample that drafted at a share of its request-steps is a mean."""
    tokens = np.array([sample.tokens for sample in samples])
    ks = np.array([math.nan if sample.k is None else sample.k for sample in samples])
    share = np.array([[sample.share] for sample in samples])
    drafted = np.where(np.isnan(ks)[:, None], basis.local(tokens, None), basis.local(tokens, np.nan_to_num(ks)))
    none = basis.local(tokens, np.zeros(len(tokens)))
    return np.where(np.isnan(ks)[:, None] | (share >= 1.0), drafted, share * drafted + (1.0 - share) * none)


def _fade(evidence: CostEvidence, elapsed: float) -> CostEvidence:
    first = len(TERMS)
    keep = np.full(len(evidence.mean), math.exp(-elapsed / FORGET_FORM_SECONDS / 2))
    keep[:first] = math.exp(-elapsed / FORGET_SECONDS / 2)
    return replace(evidence, precision=evidence.precision * keep[:, None] * keep[None, :])


def _stack(parts: tuple[Array, ...]) -> Array:
    out = np.empty((*np.broadcast_shapes(*(part.shape for part in parts)), len(parts)))
    for index, part in enumerate(parts):
        out[..., index] = part
    return out
