"""Computes the P99 of a latency from the engine's histogram, with the interval that its buckets and requests allow.

Called by targets. A histogram knows no more than in which bucket a request fell, so the interval is never narrower than
a bucket; few requests make it wider.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from speculative_operator.domain.observation import Histogram

SLOW_SHARE = 0.01
"""Share of the requests that may take longer than a P99."""
ODDS = 100.0
"""Odds against a true P99 beyond one end of its interval, for independent requests."""
MOST_REQUESTS = 1e9
"""Requests in a bucket that no pod has within a window."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds between which a P99 lies. 0 and infinity: not known."""

    low: float = 0.0
    high: float = math.inf

    def __str__(self) -> str:
        low, high = f"{1e3 * self.low:g}", f"{1e3 * self.high:g}"
        if self.high == math.inf:
            return f"above {low} ms" if self.low else "unknown"
        return f"{low} to {high} ms" if self.low else f"below {high} ms"


def p99(histogram: Histogram) -> Bounds:
    """The P99 of the requests in `histogram`."""
    whole = requests(histogram)
    low, high, above = 0.0, math.inf, whole
    for bound, count in histogram:
        above -= count
        sure = whole * _divergence(max(above, 0.0) / whole) >= math.log(ODDS) if whole > 0 else False
        if sure and above > SLOW_SHARE * whole:
            low = bound
        elif sure and high == math.inf:
            high = bound
    return Bounds(low, high)


def requests(histogram: Histogram) -> float:
    """The number of requests in `histogram`."""
    return math.fsum(count for _, count in histogram)


def slow(histogram: Histogram, seconds: float) -> float:
    """Requests that surely took longer than `seconds`: requests in buckets that begin at or above it."""
    begins = (0.0, *(bound for bound, _ in histogram))
    return math.fsum(count for begin, (_, count) in zip(begins, histogram, strict=False) if begin >= seconds)


def fall(before: tuple[float, float], after: tuple[float, float]) -> float:
    """By how many standard deviations the share of slow requests is smaller after than before; each: (slow, all)."""
    (slow_before, all_before), (slow_after, all_after) = before, after
    if all_before <= 0 or all_after <= 0:
        return 0.0
    share = (slow_before + slow_after) / (all_before + all_after)
    deviation = math.sqrt(share * (1.0 - share) * (1.0 / all_before + 1.0 / all_after))
    return (slow_before / all_before - slow_after / all_after) / deviation if deviation > 0 else 0.0


def add(kept: Histogram, seen: Iterable[tuple[Histogram, float]], keep: float) -> Histogram:
    """`kept` faded to `keep` of itself, with each histogram of `seen` by its share that is new.

    Pods whose buckets differ from those of most requests are left out: their counts cannot be added.
    """
    believable = [(histogram, share) for histogram, share in seen if is_believable(histogram)]
    weights: Counter[tuple[float, ...]] = Counter()
    for histogram, share in believable:
        weights[_edges(histogram)] += share * requests(histogram)  # type: ignore[assignment]  # weights are no counts
    if not weights:
        return tuple((bound, keep * count) for bound, count in kept)
    edges = max(weights, key=lambda one: (weights[one], one))
    old = [keep * count for _, count in kept] if _edges(kept) == edges else [0.0] * len(edges)
    for histogram, share in believable:
        if _edges(histogram) == edges:
            old = [count + share * more for count, (_, more) in zip(old, histogram, strict=True)]
    return tuple(zip(edges, old, strict=True))


def is_believable(histogram: Histogram) -> bool:
    """True where the bounds ascend from above 0 to infinity and every count is possible."""
    bounds = _edges(histogram)
    counts = all(0.0 <= count <= MOST_REQUESTS for _, count in histogram)
    ascend = all(one < other for one, other in pairwise((0.0, *bounds)))
    return bool(bounds) and ascend and bounds[-1] == math.inf and counts


def _edges(histogram: Histogram) -> tuple[float, ...]:
    return tuple(bound for bound, _ in histogram)


def _divergence(share: float) -> float:
    """Per request, how unlikely it is to see `share` slow ones where the P99 is met exactly (Chernoff's bound: the
    chance is at most exp(-requests x this))."""
    other = 1.0 - share
    part = share * math.log(share / SLOW_SHARE) if share > 0 else 0.0
    return part + (other * math.log(other / (1.0 - SLOW_SHARE)) if other > 0 else 0.0)
