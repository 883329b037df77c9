"""The tuner's memory of one object between two reconciles. Called by decide() and by reconcile, which keeps it.

A few hundred numbers at most, whatever was seen. `persistence` writes it down and reads it back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.table import KTable, Trial
from speculative_operator.tuner.acceptance import AcceptanceEvidence
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.comparisons import Cell
from speculative_operator.tuner.costs import CostEvidence, StepSample
from speculative_operator.tuner.grid import grid
from speculative_operator.tuner.pace import Pace
from speculative_operator.tuner.request_time import Speed
from speculative_operator.tuner.targets import Targets
from speculative_operator.tuner.traffic import Traffic


@dataclass(frozen=True, eq=False)
class Memory:
    """The active table, or the last one asked for, with the tuner's evidence and times (unix seconds)."""

    table: KTable
    since: float
    """When this memory began to look: creation, or restart of the operator."""
    changed_at: float | None = None
    previous: KTable | None = None
    """The table before the last change, while pods may still run it."""
    awaited_since: float | None = None
    """Since when a pod is known to run an older table than `table`; None: no pod is."""
    proposal: KTable | None = None
    """The last table proposed in mode Recommend."""
    costs: CostEvidence = field(default_factory=CostEvidence)
    acceptance: AcceptanceEvidence = field(default_factory=AcceptanceEvidence)
    traffic: Traffic = field(default_factory=Traffic)
    last: tuple[StepSample, ...] = ()
    """Equations of step costs from the last observation."""
    cells: tuple[Cell, ...] = ()
    """Comparisons that the engine has made, pooled."""
    trials: tuple[Trial, ...] = ()
    """Trials that the engine may run while `table` is active."""
    windows: int = 0
    """Number of believed observations since `since`."""
    updated_at: float | None = None
    seen: tuple[tuple[str, float, float], ...] = ()
    """(pod, end of the last window learned from, its batch size); silent pods included."""
    slow_windows: int = 0
    """Observations in a row in which drafting was slower than no drafts."""
    pace: Pace = field(default_factory=Pace)
    removed: bool = False
    """True while pods run without a speculator."""
    removed_at: float | None = None
    """When pods last lost or regained their speculator; None: never."""
    wanted_since: float | None = None
    """Since when another table has looked worth the rollout that it takes; None: none looks so."""
    doomed_since: float | None = None
    """Since when pods without a speculator have looked better than any table; None: they do not."""
    speed: Speed = field(default_factory=Speed)
    """Speed of single requests since pods were last replaced because of the tuner."""

    targets: Targets = field(default_factory=Targets)

    blind_since: float | None = None
    """Since when no look at the pods could be believed; None: the last one could."""
    before_outage: KTable | None = None
    """The table that comes back when pods are seen again; None: no outage has changed it."""

    @classmethod
    def fresh(cls, table: KTable, now: float) -> Memory:
        """Memory without evidence, with `table` active since `now`."""
        return cls(table=table, since=now)

    @property
    def last_windows(self) -> dict[str, tuple[float, float]]:
        """Pod -> (end of its last window, batch size), from `seen`."""
        return {pod: (end, batch) for pod, end, batch in self.seen}

    def fit_to(self, policy: Policy) -> Memory:
        """Memory with its table fitted to `policy`, and without load histograms of another grid."""
        table = fit(self.table, policy)
        size = len(grid(policy.knobs.max_batch))
        load = self.traffic.load if len(self.traffic.load) == size else ()
        history = self.traffic.history if len(self.traffic.history) == size else ()
        if table == self.table and load == self.traffic.load and history == self.traffic.history:
            return self
        traffic = replace(self.traffic, load=load, history=history)
        return replace(self, table=table, previous=None, proposal=None, traffic=traffic)
