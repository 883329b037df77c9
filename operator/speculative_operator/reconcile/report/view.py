"""The findings of one reconcile, for the modules that report them: `conditions`, `tuning`, `figures`, `events`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain.actions import Condition
from speculative_operator.domain.decision import Decision
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.base import Notice
from speculative_operator.outputs.record import Record
from speculative_operator.reconcile.pair.choices import Pairing
from speculative_operator.reconcile.pair.picking import Picking
from speculative_operator.reconcile.snapshot.canaries import Progress
from speculative_operator.reconcile.snapshot.candidates import Measured
from speculative_operator.reconcile.snapshot.pods import Pod
from speculative_operator.reconcile.snapshot.tables import Leaving
from speculative_operator.reconcile.snapshot.workload import Rollout
from speculative_operator.reconcile.table.active_table import ActiveTable
from speculative_operator.tuner.quorum import Sight


@dataclass(frozen=True, slots=True)
class View:
    """Everything that status and events may speak of."""

    spec: ResolvedSpec
    rollout: Rollout
    pods: tuple[Pod, ...]
    active: ActiveTable
    actuator: Actuator
    skips: bool = False
    """True where pods skip the speculator while K stays 0."""
    problems: tuple[Condition, ...] = ()
    """What keeps the object from being as asked, the worst first."""
    observation: Observation | None = None
    sight: Sight | None = None
    """The part of `observation` that the tuner believes."""
    of_pair: Observation | None = None
    """The part of `observation` about pods that the active table is for."""
    leaving: tuple[Leaving, ...] = ()
    """Tables of pods of former pairs that serve on."""
    decision: Decision | None = None
    changed: bool = False
    """True when this reconcile carries out the decision."""
    proposed: KTable | None = None
    own_rollouts: Mapping[str, Any] = field(default_factory=dict)
    """`status.rollout`: the proposal that waits for approval, and the last rollout, which may be undone."""
    notices: tuple[Notice, ...] = ()
    """Warnings for the status."""
    verified: Record | None = None
    """What `speculative verify` found."""
    kept: bool = False
    """True when pods still run an earlier spec: what the status says of pair and speculation stays as it is."""
    startup: Mapping[str, Any] = field(default_factory=dict)
    """`status.startup`: what was measured of starts."""
    pairing: Pairing | None = None
    """The pairing where the status tells of the pair; else None."""
    canary: Progress | None = None
    """The analysis of the canary; None where there is none, or nothing is decided now."""
    measured: Measured | None = None
    """What was measured of the catalogue's rows; None where none are, or nothing is decided now."""
    picking: Picking | None = None
    """The pick; None where the spec names its speculator itself."""

    @property
    def hold(self) -> Condition | None:
        """Why pods stay as they are although nothing is wrong with the manifests."""
        stages = self.pairing.stages if self.pairing is not None else None
        return stages.hold if stages is not None else None
