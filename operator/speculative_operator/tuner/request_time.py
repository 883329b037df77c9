"""Tells where requests spend their time, how a K changes the whole time of a request, and how fast requests are served.

Called by traffic (for each window) and outlook (which ranks K by the whole time); `Speed` is kept in the tuner's memory
and compared by `reconcile.table.own_rollouts`, before a rollout and after. Blocks of steps tell how fast
requests decode. Before that a request waits to be scheduled, and has its prompt computed: drafts do not help it there,
and longer steps hurt it. A request that waits for a seat or for KV memory waits until other requests end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import NamedTuple

import numpy as np

from speculative_operator.domain.observation import PodWindow
from speculative_operator.tuner.prior import Array

SEATS_FILLING, SEATS_FULL = 0.85, 0.95
MEMORY_FILLING, MEMORY_FULL = 0.7, 0.9
"""Shares of seats and of KV memory in use between which waiting requests are more and more taken to wait for them."""
MOST_QUEUED = 0.8
"""Largest share of queueing that counts in how steeply a queue grows."""
REMEMBERED = 60
"""Windows over which the means are taken."""
ENOUGH = 30
"""Least windows on each side of a comparison."""
LIKE = 0.22
"""Log requests per step by which loads may differ and still be compared: 25 %."""
SLOWER = 0.10
"""Loss of log rate that counts as slower."""


@dataclass(frozen=True, slots=True)
class TimeShares:
    """Shares of the time of all requests."""

    queued: float = 0.0
    """Share of the time before requests are first scheduled."""
    prompting: float = 0.0
    """Share of the time in which prompts of requests are computed."""
    full: float = 0.0
    """Share of `queued` in which requests wait for seats or KV memory: 1 for all of it."""
    lighter: float = 1.0
    """Share of a K's extra step time that shows in steps with prompts, which take longer by themselves."""
    filled: float = 0.0
    """Share of the time of steps by which prompts lengthen them."""

    @property
    def before_first(self) -> float:
        """Share of the time that more tokens per step do not shorten."""
        return self.prompting + (1.0 - self.full) * self.queued

    def after(self, windows: Sequence[PodWindow], max_batch: int, new: float) -> TimeShares:
        """These shares after one look at `windows`, which counts `new` of 1: means of the pods by their request-steps,
        so that no pod moves them by more than its weight. What no window tells stays as it was."""
        queued = _mean([(_queue_share(one), one.decode_request_steps) for one in windows])
        before = _mean([(_before(one), one.decode_request_steps) for one in windows])
        full = _mean([(_full(one, max_batch), one.decode_request_steps) for one in windows if one.waiting >= 1.0])
        sides = [(_sides(one, self.before_first), one.decode_request_steps) for one in windows]
        prompting = None if before is None or queued is None else before - queued
        return TimeShares(
            _toward(self.queued, queued, new),
            _toward(self.prompting, prompting, new),
            _toward(self.full, full, new),
            _toward(self.lighter, _mean([(side[0], weight) for side, weight in sides if side[0] is not None]), new),
            _toward(self.filled, _mean([(side[1], weight) for side, weight in sides if side[1] is not None]), new),
        )


class WholeTime(NamedTuple):
    """Log of the whole time of a request over its present time, and the derivatives by log seconds and log tokens."""

    longer: Array
    by_seconds: Array
    by_tokens: Array


def whole_time(shares: TimeShares, richer: Array, longer: Array) -> WholeTime:
    """The whole time of requests where steps bring log `richer` more tokens and take log `longer` without prompts.

    With queue q, prompts p and the rest d of the time, s seconds of a step, s' of one that computes prompts, and a
    tokens: once scheduled a request takes r = (p s' + d s / a) / (p + d). A queue for prompts grows with s', one for
    seats with r, both by a power that is the higher the more of the time is queueing: 1 + 1 / (1 - load) in a queue
    M/M/1, q standing for the load.
    """
    queued, scheduled = shares.queued, max(1.0 - shares.queued, 1e-3)
    power = 1.0 + 1.0 / (1.0 - min(queued, MOST_QUEUED))
    laden = 1.0 + shares.lighter * np.expm1(longer)
    laden_by_seconds = shares.lighter * np.exp(longer)
    prompting = shares.prompting / scheduled
    decoding = (1.0 - prompting) * np.exp(longer - richer)
    stay = prompting * laden + decoding
    behind_prompts = queued * (1.0 - shares.full) * laden**power
    behind_others = queued * shares.full * stay**power
    whole = behind_prompts + behind_others + scheduled * stay
    by_stay = power * behind_others / stay + scheduled
    by_seconds = power * behind_prompts / laden * laden_by_seconds + by_stay * (prompting * laden_by_seconds + decoding)
    return WholeTime(np.log(whole / (queued + scheduled)), by_seconds / whole, by_stay * decoding / whole)


@dataclass(frozen=True, slots=True)
class Speed:
    """Mean speed and load over the windows of all pods, to compare pods before and after a rollout.

    Step costs and acceptance are learned for each K and give a predicted speed; this is the measured one, independent
    of any model.
    """

    windows: int = 0
    rate: float = 0.0
    """Output tokens per second of one request."""
    requests: float = 0.0
    """Requests per step of one pod."""

    def after(self, windows: Iterable[PodWindow]) -> Speed:
        """The means after one more look; unchanged where no pod decoded."""
        seen = tuple(windows)
        decoded = sum(one.generated_tokens - one.first_tokens for one in seen)
        busy, steps = sum(one.step_seconds for one in seen), sum(one.steps for one in seen)
        batch = sum(one.decode_request_steps for one in seen)
        if not all(isfinite(one) and one > 0 for one in (decoded, busy, steps, batch)):
            return self
        weight = 1.0 / min(self.windows + 1, REMEMBERED)
        rate = self.rate + weight * (decoded / busy - self.rate)
        requests = self.requests + weight * (batch / steps - self.requests)
        return Speed(self.windows + 1, rate, requests)

    def slower_than(self, before: Speed) -> bool:
        """True where both sides have enough windows at like loads, and requests are served clearly slower than
        `before`."""
        if min(self.windows, before.windows) < ENOUGH or min(self.rate, before.rate) <= 0:
            return False
        alike = abs(log(self.requests / before.requests)) <= LIKE
        return alike and log(self.rate / before.rate) < -SLOWER


def _before(window: PodWindow) -> float:
    return window.ttft_seconds / max(window.ttft_seconds + window.step_seconds, 1e-9)


def _queue_share(window: PodWindow) -> float:
    """Share of the time before requests are scheduled: as the engine tells it, else from the numbers of requests that
    wait and whose prompts are computed (Little's law)."""
    if window.queue_seconds is not None:
        share = window.queue_seconds / max(window.ttft_seconds, 1e-9)
    else:
        share = window.waiting / max(window.waiting + max(window.running - window.batch, 0.0), 1e-9)
    return _before(window) * min(share, 1.0)


def _full(window: PodWindow, max_batch: int) -> float:
    """How likely waiting requests wait for seats or KV memory, not for prompts to be computed: 0 to 1."""
    seats = (window.running / max_batch - SEATS_FILLING) / (SEATS_FULL - SEATS_FILLING)
    memory = ((window.kv_usage or 0.0) - MEMORY_FILLING) / (MEMORY_FULL - MEMORY_FILLING)
    return min(max(seats, memory, 0.0), 1.0)


def _sides(window: PodWindow, before_first: float) -> tuple[float | None, float | None]:
    """From the blocks at the active K (see `TimeShares`): seconds of a step as blocks compare it (see `comparisons`)
    over those of one that computes prompts, and the share of all seconds by which prompts lengthen steps. None where no
    blocks tell."""
    lighter, filled = [], []
    for side in (one.beside for one in window.comparisons):
        if min(side.steps, side.seconds, side.decode_steps, side.decode_seconds) <= 0:
            continue
        plain, mean = side.decode_seconds / side.decode_steps, side.seconds / side.steps
        filled.append((max(1.0 - plain / mean, 0.0), side.seconds))
        laden, seconds = side.steps - side.decode_steps, side.seconds - side.decode_seconds
        if min(laden, seconds) > 0:
            compared = (1.0 - before_first) * plain + before_first * mean
            lighter.append((min(compared * laden / seconds, 1.0), laden))
    return _mean(lighter), _mean(filled)


def _mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    weight = sum(share for _, share in pairs)
    return sum(value * share for value, share in pairs) / weight if weight > 0 else None


def _toward(old: float, seen: float | None, new: float) -> float:
    return old if seen is None else old + new * (seen - old)
