"""Raw samples of many pods -> one window or gap each, by an engine's own way to make a window. Used by readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.histograms import Buckets
from speculative_operator.engines.samples import Cut, Need, UnreadableError, cut
from speculative_operator.engines.targets import of_the_same_target, one_target

SLACK = 0.01
"""Counters of one scrape may be a step apart, as where several API servers share a pod: contradictions count from 1 %
on."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The series that a reader looks at."""

    names: frozenset[str]
    """Names of counters, gauges and infos."""
    need: Need
    buckets: Buckets


def read_each(
    wanted: Selection,
    window_of: Callable[[Cut], PodWindow],
    series: Sequence[Series],
    pods: Collection[str],
    since: Mapping[str, float],
    now: float,
    stale_after: float,
) -> dict[str, PodWindow | Gap]:
    """A window or a gap for each pod; see `Engine.read`. Passes over series of other pods and of other names."""
    own: dict[str, list[Series]] = {pod: [] for pod in pods}
    buckets: dict[str, list[Series]] = {pod: [] for pod in pods}
    for track in series:
        pod = track.labels.get("pod", "")
        if pod in own and track.name in wanted.names:
            own[pod].append(track)
        elif pod in own and track.name in wanted.buckets.names:
            buckets[pod].append(track)
    found: dict[str, PodWindow | Gap] = {}
    for pod in pods:
        try:
            target = one_target(own[pod], stale_after, wanted.need)
            window = window_of(cut(target, wanted.need, since.get(pod), now, stale_after))
            found[pod] = wanted.buckets.add_to(window, of_the_same_target(target, buckets[pod]))
        except UnreadableError as problem:
            found[pod] = Gap(problem.reason, problem.message)
    return found


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
