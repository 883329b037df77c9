"""Raw samples of many pods -> one window or gap each, by an engine's own way to make a window. Used by the readers.

Where several scrape targets claim to be one pod, it chooses one and checks that all can be one process. A label is no
proof: whoever gets series into Prometheus may give them a pod's name. So the readers always take the same target, and
believe none where another target contradicts it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.samples import SAME_SCRAPE_SECONDS, Buckets, Cut, Need, Samples, UnreadableError, cut

SCRAPE_SECONDS = 5.0
"""A scrape is stamped with its start and may take so long: two targets' samples closer than this have no order."""
ROUNDING = 1e-9
"""By which share sums of the same figures may differ."""
_TARGET_ORDER = ("cluster", "prometheus", "prometheus_replica", "replica", "job", "instance", "endpoint", "container")
TARGET_LABELS = frozenset(_TARGET_ORDER)
"""Labels that tell scrape targets of one pod apart."""


def without_missed_scrapes(series: Sequence[Series]) -> Sequence[Series]:
    """`series` without the samples of scrapes that failed, which VictoriaMetrics answers as NaN in every series of the
    target. A NaN beside numbers of the same scrape stays, for the readers to refuse."""
    if not any(math.isnan(value) for track in series for _, value in track.samples):
        return series
    scraped: dict[tuple[str, ...], set[float]] = {}
    targets = [(track.labels.get("pod", ""), *_target(track)) for track in series]
    for target, track in zip(targets, series, strict=True):
        times = scraped.setdefault(target, set())
        times.update(time for time, value in track.samples if not math.isnan(value))
    left = (
        replace(track, samples=tuple(one for one in track.samples if one[0] in scraped[target]))
        for target, track in zip(targets, series, strict=True)
    )
    return [track for track in left if track.samples]


def one_target(series: Sequence[Series], stale_after: float, need: Need) -> list[Series]:
    """The series of one scrape target: a pod that two scrape jobs or two Prometheus replicas read would count twice.

    Of the targets seen within `stale_after` seconds of the newest one the first is taken that has every required name,
    in the order of its labels: always the same, so that windows join up, however many series another one has.

    Raises UnreadableError where two of them cannot be one process: nobody can tell which one is the pod.
    """
    targets: dict[tuple[str, ...], list[Series]] = {}
    for track in series:
        targets.setdefault(_target(track), []).append(track)
    alive = max((_newest(own) for own in targets.values()), default=0.0) - stale_after
    current = [target for target in sorted(targets) if _newest(targets[target]) >= alive]
    if not current:
        return []
    chosen = min(current, key=lambda target: len(set(need.required) - {track.name for track in targets[target]}))
    for other in current:
        if other != chosen:
            _check_one_process(targets[chosen], targets[other], need)
    return targets[chosen]


def of_the_same_target(own: Sequence[Series], others: Iterable[Series]) -> list[Series]:
    """The series among `others` from the scrape target of `own`, whose series share one target."""
    if not own:
        return []
    target = _target(own[0])
    return [track for track in others if _target(track) == target]


def _target(track: Series) -> tuple[str, ...]:
    """The scrape target of a series, as its label values; empty where no label tells it."""
    labels = track.labels
    return () if TARGET_LABELS.isdisjoint(labels) else tuple(labels.get(label, "") for label in _TARGET_ORDER)


def _check_one_process(one: Sequence[Series], other: Sequence[Series], need: Need) -> None:
    """Raises UnreadableError where two targets contradict each other: a counter falls, or facts differ."""
    ours, theirs = _by_name(one), _by_name(other)
    for name in sorted(set(ours) & set(theirs) - need.gauges):
        if name in need.infos:
            alike = _facts(ours[name], theirs[name])
        else:
            sums = _sums(ours[name]), _sums(theirs[name])
            if any(after < before for each in sums for (_, before), (_, after) in pairwise(each)):
                raise UnreadableError(Reason.COUNTER_RESET, f"{name} fell")
            alike = _never_falls(*sums) and _never_falls(*reversed(sums))
        if not alike:
            raise UnreadableError(
                Reason.METRICS_ABSURD,
                f"two scrape targets ({_where(one)}; {_where(other)}) claim to be this pod and contradict each other "
                f"in {name}; scrape it from one, and see that no other target sets the pod's labels",
            )


def _where(tracks: Sequence[Series]) -> str:
    labels = tracks[0].labels
    return " ".join(f"{name}={labels[name]}" for name in ("job", "instance") if name in labels)


def _by_name(tracks: Iterable[Series]) -> dict[str, list[Series]]:
    found: dict[str, list[Series]] = {}
    for track in tracks:
        if track.samples:
            found.setdefault(track.name, []).append(track)
    return found


def _facts(ours: Sequence[Series], theirs: Sequence[Series]) -> bool:
    """True where the newest series of both targets agree in the labels that all have: jobs add labels of their own."""
    both = [[track for track in tracks if _newest([track]) >= _newest(tracks) - 1] for tracks in (ours, theirs)]
    shared = set.intersection(*(set(track.labels) for tracks in both for track in tracks)) - TARGET_LABELS
    identities = [{tuple(track.labels[name] for name in sorted(shared)) for track in tracks} for tracks in both]
    return identities[0] == identities[1]


def _sums(tracks: Iterable[Series]) -> Samples:
    """A counter's sum over its label sets at each scrape; jobs may name the label sets differently."""
    totals: list[tuple[float, float]] = []
    for time, value in sorted(sample for track in tracks for sample in track.samples):
        if totals and time - totals[-1][0] <= SAME_SCRAPE_SECONDS:
            totals[-1] = (totals[-1][0], totals[-1][1] + value)
        else:
            totals.append((time, value))
    return tuple(totals)


def _never_falls(earlier: Samples, later: Samples) -> bool:
    """True where no value in `later` is less than the value in `earlier` SCRAPE_SECONDS before it."""
    place, before = 0, -math.inf
    for time, value in later:
        while place < len(earlier) and earlier[place][0] <= time - SCRAPE_SECONDS:
            before = earlier[place][1]
            place += 1
        if value < before - ROUNDING * abs(before):
            return False
    return True


def _newest(series: Iterable[Series]) -> float:
    return max((time for track in series for time, _ in track.samples), default=-math.inf)


SLACK = 0.01
"""Counters of one scrape may be a step apart, as where several API servers share a pod: contradictions count from 1 %
on."""


@dataclass(frozen=True)
class Reader:
    """How the samples of an engine's pods become windows; see `base.Read`."""

    need: Need
    others: tuple[str, ...]
    """Names that are looked at beside those of `need` that are required."""
    buckets: Buckets
    window_of: Callable[[Cut], PodWindow]
    wants: Callable[[Series], bool] = lambda _: True
    """False for a series that counts what another one counts, too."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all series that are looked at."""
        return (*self.need.required, *self.others, *sorted(self.buckets.names))

    def __call__(
        self,
        series: Sequence[Series],
        pods: Collection[str],
        since: Mapping[str, float],
        now: float,
        stale_after: float,
    ) -> dict[str, PodWindow | Gap]:
        """A window or a gap for each of `pods`. Passes over series of other pods and of other names."""
        own: dict[str, list[Series]] = {pod: [] for pod in pods}
        names = frozenset(self.names)
        for track in without_missed_scrapes(series):
            pod = track.labels.get("pod", "")
            if pod in own and track.name in names and self.wants(track):
                own[pod].append(track)
        found: dict[str, PodWindow | Gap] = {}
        for pod, tracks in own.items():
            buckets = [track for track in tracks if track.name in self.buckets.names]
            counted = [track for track in tracks if track.name not in self.buckets.names]
            try:
                target = one_target(counted, stale_after, self.need)
                window = self.window_of(cut(target, self.need, since.get(pod), now, stale_after))
                found[pod] = self.buckets.add_to(window, of_the_same_target(target, buckets))
            except UnreadableError as problem:
                found[pod] = Gap(problem.reason, problem.message)
        return found


_OF_LOAD = (
    "steps", "decode_request_steps", "step_seconds", "first_tokens", "generated_tokens", "prompt_tokens", "running",
    "waiting",
)  # fmt: skip


def idle(piece: Cut, **known: Any) -> PodWindow:
    """The window of a pod in which no request advanced, with the figures that are `known` all the same."""
    figures: dict[str, Any] = dict.fromkeys(_OF_LOAD, 0.0)
    return PodWindow(start=piece.start, end=piece.end, **(figures | known))


def by_position(piece: Cut, name: str, label: str) -> tuple[float, ...]:
    """Growth of a counter of draft tokens by position, the first one first; empty where there is none. Raises
    UnreadableError where a position between others is missing."""
    found = piece.delta_by(name, label)
    places = [str(place) for place in range(len(found))]
    if set(places) != set(found):
        raise UnreadableError(Reason.METRICS_PARTIAL, f"{name} has positions {', '.join(sorted(found))} only")
    return tuple(found[place] for place in places)


def refuse(contradictions: Iterable[tuple[bool, str]]) -> None:
    """Raises UnreadableError for the first contradiction that is true: then no figure can be trusted."""
    for wrong, text in contradictions:
        if wrong:
            raise UnreadableError(Reason.METRICS_ABSURD, text)


def more(left: float, right: float) -> bool:
    """True when `left` exceeds `right` by more than counting apart by a step explains."""
    return left > right * (1 + SLACK) + 1


def mean(values: Iterable[float]) -> float:
    collected = list(values)
    return sum(collected) / len(collected)
