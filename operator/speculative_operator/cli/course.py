"""The course of one object: what its pods did in each window of the past, pooled as the tuner pools them. Pure.

Used by `report`. Windows are cut by the engine's adapter from raw counters, as in the operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.cli.beliefs import outlook_of
from speculative_operator.cli.subject import Subject
from speculative_operator.domain.decision import Interval
from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.table import KTable
from speculative_operator.replay.exposition import SeriesKey
from speculative_operator.replay.ring import Ring
from speculative_operator.tuner.outlook import Outlook, outlook
from speculative_operator.tuner.report import estimate
from speculative_operator.tuner.traffic import pool

Scrape = tuple[float, Mapping[str, Mapping[SeriesKey, float]]]


@dataclass(frozen=True, slots=True)
class Point:
    """One window over all pods; a figure that is not known is None."""

    time: float
    seconds: float
    pods: int
    load: float
    """Requests scheduled in a step of one pod."""
    k: float | None
    tpot_ms: float | None
    off_ms: float | None
    """Time per token that the tuner believes pods without a speculator would take at that load."""
    gain: Interval | None
    acceptance: float | None
    """Share of draft tokens that the verifier accepted."""
    tokens_per_second: float
    cost: float | None
    """Cost of a thousand output tokens."""


def course_of(found: Subject, body: Mapping[str, Any], scrapes: Iterable[Scrape], step: int) -> list[Point]:
    """A point for each instant at which some pod served; `step` seconds lie between two scrapes."""
    view = outlook_of(body) or outlook(found.policy)
    rings: dict[str, Ring] = {}
    points = []
    for moment, pods in scrapes:
        rings = {pod: rings.get(pod) or Ring(pod) for pod in pods}
        for pod, values in pods.items():
            rings[pod].add(moment, values)
        since = {pod: ring.since for pod, ring in rings.items() if ring.since is not None}
        series = [track for ring in rings.values() for track in ring.series()]
        results = found.engine.read(series, list(rings), since, moment, 2.0 * step)
        for pod, result in results.items():
            rings[pod].settle(result)
        windows = [one for one in results.values() if isinstance(one, PodWindow)]
        if any(one.decode_request_steps > 0 and one.steps > 0 for one in windows):
            points.append(_point(moment, windows, view))
    return points


def _point(moment: float, windows: list[PodWindow], view: Outlook) -> Point:
    look = pool(windows)
    k = look.mean_k if look.mean_k is not None else 0.0
    nearest = min(view.ks, key=lambda one: abs(one - k))
    told = estimate(view, look, KTable.constant(nearest, view.policy.knobs.max_batch))
    return Point(
        time=moment,
        seconds=max(one.seconds for one in windows),
        pods=len(windows),
        load=look.scheduled,
        k=look.mean_k,
        tpot_ms=1e3 * look.tpot if look.tpot is not None else None,
        off_ms=1e3 * told.tpot_off_seconds if told.tpot_off_seconds is not None else None,
        gain=told.gain_percent if look.mean_k is not None else None,
        acceptance=look.acceptance_rate,
        tokens_per_second=look.tokens_per_second,
        cost=told.cost_per_thousand_tokens,
    )
