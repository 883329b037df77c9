"""Turns the buckets of an engine's latency histograms into the observations of one window. Used by the metric readers.

Buckets are read beside everything else of a pod: where one is missing, has fallen or contradicts another, that
histogram is unknown and the window stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from speculative_operator.domain.observation import Histogram, PodWindow, Series
from speculative_operator.engines.samples import EXACT_BELOW, SAME_SCRAPE_SECONDS

_LE = "le"


class _UnusableError(Exception):
    """Why a histogram is unknown. Raised and caught in this module only."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Names of the series that hold an engine's buckets."""

    tpot: str
    """Seconds per output token after the first, of each request, observed when it ends."""
    ttft: str
    """Seconds to the first token, of each request."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.tpot, self.ttft))

    def add_to(self, window: PodWindow, tracks: Sequence[Series]) -> PodWindow:
        """`window` with its latency histograms, read from `tracks`, which are series of one scrape target."""
        found = {name: [track for track in tracks if track.name == name] for name in self.names}
        return replace(
            window,
            tpot_histogram=histogram(found[self.tpot], window.start, window.end),
            ttft_histogram=histogram(found[self.ttft], window.start, window.end),
        )


def histogram(tracks: Iterable[Series], start: float, end: float) -> Histogram:
    """Observations by bucket between the scrapes at `start` and `end`, added over engines; empty when unknown."""
    sets: dict[frozenset[tuple[str, str]], list[Series]] = {}
    for track in tracks:
        labels = frozenset(item for item in track.labels.items() if item[0] != _LE)
        sets.setdefault(labels, []).append(track)
    try:
        found = [grown for own in sets.values() if (grown := _growth(own, start, end))]
        return _sum(found)
    except _UnusableError:
        return ()


def _sum(found: Sequence[Mapping[float, float]]) -> Histogram:
    bounds = sorted(found[0]) if found else []
    if any(sorted(one) != bounds for one in found) or (bounds and bounds[-1] != math.inf):
        raise _UnusableError("buckets differ, or the last one is missing")
    whole = [math.fsum(one[bound] for one in found) for bound in bounds]
    if any(later < earlier for earlier, later in pairwise(whole)):
        raise _UnusableError("a bucket holds more than a larger one")
    return tuple((bound, after - before) for bound, before, after in zip(bounds, [0.0, *whole], whole, strict=False))


def _growth(tracks: Iterable[Series], start: float, end: float) -> dict[float, float]:
    """Growth of each bucket of one label set, by its bound. All buckets of a new label set began at 0 together.

    Raises _UnusableError where a bucket ends too early, occurs twice or has fallen.
    """
    grown: dict[float, float] = {}
    news: set[bool] = set()
    low, high = start - SAME_SCRAPE_SECONDS, end + SAME_SCRAPE_SECONDS
    for track in tracks:
        bound = _parse_bound(track.labels.get(_LE, ""))
        inside = sorted(sample for sample in track.samples if low <= sample[0] <= high)
        if not inside or inside[-1][0] < end - SAME_SCRAPE_SECONDS or bound in grown:
            raise _UnusableError("a bucket ends before the window, or is there twice")
        new = inside[0][0] > start + SAME_SCRAPE_SECONDS
        before = least = 0.0 if new else inside[0][1]
        for _, value in inside:
            if not least <= value < EXACT_BELOW or value < 0:
                raise _UnusableError("a bucket fell or is no count")
            least = value
        news.add(new)
        grown[bound] = least - before
    if len(news) > 1:
        raise _UnusableError("a scrape was read by half")
    return grown


def _parse_bound(text: str) -> float:
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if not bound > 0:
        raise _UnusableError(f"le {text!r} is no bound")
    return bound
