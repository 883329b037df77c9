"""One reconcile of one object as far as it has come, and the outcome that leaves pods as they are. Used by `tick`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from speculative_operator.domain.actions import Action
from speculative_operator.domain.conditions import Condition, Truth
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.engines.base import Engine, Notice
from speculative_operator.reconcile.active_table import ActiveTable
from speculative_operator.reconcile.choices import Pairing
from speculative_operator.reconcile.effective import PairedSpec
from speculative_operator.reconcile.events import events
from speculative_operator.reconcile.picked import PickView
from speculative_operator.reconcile.picking import Picking, pick_view
from speculative_operator.reconcile.pods import Pod
from speculative_operator.reconcile.records import to_status
from speculative_operator.reconcile.rollout import Rollout
from speculative_operator.reconcile.status import make_status
from speculative_operator.reconcile.view import PairView, View
from speculative_operator.reconcile.world import Outcome, World
from speculative_operator.render import RenderError
from speculative_operator.render.labels import pair_hash
from speculative_operator.tuner import Memory


@dataclass(frozen=True, slots=True)
class Look:
    """Pods, rollout and observation, read once per reconcile."""

    pods: tuple[Pod, ...]
    rollout: Rollout
    observation: Observation | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One reconcile of one object, as far as it has come."""

    world: World
    spec: ResolvedSpec
    """The spec with the pick in place of `auto`; versions are resolved by `pairing`."""
    look: Look
    engine: Engine
    memory: Memory | None
    now: float
    picking: Picking | None = None
    """Where the operator picks the speculator: the pick, which is in `spec`."""
    pairing: Pairing = field(default_factory=lambda: Pairing(()))
    """The pairing of the object, once it is known."""
    notices: tuple[Notice, ...] = ()
    """Notices about the spec, before all others."""


def pair_view(pairing: Pairing, choice: PairedSpec | None) -> PairView | None:
    """What the status says of the pair; None where it is neither checked nor recorded. The hash is that of `choice`,
    once pods are made of it."""
    record = pairing.record
    if pairing.stages is None and record is None:
        return None
    if record is not None and choice is not None and not pairing.frozen:
        record = replace(record, hash=pair_hash(choice.pinned))
    blocks = {
        "pair": to_status(record) if record is not None else {},
        "nextPair": to_status(pairing.coming) if pairing.coming is not None else {},
        "weights": pairing.stages.download() if pairing.stages is not None else {},
    }
    return PairView(pairing.conditions, pairing.stages.hold if pairing.stages is not None else None, blocks)


def render_problem(error: RenderError) -> Condition:
    """Ready=False for manifests that cannot be rendered."""
    return Condition(ConditionType.READY, Truth.FALSE, Reason.RENDER_INVALID, str(error))


def picked_view(turn: Turn) -> PickView | None:
    """What the status says of the pick; None where the spec names its speculator itself."""
    return pick_view(turn.picking) if turn.picking is not None else None


def stay(
    turn: Turn, problems: Sequence[Condition], pair: PairView | None = None, actions: tuple[Action, ...] = ()
) -> Outcome:
    """The outcome that leaves pods and their table as they are: nothing is decided, and the status keeps what it said
    of them. `actions` are those of Jobs and of the route."""
    world, look = turn.world, turn.look
    view = View(
        spec=turn.spec,
        rollout=look.rollout,
        pods=look.pods,
        active=ActiveTable(None, 0),
        actuator=Actuator.NONE,
        problems=tuple(problems),
        observation=look.observation,
        kept=True,
        pairing=pair,
        pick=picked_view(turn),
    )
    status = make_status(view, world.status, None, turn.now)
    return Outcome(actions, status, events(world.status, status, actions), turn.memory)
