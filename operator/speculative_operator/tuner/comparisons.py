"""Learns from the engine's comparisons: blocks of steps at a tried K beside blocks at the active K.

Called by learning (each window) and outlook (speed of every K against the active K). Blocks that follow one another
meet the same requests, prompts per second and machine, so that their difference needs no model. The cost model gives
the prediction that comparisons correct, and the figure of a K that was never tried: its error is treated as a random
walk over K, which neighbouring loads share. Seconds and tokens are learned apart: seconds of a step scatter little; the
number of accepted drafts scatters much, but every step shows it position by position.
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
"""Comparisons are pooled in bands of load, each a factor 1.4 wide, by the mean load of their blocks."""
FADE_SECONDS = 300.0
"""Time constant by which comparisons of a band of load fade, in seconds that pods serve at that band."""
STALE_SECONDS = 3600.0
"""Time constant by which comparisons of a band fade while pods serve other loads."""
SECONDS_STEP = 0.05
"""Log standard deviation of the model's error in step seconds from one K to the next."""
SECONDS_OFF = 0.10
"""Log standard deviation of that error from K = 0 to 1: the speculator's pass and another path through the engine."""
TOKENS_STEP = 0.012
"""Log standard deviation of the model's error in tokens: survival by position differs a little between two K."""
REACH, FAR = 0.6, 3.0
"""Octaves of load over which the model's error is alike: errors of single sizes, and of the speculator as a whole."""
FAR_SHARE = 0.6
"""Share of the error's variance that reaches over FAR octaves."""
SECONDS_NOISE = 0.03
"""Least log standard deviation of the step seconds of one block over those of its neighbours."""
PROMPTS_NOISE = 0.2
"""Log standard deviation of the step seconds of a block whose every step computed prompts."""
UNLIKE_NOISE = 2.0
"""Log standard deviation to add where no step of the other side computed prompts."""
TOKENS_NOISE = 0.6
"""Log standard deviation of the tokens of one block, times the square root of the requests of all its steps."""
NOISE_BLOCKS = 8.0
"""Weight of these expected deviations beside the measured scatter, in blocks."""
FEW_STEPS = 0.01
"""Share of the steps of a side below which its steps without prompts tell nothing."""
MOST_CELLS = 48
MOST_RATIO = 1.5
"""Largest log ratio that counts between a block and the blocks beside it."""


_MEANS = ("seconds", "seconds_noise", "seconds_square", "tokens", "tokens_square", "requests", "rate", "beside_rate")
"""Fields of a cell that are means over its blocks."""


@dataclass(frozen=True, slots=True)
class Cell:
    """All comparisons of one K against another in one band of load, faded and pooled."""

    band: int
    k: int
    against: int
    blocks: float
    steps: float
    """Steps of the tried blocks; `beside_steps`: steps of the blocks beside them."""
    beside_steps: float
    seconds: float
    """Mean log ratio of the seconds of a step."""
    seconds_noise: float
    """Expected variance of the log ratio of seconds of one block."""
    seconds_square: float
    tokens: float
    """Mean log ratio of tokens per request, less the ratio that acceptance by position predicts."""
    tokens_square: float
    """Scatter of the log ratio of tokens over blocks: mean square less the square of the mean."""
    requests: float
    """Scheduled requests of a step."""
    rate: float
    beside_rate: float
    """Tokens per second and request in the tried blocks (`rate`) and in those beside them."""

    @property
    def seconds_variance(self) -> float:
        """Variance of the mean `seconds`."""
        return self._variance(max(self.seconds_square - self.seconds**2, 0.0), self.seconds_noise)

    @property
    def tokens_variance(self) -> float:
        """Variance of the mean `tokens`."""
        each = TOKENS_NOISE**2 / max(self.requests * self.steps / max(self.blocks, 1e-9), 1.0)
        return self._variance(self.tokens_square, each)

    def _variance(self, measured: float, expected: float) -> float:
        scatter = (NOISE_BLOCKS * expected + self.blocks * max(measured, 0.0)) / (NOISE_BLOCKS + self.blocks)
        return max(scatter, expected / 2.0) / max(self.blocks, 1e-9)


def band_of(load: float) -> int:
    """Number of the half octave in which `load` requests fall."""
    return round(BANDS_PER_DOUBLING * math.log2(max(load, 1.0)))


def middle(band: int) -> float:
    """Number of requests in the middle of `band`."""
    return float(2.0 ** (band / BANDS_PER_DOUBLING))


def learn_comparisons(
    known: Sequence[Cell],
    windows: Sequence[PodWindow],
    fresh: Sequence[float],
    lengths: Array,
    before_first: float,
    elapsed: float,
) -> tuple[Cell, ...]:
    """The cells `known` with the comparisons of `windows` added; `fresh[i]` is the share of window i that is new.

    `lengths[K]`: tokens per step that acceptance by position predicts; `before_first`: share of their time in which
    requests await a first token; `elapsed`: seconds since the last look."""
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
    """Seconds that pods served at each band of load, mean over replicas."""
    spent: dict[int, float] = {}
    for window, share in zip(windows, fresh, strict=True):
        if window.steps > 0:
            band = band_of(window.load)
            spent[band] = spent.get(band, 0.0) + share * window.seconds / len(windows)
    return spent


def _fade(cell: Cell, spent: Mapping[int, float], elapsed: float) -> Cell:
    keep = math.exp(-spent.get(cell.band, 0.0) / FADE_SECONDS - max(elapsed, 0.0) / STALE_SECONDS)
    return replace(cell, blocks=keep * cell.blocks, steps=keep * cell.steps, beside_steps=keep * cell.beside_steps)


def _cell(one: Comparison, share: float, lengths: Array, before_first: float) -> Cell | None:
    """One comparison as a cell; None where a figure of it is 0 or its K is unknown."""
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

    The ratio comes from steps without prompts, where both sides have some. With the same prompts per second, steps with
    prompts grow by the same ratio; with the same prompts per step, as where most requests await their first token, the
    time that prompts take stays the same.
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
    """Log speed of every K over that of the active K, [point, K], and its standard deviation."""

    mean: Array
    deviation: Array
    richer: Array
    """Log tokens of a step over those at the active K, and below its variance."""
    tokens: Array
    longer: Array
    """Log seconds of a step without prompts over those at the active K, and below its variance."""
    seconds: Array


@dataclass(frozen=True)
class CellQuery:
    """A query for the speed of every K of a policy at every point of the grid, with the cells that answer it."""

    points: Array
    ks: Array
    """Every K of the policy."""
    active_ks: Array
    """Active K at each point."""
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
        """Column of the K that each cell compared it with."""
        return np.searchsorted(self.ks, [cell.against for cell in self.cells])

    def misfit(self, step: float, off: float) -> tuple[Array, Array, Array]:
        """The model's error: variance of each K's difference from the active K [point, K], covariance of it with the
        cells' measurements [point, K, cell], and covariance of the measurements with one another [cell, cell]."""
        walk = np.where(self.ks < 1, 0.0, self.ks - 1.0 + (off / step) ** 2)
        active_walk = np.where(self.active_ks < 1, 0.0, self.active_ks - 1.0 + (off / step) ** 2)[:, None]
        k, beside = walk[self.trial_columns], walk[self.beside_columns]
        alike = _alike(self.points[:, None], self.points[self.places][None, :])[:, None, :]
        across = alike * _overlap(walk[None, :, None], active_walk[:, :, None], k, beside)
        own = _overlap(k[:, None], beside[:, None], k[None, :], beside[None, :])
        own = own * _alike(self.points[self.places][:, None], self.points[self.places][None, :])
        return step**2 * np.abs(walk[None, :] - active_walk), step**2 * across, step**2 * own


def update(prior: Array, across: Array, own: Array, noise: Sequence[float], news: Array) -> tuple[Array, Array]:
    """(correction of the prediction by the evidence, remaining variance), both [point, K].

    `prior`: variance without evidence; `across` [point, K, cell]: its covariance with the cells' measurements; `own`:
    covariance of these with one another; `noise`: variance of measuring; `news`: measured less predicted values.
    """
    gain = across @ np.linalg.inv(own + np.diag(noise))
    return gain @ news, np.maximum(prior - np.sum(gain * across, axis=-1), 0.0)


def _alike(points: Array, others: Array) -> Array:
    """Correlation of the model's errors at two loads."""
    apart = np.log2(points / others)
    far, near = (np.exp(-0.5 * (apart / octaves) ** 2) for octaves in (FAR, REACH))
    return np.asarray(FAR_SHARE * far + (1.0 - FAR_SHARE) * near)


def _overlap(k: Array, held: Array, other_k: Array, other_held: Array) -> Array:
    """Length over which two differences of a walk overlap; negative where they run in opposite directions."""
    low = np.minimum(k, other_k) + np.minimum(held, other_held)
    return np.asarray(low - np.minimum(k, other_held) - np.minimum(held, other_k))
