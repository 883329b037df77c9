"""The figures, their goals, and by how much each may be worse than another revision's. Pure; called by `__main__`.

A goal is for a quiet machine and for the number of objects it names. What fails a run is a ratio alone: two revisions
on the same bed in the same run. A time that was measured while others used the machine is shown and not judged.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BUSY_CORES = 0.5
"""Of one core, used by others: from there on times say more of them than of the operator."""


@dataclass(frozen=True)
class Measure:
    """One figure; less is better."""

    key: str
    text: str
    phase: str
    limit: float
    """Largest ratio to the other revision."""
    floor: float
    """A figure below counts as this much: a ratio of two trifles says nothing."""
    goals: Mapping[int, float] = field(default_factory=dict)
    """By number of objects."""
    timed: bool = True
    """Is it longer where others use the machine?"""


MEASURES: Sequence[Measure] = (
    Measure("one", "one object: Deployment after, s", "one", 1.5, 0.1, {100: 0.1, 1000: 0.1}),
    Measure("create_p50", "all created: Deployment after, p50, s", "create", 1.25, 0.3, {100: 2.0, 1000: 20.0}),
    Measure("create_max", "  the last, s", "create", 1.3, 0.6, {100: 4.0}),
    Measure("children", "  until all children, s", "create", 1.25, 1.0, {100: 5.0, 1000: 60.0}),
    Measure("create_cpu", "  processor of the operator until then, s", "create", 1.2, 0.5, {100: 2.5}, timed=False),
    Measure("calls", "  API calls for each object until Ready", "create", 1.1, 1.0, {100: 9.0, 1000: 9.0}, timed=False),
    Measure("args_p50", "arguments of all edited: Deployment after, p50, s", "edit", 1.3, 0.3, {100: 1.0}),
    Measure("args_max", "  the last, s", "edit", 1.4, 0.6),
    Measure("image_p50", "image of all edited: Deployment after, p50, s", "edit", 1.3, 0.3, {100: 1.0}),
    Measure("image_max", "  the last, s", "edit", 1.4, 0.6),
    Measure("back_p50", "deleted Deployments: back after, p50, s", "repair", 1.5, 0.15, {100: 0.15, 1000: 0.15}),
    Measure("reverted_max", "edited by hand: all reverted after, s", "repair", 1.5, 1.0, {100: 2.0, 1000: 2.0}),
    Measure("rss_idle", "memory without objects, MiB", "one", 1.1, 20.0, {100: 80.0, 1000: 80.0}, timed=False),
    Measure("rss", "memory with all objects, MiB", "create", 1.1, 20.0, {100: 100.0}, timed=False),
    Measure("rss_peak", "memory at its peak, MiB", "gone", 1.15, 20.0, {1000: 170.0, 5000: 384.0}, timed=False),
    Measure("rest_cpu", "at rest: % of a core", "rest", 1.3, 0.5, {100: 1.0, 1000: 8.0, 5000: 40.0}, timed=False),
    Measure("rest_writes", "at rest: writes a minute", "rest", 1.0, 1.0, {100: 0, 1000: 0, 5000: 0}, timed=False),
    Measure("gone", "API server gone for 12 s: next Deployment after, s", "gone", 1.5, 2.0, {100: 5.0, 1000: 5.0}),
    Measure("gone_exits", "  exits of the operator", "gone", 1.0, 0.5, {100: 0, 1000: 0, 5000: 0}, timed=False),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One measure of this tree, and of the other revision where there is one."""

    measure: Measure
    here: float
    there: float | None
    foreign: float
    """Most cores that others used meanwhile."""

    @property
    def ratio(self) -> float | None:
        floor = self.measure.floor
        return None if self.there is None else max(self.here, floor) / max(self.there, floor)

    @property
    def busy(self) -> bool:
        return self.measure.timed and self.foreign > BUSY_CORES

    @property
    def worse(self) -> bool:
        return self.ratio is not None and not self.busy and self.ratio > self.measure.limit

    def goal(self, count: int) -> float | None:
        return self.measure.goals.get(count)


Rounds = Sequence[Mapping[str, float]]


def rows(here: Rounds, there: Rounds, busy: Mapping[str, float]) -> list[Row]:
    """Medians over the rounds; `busy` has the cores that others used, by phase."""
    return [
        Row(measure, _median(here, measure.key), _median(there, measure.key) if there else None, busy[measure.phase])
        for measure in MEASURES
    ]


def _median(rounds: Rounds, key: str) -> float:
    return round(statistics.median(one[key] for one in rounds), 3)
