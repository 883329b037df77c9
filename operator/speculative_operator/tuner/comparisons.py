"""What the engine's own comparisons tell: tried blocks of steps beside blocks at the K in force.

Called by learning (each window) and outlook (speed of every K against the one in force). Blocks that follow one another
meet the same requests, prompts per second and machine, so that their difference needs no model. The model is where they
begin, and what stands for a K that was never tried: what it errs by is taken for a walk over K, which neighbouring
loads share. Seconds and tokens are learned apart: seconds of a step scatter little; how many drafts are accepted
scatters much, but is seen position by position in every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from speculative_operator.domain.observation import BlockTotals, Comparison, PodWindow
from speculative_operator.tuner.grid import nearest
from speculative_operator.tuner.prior import Array

BANDS_PER_DOUBLING = 2.0
"""Comparisons are put together in bands of a factor 1.4, by the mean load of their blocks."""
FADE_SECONDS = 300.0
"""Time constant by which comparisons of a band are forgotten, in seconds of that band."""
STALE_SECONDS = 3600.0
"""The same while other loads are served."""
SECONDS_STEP = 0.05
"""What the model may err in seconds from one K to the next, log standard deviation."""
SECONDS_OFF = 0.10
"""The same from K = 0 to 1: a speculator's pass more, and another path through the engine."""
TOKENS_STEP = 0.012
"""The same in tokens: survival by position, seen at one K, is not quite that at another."""
REACH, FAR = 0.6, 3.0
"""Octaves of load over which what the model errs is alike: of single sizes, and of the speculator as a whole."""
FAR_SHARE = 0.6
"""Share of the variance that is of the latter kind."""
SECONDS_NOISE = 0.03
"""Least log standard deviation of one block beside its neighbours."""
STALL = 0.2
"""Log seconds by which a K may differ from what was expected before a stall is the likelier reason."""
PROMPTS_NOISE = 0.2
"""The same of blocks whose every step computed prompts."""
UNLIKE_NOISE = 2.0
"""The same where no step of the other side computed prompts."""
TOKENS_NOISE = 0.6
"""The same of tokens, over the square root of the requests of all steps of a block."""
NOISE_BLOCKS = 8.0
"""Blocks for which these count before the scatter that was measured does."""
FEW_STEPS = 0.01
"""Share of the steps of a side below which those without prompts tell nothing."""
MOST_CELLS = 48
MOST_RATIO = 1.5
"""No block counts as further from those beside it than this, log."""


_MEANS = ("seconds", "seconds_noise", "seconds_square", "tokens", "tokens_square", "requests", "rate", "beside_rate")
"""What of a cell is a mean over its blocks."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Everything compared of one K against another in one band of load, faded."""

    band: int
    k: int
    against: int
    blocks: float
    steps: float
    """Of the tried blocks, and below those of the blocks beside them."""
    beside_steps: float
    seconds: float
    """Mean log ratio of the seconds of a step."""
    seconds_noise: float
    """Variance of one block, as expected."""
    seconds_square: float
    tokens: float
    """Mean log ratio of tokens per request, less what acceptance by position says of it."""
    tokens_square: float
    """As `seconds_square`, mean over blocks, of the whole ratio."""
    requests: float
    """Scheduled requests of a step."""
    rate: float
    beside_rate: float
    """Tokens per second and request, tried and beside."""

    def seconds_variance(self, apart: float) -> float:
        """Of the mean, which is `apart` from what was expected: of few blocks one may have met a stall of the engine,
        so that a distance beyond STALL counts like the scatter of one more."""
        scatter = max(self.seconds_square - self.seconds**2, 0.0)
        stalled = max(abs(apart) - STALL, 0.0) ** 2 / max(self.blocks, 1e-9)
        return self._variance(scatter + stalled, self.seconds_noise)

    @property
    def tokens_variance(self) -> float:
        """Of the mean."""
        each = TOKENS_NOISE**2 / max(self.requests * self.steps / max(self.blocks, 1e-9), 1.0)
        return self._variance(self.tokens_square, each)

    def _variance(self, measured: float, expected: float) -> float:
        scatter = (NOISE_BLOCKS * expected + self.blocks * max(measured, 0.0)) / (NOISE_BLOCKS + self.blocks)
        return max(scatter, expected / 2.0) / max(self.blocks, 1e-9)


def band_of(load: float) -> int:
    """Number of the half octave in which `load` requests fall."""
    return round(BANDS_PER_DOUBLING * math.log2(max(load, 1.0)))


def middle(band: int) -> float:
    """Requests in the middle of a band."""
    return float(2.0 ** (band / BANDS_PER_DOUBLING))


def learn_comparisons(
    known: Sequence[Cell],
    windows: Sequence[PodWindow],
    fresh: Sequence[float],
    lengths: Array,
    before_first: float,
    elapsed: float,
) -> tuple[Cell, ...]:
    """`known` after one look at all replicas; `lengths[K]` are tokens per step by acceptance by position,
    `before_first` the share of their time that requests await a first token."""
    spent = _seconds_in_bands(windows, fresh)
    cells = {(cell.band, cell.k, cell.against): _fade(cell, spent, elapsed) for cell in known}
    for window, share in zip(windows, fresh, strict=True):
        for one in window.comparisons:
            measured = _cell(one, share, lengths, before_first)
            if measured is not None:
                key = (measured.band, measured.k, measured.against)
                cells[key] = _both(cells[key], measured) if key in cells else measured
    most = sorted(cells.values(), key=lambda cell: (-cell.blocks, cell.band, cell.k, cell.against))[:MOST_CELLS]
    return tuple(sorted((cell for cell in most if cell.blocks >= 0.05), key=lambda c: (c.band, c.k, c.against)))


def _seconds_in_bands(windows: Sequence[PodWindow], fresh: Sequence[float]) -> dict[int, float]:
    """Seconds spent at each band, mean over replicas."""
    spent: dict[int, float] = {}
    for window, share in zip(windows, fresh, strict=True):
        if window.steps > 0:
            band = band_of(window.scheduled)
            spent[band] = spent.get(band, 0.0) + share * window.seconds / len(windows)
    return spent


def _fade(cell: Cell, spent: Mapping[int, float], elapsed: float) -> Cell:
    keep = math.exp(-spent.get(cell.band, 0.0) / FADE_SECONDS - max(elapsed, 0.0) / STALE_SECONDS)
    return replace(cell, blocks=keep * cell.blocks, steps=keep * cell.steps, beside_steps=keep * cell.beside_steps)


def _cell(one: Comparison, share: float, lengths: Array, before_first: float) -> Cell | None:
    """One comparison as a cell, or None where it says nothing."""
    tried, beside = one.trial, one.beside
    figures = (
        *(one.blocks, share, tried.steps, beside.steps, tried.requests, beside.requests),
        *(tried.tokens, beside.tokens, tried.request_seconds, beside.request_seconds),
    )
    if min(figures) <= 0 or max(one.k, one.against) >= len(lengths):
        return None
    seconds, noise = _seconds(tried, beside, before_first)
    tokens = _log_ratio(tried.tokens / tried.requests, beside.tokens / beside.requests)
    expected = math.log(lengths[one.k] / lengths[one.against])
    return Cell(
        band=band_of(tried.requests / tried.steps),
        k=one.k,
        against=one.against,
        blocks=share * one.blocks,
        steps=share * tried.steps,
        beside_steps=share * beside.steps,
        seconds=seconds,
        seconds_noise=noise,
        seconds_square=min(one.seconds_square / one.blocks, MOST_RATIO**2),
        tokens=tokens - expected,
        tokens_square=max(min(one.tokens_square / one.blocks, MOST_RATIO**2) - tokens**2, 0.0),
        requests=tried.requests / tried.steps,
        rate=tried.tokens / tried.request_seconds,
        beside_rate=beside.tokens / beside.request_seconds,
    )


def _seconds(trial: BlockTotals, beside: BlockTotals, before_first: float) -> tuple[float, float]:
    """(log ratio of the seconds of a step, variance of one block).

    Steps without prompts tell it, where both sides have some: with as many prompts a second, steps with and without
    grow alike; with as many a step, as where most requests await their first token, what prompts take stays.
    """
    plainly = [side.decode_steps / side.steps for side in (trial, beside)]
    comparable = min(plainly) >= FEW_STEPS
    if not comparable or min(trial.decode_seconds, beside.decode_seconds) <= 0:
        per = beside.request_seconds / beside.requests
        return _log_ratio(trial.request_seconds / trial.requests, per), PROMPTS_NOISE**2 + (
            UNLIKE_NOISE * max(plainly)
        ) ** 2
    plain = beside.decode_seconds / beside.decode_steps
    slower = _log_ratio(trial.decode_seconds / trial.decode_steps, plain)
    share = min(plain * beside.steps / beside.seconds, 1.0)
    seconds = (1.0 - before_first) * slower + before_first * math.log1p(math.expm1(slower) * share)
    return seconds, SECONDS_NOISE**2 * trial.steps / trial.decode_steps


def _log_ratio(one: float, other: float) -> float:
    return min(max(math.log(one / other), -MOST_RATIO), MOST_RATIO)


def _both(one: Cell, other: Cell) -> Cell:
    blocks = one.blocks + other.blocks
    share = other.blocks / blocks
    mixed = {name: getattr(one, name) + share * (getattr(other, name) - getattr(one, name)) for name in _MEANS}
    return replace(
        one,
        blocks=blocks,
        steps=one.steps + other.steps,
        beside_steps=one.beside_steps + other.beside_steps,
        **mixed,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """Log speed of every K over that of the K in force, [point, K], and its standard deviation."""

    mean: Array
    deviation: Array


@dataclass(frozen=True)
class CellQuery:
    """What is asked about, and what of `cells` can answer: K of a policy at points of the grid."""

    points: Array
    ks: Array
    """Every K of the policy."""
    active_ks: Array
    """K in force at each point."""
    cells: tuple[Cell, ...]
    max_batch: int

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Grid point of each cell."""
        return np.array([nearest(middle(cell.band), self.max_batch) for cell in self.cells], dtype=np.int64)

    @cached_property
    def trial_columns(self) -> NDArray[np.int64]:
        """Column of the K that each cell tried."""
        return np.searchsorted(self.ks, [cell.k for cell in self.cells])

    @cached_property
    def beside_columns(self) -> NDArray[np.int64]:
        """Column of the K beside it."""
        return np.searchsorted(self.ks, [cell.against for cell in self.cells])

    def misfit(self, step: float, off: float) -> tuple[Array, Array, Array]:
        """What the model may err: variance [point, K] of the difference from the K in force, its covariance with what
        cells measured [point, K, cell], and that of cells with one another."""
        walk = np.where(self.ks < 1, 0.0, self.ks - 1.0 + (off / step) ** 2)
        active_walk = np.where(self.active_ks < 1, 0.0, self.active_ks - 1.0 + (off / step) ** 2)[:, None]
        k, beside = walk[self.trial_columns], walk[self.beside_columns]
        alike = _alike(self.points[:, None], self.points[self.places][None, :])[:, None, :]
        across = alike * _overlap(walk[None, :, None], active_walk[:, :, None], k, beside)
        own = _overlap(k[:, None], beside[:, None], k[None, :], beside[None, :])
        own = own * _alike(self.points[self.places][:, None], self.points[self.places][None, :])
        return step**2 * np.abs(walk[None, :] - active_walk), step**2 * across, step**2 * own


def update(prior: Array, across: Array, own: Array, noise: Sequence[float], news: Array) -> tuple[Array, Array]:
    """(what evidence adds to a prediction, variance that is left), [point, K].

    `prior` is the variance without evidence, `across` [point, K, cell] its covariance with what cells measured, `own`
    theirs with one another, `noise` the variance of measuring, `news` what was measured less what was predicted.
    """
    gain = across @ np.linalg.inv(own + np.diag(noise))
    return gain @ news, np.maximum(prior - np.sum(gain * across, axis=-1), 0.0)


def _alike(points: Array, others: Array) -> Array:
    """How far what the model errs at one load is what it errs at another."""
    apart = np.log2(points / others)
    far, near = (np.exp(-0.5 * (apart / octaves) ** 2) for octaves in (FAR, REACH))
    return np.asarray(FAR_SHARE * far + (1.0 - FAR_SHARE) * near)


def _overlap(k: Array, held: Array, other_k: Array, other_held: Array) -> Array:
    """What two differences share of a walk: the length that they overlap, negative where they run against another."""
    low = np.minimum(k, other_k) + np.minimum(held, other_held)
    return np.asarray(low - np.minimum(k, other_held) - np.minimum(held, other_k))
