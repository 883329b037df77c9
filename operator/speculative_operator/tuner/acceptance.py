"""Learning what drafts earn: a Beta posterior of the conditional acceptance of each draft position.

Called by learning (each window) and judging (acceptance length for every K).

Counts are divided by ten, because accepted tokens of one request come in clusters (design effects of 2-20 were measured
over data sets and methods); they fade as exp(-drafts / 20,000). A position without evidence of its own follows the
prior's shape, scaled by how the position before it turned out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from speculative_operator.domain.table import KTable
from speculative_operator.tuner.prior import Array

DEFLATION = 10.0
FORGET_DRAFTS = 20_000.0
PRIOR_WEIGHT = 50.0
"""Weight of the prior of each position, in effective (deflated) drafts."""
LIMIT = 0.995
"""No position is believed to be accepted more surely than this."""
WHOLE = 0.02
"""A mean K this close to a whole number is taken as one K in all steps."""
NEAR = 1.5
"""Batch sizes within this factor of the window's mean are taken to have occurred in it."""


@dataclass(frozen=True, slots=True)
class AcceptanceEvidence:
    """Effective counts per position: how often it was reached, how often accepted; and raw drafts remembered."""

    reached: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    drafts: float = 0.0


@dataclass(frozen=True, slots=True)
class DraftSample:
    """What one or more windows tell: per position, how often it was reached and accepted; `drafts` in all."""

    reached: tuple[float, ...]
    accepted: tuple[float, ...]
    drafts: float


@dataclass(frozen=True)
class AcceptanceModel:
    """Posterior: `survival[j-1]` = S_j, and acceptance length with its relative deviation for K = 0..max."""

    survival: Array
    length: Array
    deviation: Array


def usable_positions(mean_k: float, batch: float, tables: tuple[KTable, ...]) -> tuple[int, float]:
    """(positions drafted in every step, share of steps that drafted one more) of a window of mean K `mean_k`.

    Exposure by position is not exported, so only positions that each step surely drafted count as tried: those up to
    the smallest K that the tables hold near `batch`. When they hold two neighbouring K there, the mean tells the share
    of the larger. A whole mean at either end of that range means that one K was used throughout.
    """
    low_batch, high_batch = int(batch / NEAR), math.ceil(batch * NEAR) + 1
    ks = {
        band.k for table in tables for band in table if band.k and band.last >= low_batch and band.first <= high_batch
    }
    low, high = (min(ks), max(ks)) if ks else (0, 0)
    whole = round(mean_k)
    if abs(mean_k - whole) <= WHOLE and not low < whole < high:
        return whole, 0.0
    if high == low + 1 and low <= mean_k <= high:
        return low, mean_k - low
    return min(low, math.floor(mean_k)), 0.0


def draft_sample(drafts: float, per_position: tuple[float, ...], certain: int, share: float) -> DraftSample:
    """Exposures from counters: position j is reached as often as position j-1 was accepted (position 1: each draft)."""
    reached, accepted, before = [], [], drafts
    for position, count in enumerate(per_position, start=1):
        exposure = before if position <= certain else share * before if position == certain + 1 else 0.0
        reached.append(exposure)
        accepted.append(min(count, exposure))
        before = count
    return DraftSample(tuple(reached), tuple(accepted), drafts)


def learn_acceptance(evidence: AcceptanceEvidence, sample: DraftSample, positions: int) -> AcceptanceEvidence:
    """Evidence after `sample`, over `positions` positions."""
    keep = math.exp(-sample.drafts / FORGET_DRAFTS)
    old_reached, old_accepted = _padded(evidence.reached, positions), _padded(evidence.accepted, positions)
    new_reached, new_accepted = _padded(sample.reached, positions), _padded(sample.accepted, positions)
    return AcceptanceEvidence(
        reached=tuple((keep * old_reached + new_reached / DEFLATION).tolist()),
        accepted=tuple((keep * old_accepted + new_accepted / DEFLATION).tolist()),
        drafts=keep * evidence.drafts + sample.drafts,
    )


def limited(evidence: AcceptanceEvidence, most: float) -> AcceptanceEvidence:
    """`evidence` scaled down until no position counts more than `most` effective drafts."""
    scale = min(1.0, most / max((*evidence.reached, most)))
    return AcceptanceEvidence(
        reached=tuple(scale * value for value in evidence.reached),
        accepted=tuple(scale * value for value in evidence.accepted),
        drafts=scale * evidence.drafts,
    )


def acceptance(evidence: AcceptanceEvidence, prior: Array) -> AcceptanceModel:
    """Posterior from the prior conditionals `prior[j-1]` = a_j."""
    size = len(prior)
    reached, accepted = _padded(evidence.reached, size), _padded(evidence.accepted, size)
    mean, variance, scale = np.zeros(size), np.zeros(size), 1.0
    for j in range(size):
        expected = min(max(prior[j] * scale, 1e-4), LIMIT)
        weight = PRIOR_WEIGHT + reached[j]
        mean[j] = min((PRIOR_WEIGHT * expected + accepted[j]) / weight, LIMIT)
        variance[j] = mean[j] * (1.0 - mean[j]) / (weight + 1.0)
        scale = mean[j] / prior[j] if prior[j] > 0 else 0.0
    survival = np.cumprod(mean)
    length = 1.0 + np.concatenate(([0.0], np.cumsum(survival)))
    # dAL(K)/da_j = (S_j + ... + S_K) / a_j
    tail = np.maximum(length[None, :] - length[:size, None], 0.0) / np.maximum(mean, 1e-9)[:, None]
    deviation = np.asarray(np.sqrt(np.sum(tail**2 * variance[:, None], axis=0)) / length)
    return AcceptanceModel(np.asarray(survival), np.asarray(length), deviation)


def _padded(values: tuple[float, ...], size: int) -> Array:
    out = np.zeros(size)
    known = values[:size]
    out[: len(known)] = known
    return out
