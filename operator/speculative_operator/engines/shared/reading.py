"""Raw samples of many pods -> one window or gap each, by an engine's own way to make a window. Used by readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.samples import Cut, Need, UnreadableError, cut
from speculative_operator.engines.targets import one_target

_SLACK = 0.01
"""Counters of one scrape may be a step apart: contradictions count from 1 % on."""


def read_each(
    names: frozenset[str],
    need: Need,
    window_of: Callable[[Cut], PodWindow],
    series: Sequence[Series],
    pods: Collection[str],
    since: Mapping[str, float],
    now: float,
    stale_after: float,
) -> dict[str, PodWindow | Gap]:
    """See `Engine.read`. Series of other pods and of other names are passed over."""
    own: dict[str, list[Series]] = {pod: [] for pod in pods}
    for track in series:
        pod = track.labels.get("pod", "")
        if pod in own and track.name in names:
            own[pod].append(track)
    found: dict[str, PodWindow | Gap] = {}
    for pod in pods:
        try:
            piece = cut(one_target(own[pod], stale_after, need), need, since.get(pod), now, stale_after)
            found[pod] = window_of(piece)
        except UnreadableError as problem:
            found[pod] = Gap(problem.reason, problem.message)
    return found


def refuse(contradictions: Iterable[tuple[bool, str]]) -> None:
    """Raises UnreadableError for the first that is so: when figures contradict each other none can be trusted."""
    for wrong, text in contradictions:
        if wrong:
            raise UnreadableError(Reason.METRICS_ABSURD, text)


def more(left: float, right: float) -> bool:
    """True when `left` exceeds `right` by more than counting apart by a step explains."""
    return left > right * (1 + _SLACK) + 1


def mean(values: Iterable[float]) -> float:
    collected = list(values)
    return sum(collected) / len(collected)
