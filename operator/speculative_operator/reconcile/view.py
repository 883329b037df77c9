"""One tick's findings, gathered for those that report them: `conditions`, `tuning`, `figures`, `history`."""

from __future__ import annotations

from dataclasses import dataclass

from speculative_operator.domain.conditions import Condition
from speculative_operator.domain.decision import Decision
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.pods import Pod
from speculative_operator.reconcile.rollout import Rollout
from speculative_operator.reconcile.truth import InForce


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
    decision: Decision | None = None
    changed: bool = False
    """True when the tuner's decision came into force with this tick."""
    probing: bool = False
    """True while a probe's table is in force: what is said of the table stays as it was before."""
    proposed: KTable | None = None
    notices: tuple[Notice, ...] = ()
    """What the engine adapter has to say of the spec."""
    kept: bool = False
    """True when pods still run an earlier spec: what the status says of pair and speculation stays as it is."""
