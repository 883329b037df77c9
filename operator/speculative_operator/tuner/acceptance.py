"""Learning what drafts earn: a Beta posterior of the conditional acceptance of each draft position.

Called by learning (each window) and outlook (acceptance length for every K). Counts are divided by ten, because
accepted tokens of one request come in clusters (design effects of 2-20 were measured over data sets and methods). What
was seen of a position fades as more of it is seen, so that knowledge of deep positions outlives the time spent at a
small K. Positions beyond the K of the evidence continue as the run lengths behind it do; where it holds hardly more
than one position, they follow the prior's shape, scaled by how the one before turned out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from speculative_operator.domain.table import KTable
from speculative_operator.physics.acceptance import conditionals, fit_run_lengths
from speculative_operator.tuner.prior import Array

DEFLATION = 10.0
FORGET_DRAFTS = 20_000.0
FORGET_SECONDS = 60.0
"""At high load 20,000 drafts pass in seconds, and requests still live longer: evidence lasts a minute at least."""
STALE_SECONDS = 3600.0
"""Evidence that nothing renews fades with this time constant."""
PRIOR_WEIGHT = 50.0
"""Weight of the prior of each position, in effective (deflated) drafts, where the counts do not contradict it."""
CONTRADICTED = 2.0
"""Standard deviations by which counts and prior differ from which the prior loses weight."""
PAIR_SD = 0.2
"""Log standard deviation of what the conditionals of one pair have in common beyond the prior of its kind of speculator
and text: acceptance lengths of 24 EAGLE-3 heads in the catalogue lie .23 from it (root mean square)."""
LIMIT = 0.995
"""No position is believed to be accepted more surely than this."""
WHOLE = 0.02
"""A mean K this close to a whole number is taken as one K in all steps."""
NEAR = 1.5
"""Batch sizes within this factor of the window's mean are taken to have occurred in it."""
DRIFT = 0.75
ALARM = 8.0
"""CUSUM of accepted drafts, in standard deviations: the slack per window, and the sum that counts as a change."""
KEPT_AFTER_CHANGE = 0.1
PRIOR_ERRS = 0.5
"""Earlier evidence that errs by less than this share of the posterior's error shows that nothing has changed."""
FITTED_FROM = 1.5
"""Mean K of the evidence from which run lengths, rather than the prior's shape, say how deeper positions fare."""
LEAST_FACTOR, MOST_FACTOR = 0.6, 1.6
"""Limits of the factor by which another K changes the acceptance length: the largest published effect is 39 %."""
HALVINGS = 24
"""Halvings of the interval in which `mean_sample` seeks its factor: they give seven digits."""
MODEL_SHARE = 0.02
"""Share of the expected count by which the posterior may err although nothing has changed."""


@dataclass(frozen=True, slots=True)
class AcceptanceEvidence:
    """Effective counts per draft position: how often reached, how often accepted; `drafts`: raw drafts remembered."""

    reached: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    drafts: float = 0.0
    mean_k: float = 0.0
    """Mean K at which the evidence was gathered; the latest windows count most."""
    rising: float = 0.0
    falling: float = 0.0
    """CUSUM of accepted drafts above (`rising`) and below (`falling`) the expected number."""


@dataclass(frozen=True, slots=True)
class DraftSample:
    """Counts from one or more windows: how often each draft position was reached and accepted; `drafts`: all drafts."""

    reached: tuple[float, ...]
    accepted: tuple[float, ...]
    drafts: float
    mean_k: float = 0.0


@dataclass(frozen=True, eq=False)
class AcceptanceModel:
    """Posterior: `survival[j-1]` = S_j as seen at the K of the evidence, and for K = 0..max the acceptance length.

    `gradient[K, j]` is the derivative of log length by the conditional of position j + 1, whose variance is
    `variance[j]`: what two K have in common cancels in their ratio.
    """

    survival: Array
    length: Array
    gradient: Array
    variance: Array
    common: float
    """Log standard deviation that all conditionals share: how far this pair may be from others of its kind."""

    def deviation(self, k: NDArray[np.int64], against: NDArray[np.int64]) -> Array:
        """Log standard deviation of the ratio of the acceptance lengths at `k` and `against`; arrays broadcast."""
        apart = self.gradient[k] - self.gradient[against]
        together = self.common * np.sum(apart * conditionals(self.survival), axis=-1)
        return np.asarray(np.sqrt(np.sum(apart**2 * self.variance, axis=-1) + together**2))


def usable_positions(mean_k: float, batch: float, tables: tuple[KTable, ...]) -> tuple[int, float]:
    """(positions that every step drafted, share of steps that drafted one more) of a window of mean K `mean_k`.

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


def draft_sample(
    drafts: float, per_position: tuple[float, ...], certain: int, share: float, mean_k: float = 0.0
) -> DraftSample:
    """The sample from counters: position j is reached as often as position j-1 was accepted; position 1: each draft."""
    reached, accepted, before = [], [], drafts
    for position, count in enumerate(per_position, start=1):
        exposure = before if position <= certain else share * before if position == certain + 1 else 0.0
        reached.append(exposure)
        accepted.append(min(count, exposure))
        before = count
    return DraftSample(tuple(reached), tuple(accepted), drafts, mean_k)


def exact_sample(tried: tuple[float, ...], accepted: tuple[float, ...], mean_k: float) -> DraftSample:
    """The sample where the engine tells how often each position was drafted (`tried`). Survival is `accepted / tried`
    whatever K were mixed; position j is reached by the share of its drafts that survives position j - 1."""
    reached, survived = [], 1.0
    for drafts, taken in zip(tried, accepted, strict=True):
        reached.append(max(drafts * survived, taken))
        survived = min(taken / drafts, survived) if drafts > 0 else 0.0
    return DraftSample(tuple(reached), accepted, tried[0] if tried else 0.0, mean_k)


def mean_sample(drafts: float, accepted: float, mean_k: float, prior: Array) -> DraftSample:
    """The sample where the engine tells only the number of accepted drafts (SGLang): the conditionals of `prior`,
    scaled by the one factor that explains this number."""
    whole = min(max(int(mean_k), 0), len(prior))
    tried = np.array([1.0] * whole + ([mean_k - whole] if whole < min(mean_k, len(prior)) else []))
    expected = np.minimum(prior[: len(tried)], LIMIT)
    low, high = 0.0, LIMIT / max(float(expected.min(initial=LIMIT)), 1e-3)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        more = float(np.cumprod(np.minimum(expected * middle, LIMIT)) @ tried) * drafts < accepted
        low, high = (middle, high) if more else (low, middle)
    taken = np.cumprod(np.minimum(expected * low, LIMIT)) * tried
    return exact_sample(tuple((drafts * tried).tolist()), tuple((drafts * taken).tolist()), mean_k)


def learn_acceptance(
    evidence: AcceptanceEvidence, sample: DraftSample, prior: Array, elapsed: float = math.inf
) -> AcceptanceEvidence:
    """Evidence after `sample` of `elapsed` seconds, for the positions of `prior`; a change cuts the old counts."""
    positions = len(prior)
    evidence = _cut_on_change(evidence, sample, prior)
    old_reached, old_accepted = _pad(evidence.reached, positions), _pad(evidence.accepted, positions)
    new_reached, new_accepted = _pad(sample.reached, positions), _pad(sample.accepted, positions)
    keep = np.exp(-np.minimum(new_reached / FORGET_DRAFTS, elapsed / FORGET_SECONDS))
    share = min(sample.drafts / FORGET_DRAFTS, elapsed / FORGET_SECONDS)
    new = 1.0 if evidence.drafts <= 0 else sample.drafts / (math.exp(-share) * evidence.drafts + sample.drafts)
    return replace(
        evidence,
        reached=tuple((keep * old_reached + new_reached / DEFLATION).tolist()),
        accepted=tuple((keep * old_accepted + new_accepted / DEFLATION).tolist()),
        drafts=math.exp(-share) * evidence.drafts + sample.drafts,
        mean_k=evidence.mean_k + new * (sample.mean_k - evidence.mean_k),
    )


def age(evidence: AcceptanceEvidence, elapsed: float) -> AcceptanceEvidence:
    """Evidence that no window has renewed for another `elapsed` seconds: the same rates with smaller counts."""
    return _scale(evidence, math.exp(-max(elapsed, 0.0) / STALE_SECONDS))


def _cut_on_change(evidence: AcceptanceEvidence, sample: DraftSample, prior: Array) -> AcceptanceEvidence:
    """Evidence with its counts cut when accepted drafts leave the expected number: Page's CUSUM in both directions."""
    if evidence.drafts <= 0 or sample.drafts <= 0:
        return evidence
    mean = _conditionals(evidence, prior)[0]
    reached, accepted = _pad(sample.reached, len(prior)), _pad(sample.accepted, len(prior))
    expected = float(reached @ mean)
    noise = float(reached @ (mean * (1.0 - mean))) * DEFLATION + (MODEL_SHARE * expected) ** 2 + 1.0
    most = ALARM + DRIFT  # one window that cannot be chance is enough
    score = min(max((float(accepted.sum()) - expected) / math.sqrt(noise), -most), most)
    rising = max(0.0, evidence.rising + score - DRIFT)
    falling = max(0.0, evidence.falling - score - DRIFT)
    if max(rising, falling) < ALARM:
        return replace(evidence, rising=rising, falling=falling)
    if abs(float(accepted.sum()) - _expected_drafts(evidence, reached, mean)) < PRIOR_ERRS * abs(
        accepted.sum() - expected
    ):
        # the prior errs, not the earlier evidence: to forget the evidence would only bring the prior back
        return replace(evidence, rising=0.0, falling=0.0)
    kept = KEPT_AFTER_CHANGE * min(sample.drafts / DEFLATION / max(evidence.reached[0], 1e-9), 1.0)
    return replace(_scale(evidence, kept), rising=0.0, falling=0.0)


def _expected_drafts(evidence: AcceptanceEvidence, reached: Array, mean: Array) -> float:
    """Accepted drafts expected from the counts alone; positions never reached take their conditional from `mean`."""
    tried, taken = _pad(evidence.reached, len(mean)), _pad(evidence.accepted, len(mean))
    return float(reached @ np.where(tried > 0, taken / np.maximum(tried, 1e-9), mean))


def acceptance(evidence: AcceptanceEvidence, prior: Array) -> AcceptanceModel:
    """Posterior from `evidence` and the prior conditionals `prior[j-1]` = a_j."""
    size = len(prior)
    mean, variance = _conditionals(evidence, prior)
    if evidence.mean_k >= FITTED_FROM and math.ceil(evidence.mean_k) < size:
        known = math.ceil(evidence.mean_k)
        runs = _hazard(tuple(np.rint(100.0 * np.cumprod(mean[:known])).astype(int).tolist()), size)
        mean, variance = _conditionals(evidence, np.concatenate((prior[:known], runs[known:])), known)
    survival = np.asarray(np.cumprod(mean))
    length: Array = 1.0 + np.concatenate(([0.0], np.cumsum(survival)))
    # dAL(K)/da_j = (S_j + ... + S_K) / a_j
    tail = np.maximum(length[:, None] - length[None, :size], 0.0) / np.maximum(mean, 1e-9)[None, :]
    gradient = tail / length[:, None]
    if evidence.mean_k >= 1.0:
        length = length * _across(survival, evidence.mean_k)
    reached = evidence.reached[0] if evidence.reached else 0.0
    common = PAIR_SD * math.sqrt(PRIOR_WEIGHT / (PRIOR_WEIGHT + reached))
    return AcceptanceModel(np.asarray(survival), np.asarray(length), np.asarray(gradient), variance, common)


def _conditionals(evidence: AcceptanceEvidence, prior: Array, anew: int = 0) -> tuple[Array, Array]:
    """Mean and variance of each conditional. The prior of a position is scaled by the ratio of mean to prior of the
    position before it; at position `anew` (counted from 0) the scale is 1 again."""
    size = len(prior)
    means, weights, scale = [], [], 1.0
    reached, accepted = (_pad(counts, size).tolist() for counts in (evidence.reached, evidence.accepted))
    for j, before in enumerate(prior.tolist()):
        scale = 1.0 if j == anew else scale
        expected = min(max(before * scale, 1e-4), LIMIT)
        weight = _prior_weight(expected, reached[j], accepted[j])
        weights.append(weight + reached[j])
        means.append(min((weight * expected + accepted[j]) / weights[j], LIMIT))
        scale = means[j] / before if before > 0 else 0.0
    mean = np.array(means)
    return mean, mean * (1.0 - mean) / (np.array(weights) + 1.0)


def _prior_weight(expected: float, reached: float, accepted: float) -> float:
    """PRIOR_WEIGHT, less where the counts contradict the prior `expected`: it is of other texts, then. So a text whose
    drafts all fail is known by two hundred of them."""
    if reached <= 0.0:
        return PRIOR_WEIGHT
    spread = expected * (1.0 - expected) * (1.0 / reached + 1.0 / PRIOR_WEIGHT)
    square = (accepted / reached - expected) ** 2 / spread
    return PRIOR_WEIGHT / max(square / CONTRADICTED**2, 1.0)


@lru_cache(maxsize=4096)
def _hazard(hundredths: tuple[int, ...], size: int) -> Array:
    """Conditionals of `size` positions, from the run lengths fitted to the survival seen (`hundredths`: in 1/100)."""
    return conditionals(fit_run_lengths(np.array(hundredths) / 100.0).survival(size))


def _across(survival: Array, seen_k: float) -> Array:
    """Factors on the plain acceptance length for K = 0..max: survival at `seen_k` differs from survival at another K.

    After a full acceptance the next step starts inside a good run; a two-geometric run length says how much that is
    worth (docs/tuning-mathematics.md). It changes slowly, so survival is rounded to a hundredth and the answer kept.
    """
    known = survival[: max(1, min(len(survival), math.ceil(seen_k)))]
    return _factors(tuple(np.rint(100.0 * known).astype(int).tolist()), round(4.0 * seen_k) / 4.0, len(survival))


@lru_cache(maxsize=4096)
def _factors(hundredths: tuple[int, ...], seen_k: float, size: int) -> Array:
    """The factors of `_across` from survival in hundredths; interpolated where `seen_k` lies between two whole K."""
    runs = fit_run_lengths(np.array(hundredths) / 100.0)
    low = min(max(int(seen_k), 1), size)
    share = min(max(seen_k - low, 0.0), 1.0)
    true = np.array([1.0] + [runs.length(k) for k in range(1, size + 1)])
    whole = runs.survival(size)
    plain = (1.0 - share) * _plain(runs.survival(low), whole, size)
    if share > 0.0:
        plain = plain + share * _plain(runs.survival(min(low + 1, size)), whole, size)
    return np.asarray(np.clip(true / plain, LEAST_FACTOR, MOST_FACTOR))


def _plain(seen: Array, whole: Array, size: int) -> Array:
    """Acceptance lengths for K = 0..size by plain survival: `seen`, then the conditionals of `whole` beyond it."""
    further = seen[-1] * np.cumprod(conditionals(whole)[len(seen) :]) if len(seen) < size else np.zeros(0)
    return np.asarray(1.0 + np.concatenate(([0.0], np.cumsum(np.concatenate((seen, further))))))


def _scale(evidence: AcceptanceEvidence, scale: float) -> AcceptanceEvidence:
    return replace(
        evidence,
        reached=tuple(scale * value for value in evidence.reached),
        accepted=tuple(scale * value for value in evidence.accepted),
        drafts=scale * evidence.drafts,
    )


def _pad(values: tuple[float, ...], size: int) -> Array:
    out = np.zeros(size)
    known = values[:size]
    out[: len(known)] = known
    return out
