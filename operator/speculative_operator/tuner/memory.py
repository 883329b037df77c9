"""What the tuner remembers of one deployment between ticks, and its form in status.

Called by decide(), reconcile (which keeps it, and writes `to_status()` into the object) and, after a restart of the
operator, `from_status`. A few hundred numbers at most, whatever was seen. Numbers travel as text: an API object that
holds floats would differ from itself after a round trip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.table import KTable, Try
from speculative_operator.tuner import persistence
from speculative_operator.tuner.acceptance import AcceptanceEvidence
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.comparisons import Cell
from speculative_operator.tuner.costs import CostEvidence, StepSample
from speculative_operator.tuner.grid import grid
from speculative_operator.tuner.pace import Pace
from speculative_operator.tuner.speed import Speed
from speculative_operator.tuner.targets import Targets
from speculative_operator.tuner.traffic import Traffic


@dataclass(frozen=True, eq=False)
class Memory:
    """`table` is in force, or was last asked for; the rest is evidence and timing."""

    table: KTable
    since: float
    """When this memory began to look: creation, or restart of the operator."""
    changed_at: float | None = None
    previous: KTable | None = None
    """The table before the last change, while pods may still run it."""
    awaited_since: float | None = None
    """Since when some pod is known to run an older table than the one in force; None: none is."""
    proposal: KTable | None = None
    """Last table proposed in Recommend."""
    costs: CostEvidence = field(default_factory=CostEvidence)
    acceptance: AcceptanceEvidence = field(default_factory=AcceptanceEvidence)
    traffic: Traffic = field(default_factory=Traffic)
    last: tuple[StepSample, ...] = ()
    """What the last observation told of step costs."""
    cells: tuple[Cell, ...] = ()
    """What the engine has compared."""
    tries: tuple[Try, ...] = ()
    """What the engine may try while `table` is in force."""
    windows: int = 0
    """Observations believed since `since`."""
    updated_at: float | None = None
    seen: tuple[tuple[str, float, float], ...] = ()
    """Per pod: end of the last window learned from, and its batch size; also of pods that are silent now."""
    slow_windows: int = 0
    """Consecutive observations in which drafts lost against none."""
    drafted_at: float | None = None
    """When drafts were last seen."""
    pace: Pace = field(default_factory=Pace)
    hard_off: bool = False
    """True while pods run without a speculator."""
    hard_off_at: float | None = None
    """When pods last changed to or from that; None: never."""
    wanted_since: float | None = None
    """Since when another table has looked worth a rollout, where it takes one."""
    doomed_since: float | None = None
    """Since when pods without a speculator have looked better than any table."""
    speed: Speed = field(default_factory=Speed)
    """Of single requests, since pods were last replaced for the tuner's sake."""

    targets: Targets = field(default_factory=Targets)

    blind_since: float | None = None
    """Since when no look at the pods could be believed."""
    before_outage: KTable | None = None
    """The table that comes back when pods are seen again; None: no outage has changed it."""

    @classmethod
    def fresh(cls, table: KTable, now: float) -> Memory:
        """Nothing seen yet, `table` in force."""
        return cls(table=table, since=now)

    @property
    def last_windows(self) -> dict[str, tuple[float, float]]:
        """`seen` by pod."""
        return {pod: (end, batch) for pod, end, batch in self.seen}

    def fitted(self, policy: Policy) -> Memory:
        """With a table that the policy allows: cut or stretched to `max_batch`, each K lowered to one that exists."""
        table = fit(self.table, policy)
        size = len(grid(policy.knobs.max_batch))
        load = self.traffic.load if len(self.traffic.load) == size else ()
        history = self.traffic.history if len(self.traffic.history) == size else ()
        if table == self.table and load == self.traffic.load and history == self.traffic.history:
            return self
        traffic = replace(self.traffic, load=load, history=history)
        return replace(self, table=table, previous=None, proposal=None, traffic=traffic)

    def to_status(self) -> dict[str, Any]:
        """A small JSON object of strings, whole numbers and rows; below 4 KiB."""
        return persistence.to_status(self)

    @classmethod
    def from_status(cls, data: Mapping[str, Any], policy: Policy) -> Memory:
        """Memory as written by `to_status`; whatever is odd is dropped, at worst all but the table.

        Evidence survives, but nothing is decided from it before a full window was seen again.
        """
        table = persistence.table_of(data, policy)
        return cls(table=table, since=0.0, **persistence.restore(data, policy)).fitted(policy)
