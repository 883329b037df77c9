"""One tick's findings, gathered for those that report them: `conditions`, `tuning`, `figures`, `history`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain.conditions import Condition
from speculative_operator.domain.decision import Decision
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.picked import PickView
from speculative_operator.reconcile.pods import Pod
from speculative_operator.reconcile.rollout import Rollout
from speculative_operator.reconcile.tables import Leaving
from speculative_operator.reconcile.truth import InForce
from speculative_operator.tuner.quorum import Sight


@dataclass(frozen=True, slots=True)
class PairView:
    """What is to be said of the pair, where it is looked at."""

    conditions: tuple[Condition, ...]
    """In place of those that say that nothing was looked at."""
    hold: Condition | None
    """Why pods are not made of the pair that the spec asks for; None when they are."""
    blocks: Mapping[str, Any] = field(default_factory=dict)
    """Parts of the status: `pair`, `nextPair`, `weights`; one that is empty is left out."""


@dataclass(frozen=True, slots=True)
class View:
    """Everything that status and events may speak of."""

    spec: DeploymentSpec
    rollout: Rollout
    pods: tuple[Pod, ...]
    in_force: InForce
    actuator: Actuator
    problems: tuple[Condition, ...] = ()
    """What keeps the object from being as asked, the worst first."""
    observation: Observation | None = None
    sight: Sight | None = None
    """What of `observation` may be believed, as the tuner has it."""
    of_pair: Observation | None = None
    """What of it is of pods that the table in force is for."""
    leaving: tuple[Leaving, ...] = ()
    """Tables of pods of former pairs that serve on."""
    decision: Decision | None = None
    changed: bool = False
    """True when the tuner's decision came into force with this tick."""
    proposed: KTable | None = None
    own_rollouts: Mapping[str, Any] = field(default_factory=dict)
    """`status.rollout`: what waits for somebody's word, and what may go back."""
    notices: tuple[Notice, ...] = ()
    """What the engine adapter has to say of the spec."""
    kept: bool = False
    """True when pods still run an earlier spec: what the status says of pair and speculation stays as it is."""
    startup: Mapping[str, Any] = field(default_factory=dict)
    """`status.startup`: what was measured of starts."""
    pairing: PairView | None = None
    """None where pairs are not looked at, or not in this tick."""

    pick: PickView | None = None
    """None where the spec names its speculator itself."""

    @property
    def hold(self) -> Condition | None:
        """Why pods stay as they are although nothing is wrong with the manifests."""
        return self.pairing.hold if self.pairing is not None else None
