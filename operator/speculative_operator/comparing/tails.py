"""The 99th percentile of a latency for two objects at equal load, from histograms. Called by `verdict`.

Samples are weighted so that both objects have the same share of requests in each stratum of load. An interval of a
percentile is that of the share of requests beyond it, read off the histogram; the interval of the ratio is made of both
objects' (MOVER: G. Y. Zou, A. Donner, Statistics in Medicine 27, 2008). Within a bucket requests are spread evenly, as
Prometheus' `histogram_quantile` has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from speculative_operator.comparing.matching import Difference, Matched
from speculative_operator.comparing.measures import Sample
from speculative_operator.comparing.sequential import Floats, half_width
from speculative_operator.domain.observation import Histogram

BEYOND = 0.01
"""Share of the requests that the 99th percentile leaves beyond it."""
FEWEST_BEYOND = 10.0
"""Requests beyond the end of an interval, below which that end is not known."""


@dataclass(frozen=True, slots=True)
class _Percentile:
    """Of one object, in seconds; an end of the interval that is not known is None."""

    value: float
    low: float | None = None
    high: float | None = None


def tails(matched: Matched, histogram: Callable[[Sample], Histogram], error: float) -> Difference | None:
    """How far the percentiles differ; None where histograms are missing or have different buckets."""
    found = matched.only([bool(histogram(one)) for one in matched.samples])
    bounds = {tuple(bound for bound, _ in histogram(one)) for one in found.samples}
    if len(bounds) != 1:
        return None
    edges = np.array(bounds.pop())
    counts = np.array([[count for _, count in histogram(one)] for one in found.samples])
    requests = counts.sum(axis=1)
    by_side = [np.bincount(found.stratum, requests * (found.of_b == side)) for side in (0.0, 1.0)]
    common = by_side[0] * by_side[1] / np.maximum(by_side[0] + by_side[1], 1e-12)
    weights = [
        np.where(found.of_b == side, (common / np.maximum(own, 1e-12))[found.stratum], 0.0)
        for side, own in enumerate(by_side)
    ]
    a, b = (_percentile(edges, counts, own, found, error / 2) for own in weights)
    if a is None or b is None:
        return None
    middle, low, high = math.log(b.value / a.value), None, None
    if b.low is not None and a.high is not None:
        low = middle - math.hypot(math.log(b.value / b.low), math.log(a.high / a.value)) - matched.slack
    if b.high is not None and a.low is not None:
        high = middle + math.hypot(math.log(b.high / b.value), math.log(a.value / a.low)) + matched.slack
    return Difference(a.value, b.value, low, high)


def _percentile(edges: Floats, counts: Floats, weights: Floats, matched: Matched, error: float) -> _Percentile | None:
    """Of the object whose samples have a weight; `counts`: of each sample, by bucket."""
    total = weights @ counts
    every = float(total.sum())
    value = _quantile(edges, total, BEYOND) if every > 0 else None
    if value is None:
        return None
    beyond = np.array([_beyond(edges, one, value) for one in counts])
    own = weights > 0
    influences = (weights * (beyond - BEYOND * counts.sum(axis=1)))[own] / (BEYOND * every)
    if float(np.abs(influences).max()) < 1e-9:  # all requests are in one bucket, in which nothing is told apart
        return _Percentile(value)
    width = half_width(influences, matched.moment[own], matched.seconds, error)
    if width is None:
        return _Percentile(value)
    shares = [BEYOND * math.exp(width), BEYOND * math.exp(-width)]
    ends = [_quantile(edges, total, share) if share * every >= FEWEST_BEYOND else None for share in shares]
    return _Percentile(value, *ends)


def _quantile(edges: Floats, counts: Floats, beyond: float) -> float | None:
    """The bound that a share of the requests lies beyond; None where it is in the last bucket, which has no end."""
    below = np.cumsum(counts)
    wanted = (1.0 - min(beyond, 1.0)) * float(below[-1])
    place = int(np.searchsorted(below, wanted))
    if place >= len(edges) - 1:
        return None
    first, before = (float(edges[place - 1]), float(below[place - 1])) if place else (0.0, 0.0)
    found = first + (float(edges[place]) - first) * (wanted - before) / max(float(counts[place]), 1e-12)
    return found if found > 0 else None


def _beyond(edges: Floats, counts: Floats, value: float) -> float:
    """Requests beyond a value, which is below the last bucket."""
    below = np.cumsum(counts)
    return float(below[-1] - np.interp(value, [0.0, *edges[:-1]], [0.0, *below[:-1]]))
