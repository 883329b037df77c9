"""Raw samples of one pod -> exact differences between two scrapes, or the reason why there are none.

Engine-neutral; used by the metric readers of the adapters. Nothing is extrapolated, interpolated or filled in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from speculative_operator.domain.observation import Histogram, PodWindow, Series
from speculative_operator.domain.reasons import Reason

Samples = tuple[tuple[float, float], ...]

EXACT_BELOW = 2.0**53
"""From here on a float no longer counts in ones; no counter of an engine gets there in a thousand years."""
SAME_SCRAPE_SECONDS = 0.05
"""Samples of one scrape carry one timestamp; this much is rounding on the way."""


class UnreadableError(Exception):
    """Why a pod yields no window. Only readers raise and catch it."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Need:
    """The series that a reader needs of a pod. `gauges` are sampled; all others but `infos` are counters."""

    required: tuple[str, ...]
    """Names without which nothing can be said; they must cover the same engines. The first one is a counter."""
    gauges: frozenset[str]
    infos: frozenset[str]
    """Series whose labels are the information; their values and ages are not looked at."""


@dataclass(frozen=True)
class Cut:
    """The series of one pod between the scrapes at `start` and `end` (unix seconds)."""

    start: float
    end: float
    tracks: tuple[Series, ...]

    @cached_property
    def _by_name(self) -> dict[str, list[Series]]:
        found: dict[str, list[Series]] = {}
        for track in self.tracks:
            found.setdefault(track.name, []).append(track)
        return found

    def has(self, name: str) -> bool:
        return name in self._by_name

    def delta(self, name: str, **labels: str) -> float:
        """Growth of a counter, summed over the series that carry `labels` (engines, models, causes). 0 if absent."""
        return math.fsum(track.samples[-1][1] - track.samples[0][1] for track in self._select(name, labels))

    def delta_by(self, name: str, label: str) -> dict[str, float]:
        """Growth of a counter for each value of `label`."""
        values = {track.labels.get(label, "") for track in self._by_name.get(name, ())}
        return {value: self.delta(name, **{label: value}) for value in sorted(values)}

    def gauge_mean(self, name: str, combine: Callable[[Iterable[float]], float] = math.fsum) -> float | None:
        """Mean of a gauge over the scrapes after `start`, combined over engines; None if absent."""
        means = [math.fsum(v for _, v in t.samples) / len(t.samples) for t in self._select(name, {})]
        return combine(means) if means else None

    def _select(self, name: str, labels: Mapping[str, str]) -> list[Series]:
        named = self._by_name.get(name, [])
        if not labels:
            return named
        return [track for track in named if all(track.labels.get(key) == value for key, value in labels.items())]


def cut(series: Sequence[Series], need: Need, since: float | None, now: float, stale_after: float) -> Cut:
    """The longest aligned piece of `series` from `since` on (None: from the oldest sample) to the newest scrape.

    Raises UnreadableError: MetricsMissing, Stale, Partial or Absurd, CounterReset, or, when there is no second scrape
    yet, Starting (the first one) or CollectingEvidence (nothing new since the last window).
    """
    tracks = [_sort(track) for track in series if track.samples]
    timed = [track for track in tracks if track.name not in need.infos]
    if not timed:
        raise UnreadableError(Reason.METRICS_MISSING, "no samples")
    end = max(track.samples[-1][0] for track in timed)
    _check_age(end, now, stale_after)
    _check_complete(timed, need, end)
    counters = [track for track in timed if track.name not in need.gauges]
    start = _start(counters, need.required[0], since, end)
    pieces = [_counter(track, start, end) for track in counters]
    pieces += [_gauge(track, start, end) for track in timed if track.name in need.gauges]
    infos = [track for track in tracks if track.name in need.infos and _at(track, end)]
    return Cut(start, end, (*pieces, *infos))


def _sort(track: Series) -> Series:
    if not all(math.isfinite(time) for time, _ in track.samples):
        raise UnreadableError(Reason.METRICS_ABSURD, f"{track.name} has a sample without a time")
    return Series(track.name, track.labels, tuple(sorted(track.samples, key=lambda sample: sample[0])))


def _check_age(end: float, now: float, stale_after: float) -> None:
    if now - end > stale_after:
        raise UnreadableError(Reason.METRICS_STALE, f"the newest sample is more than {stale_after:g} s old")
    if end - now > stale_after:
        message = f"the newest sample is more than {stale_after:g} s in the future: clocks differ"
        raise UnreadableError(Reason.METRICS_ABSURD, message)


def _check_complete(timed: Sequence[Series], need: Need, end: float) -> None:
    """Raises UnreadableError unless all series reach the newest scrape and all engines have every required series."""
    late = next((track for track in timed if end - track.samples[-1][0] > SAME_SCRAPE_SECONDS), None)
    if late is not None:
        raise UnreadableError(Reason.METRICS_PARTIAL, f"{late.name} ends before the pod's other series")
    engines = {name: {t.labels.get("engine", "") for t in timed if t.name == name} for name in need.required}
    everyone = set[str]().union(*engines.values())
    for name, seen in engines.items():
        if everyone - seen or not seen:
            raise UnreadableError(Reason.METRICS_PARTIAL, describe_missing(name))


def describe_missing(name: str) -> str:
    """That a series is missing, with what Prometheus may have done with one of a histogram."""
    made = (
        ", perhaps because Prometheus turns classic histograms into native ones: let it keep both "
        "(always_scrape_classic_histograms; in a PodMonitor scrapeClassicHistograms)"
    )
    return f"{name} is missing{made if name.endswith(('_count', '_sum')) else ''}"


def _start(counters: Sequence[Series], clock: str, since: float | None, end: float) -> float:
    """Unix time of the first scrape from `since` on that all counters have. Raises UnreadableError without one."""
    scrapes = next(track for track in counters if track.name == clock).samples
    earliest = -math.inf if since is None or not math.isfinite(since) else since - SAME_SCRAPE_SECONDS
    for time, _ in scrapes:
        if earliest <= time < end - 2 * SAME_SCRAPE_SECONDS and all(_at(track, time) for track in counters):
            return time
    if end - earliest <= 2 * SAME_SCRAPE_SECONDS:
        raise UnreadableError(Reason.COLLECTING, "no new scrape since the last window")
    raise UnreadableError(Reason.STARTING, "one scrape so far; the second makes a window")


def _at(track: Series, time: float) -> bool:
    return any(abs(seen - time) <= SAME_SCRAPE_SECONDS for seen, _ in track.samples)


def _counter(track: Series, start: float, end: float) -> Series:
    samples = _between(track, start - SAME_SCRAPE_SECONDS, end)
    _check_values(track, samples)
    for (_, before), (_, after) in pairwise(samples):
        if after < before:
            raise UnreadableError(Reason.COUNTER_RESET, f"{track.name} fell from {before:g} to {after:g}")
    return Series(track.name, track.labels, samples)


def _gauge(track: Series, start: float, end: float) -> Series:
    """The gauge's samples after `start`, at least its newest: the sample at `start` belongs to the window before."""
    samples = _between(track, start + SAME_SCRAPE_SECONDS, end) or track.samples[-1:]
    _check_values(track, samples)
    return Series(track.name, track.labels, samples)


def _between(track: Series, first: float, last: float) -> Samples:
    return tuple(sample for sample in track.samples if first <= sample[0] <= last)


def _check_values(track: Series, samples: Samples) -> None:
    for value in [value for _, value in samples if not 0 <= value < EXACT_BELOW]:
        raise UnreadableError(Reason.METRICS_ABSURD, f"{track.name} is {value:g}")


_LE = "le"


class UnusableError(Exception):
    """Why series add nothing to a window: a histogram is unknown then, and what the payload tells is left out."""


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
    except UnusableError:
        return ()


def _sum(found: Sequence[Mapping[float, float]]) -> Histogram:
    bounds = sorted(found[0]) if found else []
    if any(sorted(one) != bounds for one in found) or (bounds and bounds[-1] != math.inf):
        raise UnusableError("buckets differ, or the last one is missing")
    whole = [math.fsum(one[bound] for one in found) for bound in bounds]
    if any(later < earlier for earlier, later in pairwise(whole)):
        raise UnusableError("a bucket holds more than a larger one")
    return tuple((bound, after - before) for bound, before, after in zip(bounds, [0.0, *whole], whole, strict=False))


def _growth(tracks: Iterable[Series], start: float, end: float) -> dict[float, float]:
    """Growth of each bucket of one label set, by its bound. All buckets of a new label set began at 0 together.

    Raises UnusableError where a bucket ends too early, occurs twice or has fallen.
    """
    grown: dict[float, float] = {}
    news: set[bool] = set()
    for track in tracks:
        bound, found = _parse_bound(track.labels.get(_LE, "")), growth(track, start, end)
        if found is None or bound in grown:
            raise UnusableError("a bucket ends before the window, or is there twice")
        grown[bound], new = found
        news.add(new)
    if len(news) > 1:
        raise UnusableError("a scrape was read by half")
    return grown


def growth(track: Series, start: float, end: float) -> tuple[float, bool] | None:
    """Growth of a counter between the scrapes at `start` and `end`, and whether it began at 0 in between. None where it
    does not reach `end`. Raises UnusableError where it has fallen or is no count."""
    low, high = start - SAME_SCRAPE_SECONDS, end + SAME_SCRAPE_SECONDS
    inside = sorted(sample for sample in track.samples if low <= sample[0] <= high)
    if not inside or inside[-1][0] < end - SAME_SCRAPE_SECONDS:
        return None
    new = inside[0][0] > start + SAME_SCRAPE_SECONDS
    values = [0.0] * new + [value for _, value in inside]
    if not all(0 <= value < EXACT_BELOW for value in values) or any(b < a for a, b in pairwise(values)):
        raise UnusableError(f"{track.name} fell or is no count")
    return values[-1] - values[0], new


def _parse_bound(text: str) -> float:
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if not bound > 0:
        raise UnusableError(f"le {text!r} is no bound")
    return bound
