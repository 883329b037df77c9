"""Rollouts that no user asked for: another K where that takes one, the speculator's removal and its return.

Called by `deciding` (whether a rollout may happen, waits or goes back) and `tick`. The tuner weighs speed against
speed; serving capacity is not its to spend. So in such a rollout new pods serve before old ones end, and one whose new
pod finds no node goes back, except where the spec allows more. It goes back too where it stalls, or where its pods turn
out slower, and none is made again for a day. Else it is a proposal, kept in `status.rollout`, that a user may accept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from speculative_operator.domain import names
from speculative_operator.domain.decision import Decision, Policy, State
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Mode, RolloutStrategy, Tuning
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.observed import surge
from speculative_operator.reconcile.snapshot.rollouts import Last, OwnRollouts, Proposal
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.snapshot.workload import Rollout
from speculative_operator.reconcile.table.active_table import ActiveTable, may_remove
from speculative_operator.tuner import Memory
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.request_time import ENOUGH, Speed

HELD_SECONDS = 24 * 3600.0
"""Seconds for which no such rollout is made after one that was undone."""
STEADY_SECONDS = 3600.0
"""Seconds for which a proposal stays, whatever else the tuner would propose meanwhile: a user may be about to accept
it."""
STALE_SECONDS = 12 * 3600.0
"""Seconds after which a proposal is made again, or withdrawn."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a rollout that no user asked for may be made now."""

    rollout: Rollout
    """The rollout under way, with the judgement whether an old pod may end for a new one that finds no node."""
    hindrance: str = ""
    """Why no rollout may be made without a user's approval; empty where one may."""
    known: OwnRollouts = field(default_factory=OwnRollouts)
    accepts: bool = False
    """True where a user accepts the proposal that waits."""
    generation: int = 0


def permission_of(
    world: Snapshot, rollout: Rollout, memory: Memory | None, policy: Policy, active: ActiveTable, now: float
) -> Permission:
    """The permission for an object now, by its spec, its status and its pods."""
    spec = world.spec
    known = _standing(world.status.rollouts, rollout, policy, active, spec.generation, now)
    window = spec.rollout_window
    interrupts = spec.rollout_tuning is Tuning.INTERRUPT and (window is None or window.holds(now))
    hindrance = "" if interrupts or rollout.wanted == 0 else _cost(world)
    if known.held_until is not None and known.held_until <= now + HELD_SECONDS:
        until = timestamp(known.held_until)
        hindrance = f"the last rollout was undone: the tuner starts no other before {until}"
    if rollout.stuck is not None:
        unasked, only = _is_unasked(world, memory), rollout.wanted < 2
        stuck = surge.judge(spec, rollout.stuck, unasked=unasked, interrupts=interrupts, only=only)
        rollout = replace(rollout, stuck=stuck)
    accepts = known.proposal is not None and spec.accept == known.proposal.accept
    return Permission(rollout, hindrance, known, accepts, spec.generation)


def _cost(world: Snapshot) -> str:
    """What a rollout would take from pods that serve, of this object or of others; empty where it takes nothing."""
    if world.spec.rollout_strategy is RolloutStrategy.RECREATE:
        return "rollout.strategy Recreate stops pods before others serve"
    displaces = any(pod.displaces for pod in world.pods)
    return "by their priority, new pods may displace pods of others" if displaces else ""


def _is_unasked(world: Snapshot, memory: Memory | None) -> bool:
    """True where the rollout under way is one that no user asked for. Once pods were measured after that, what replaces
    them is something else."""
    last, measured = world.status.rollouts.last, world.status.measured
    if measured is not None and measured.generation == world.spec.generation:
        return True  # a better speculator was measured
    over = memory is not None and memory.speed.windows >= ENOUGH
    return last is not None and last.generation == world.spec.generation and last.keeps_capacity and not over


def takes_rollout(decision: Decision, policy: Policy, active: ActiveTable) -> bool:
    """True where pods are replaced for `decision`."""
    return policy.knobs.actuator is not Actuator.LIVE or decision.removed != active.removed


def _standing(
    known: OwnRollouts, rollout: Rollout, policy: Policy, active: ActiveTable, generation: int, now: float
) -> OwnRollouts:
    """`known` without the proposal, the last rollout and the pause that no longer hold, as after another edit or
    table. A table that changes during a rollout makes it no other rollout."""
    held = known.held_until if known.held_until is not None and now < known.held_until else None
    if policy.mode is not Mode.AUTO:
        return OwnRollouts(held_until=held)
    proposal, last = known.proposal, known.last
    if proposal is not None and (
        (proposal.version != active.version and proposal.removed == active.removed)
        or fit(proposal.table, policy) != proposal.table
        or (proposal.removed and not may_remove(policy))
        or not 0 <= now - proposal.time < 2 * STALE_SECONDS
    ):
        proposal = None
    if last is not None and (
        last.generation != generation
        or (last.version != active.version and rollout.complete)
        or fit(last.table, policy) != last.table
    ):
        last = None
    return OwnRollouts(proposal, last, held)


def find_order(memory: Memory, permission: Permission, active: ActiveTable) -> Decision | None:
    """The decision that is carried out whatever the tuner says: the way back from a rollout that failed, or an accepted
    proposal; None without one."""
    last, proposal, rollout = permission.known.last, permission.known.proposal, permission.rollout
    if last is not None and (last.table, last.removed) == (active.table, active.removed):
        last = None  # the way back is under way already
    if last is not None and rollout.stalled:
        return _back(last, f"the rollout of table {last.version} stalled: {rollout.stalled}")
    if last is not None and rollout.stuck is not None and rollout.stuck.goes_back:
        return _back(last, f"no node has room for {rollout.stuck.pod}, a new pod for table {last.version}")
    if last is not None and rollout.complete and memory.speed.slower_than(last.speed) and not permission.hindrance:
        rates = f"{memory.speed.rate:.1f} tokens/s per request, before the rollout {last.speed.rate:.1f}"
        return _back(last, f"pods with table {last.version} are slower: {rates}")
    if proposal is None or not permission.accepts or not (rollout.exists and rollout.complete):
        return None
    # Without speculator or with it again: the table is then the one that follows the load meanwhile, or that waits.
    table = proposal.table if proposal.removed == active.removed else active.table or proposal.table
    return _decision(table, proposal.removed, proposal.reason, f"accepted: {proposal.message}")


def note_rollout(
    permission: Permission, decision: Decision, speed: Speed, before: ActiveTable, now: float
) -> OwnRollouts:
    """The state of own rollouts once the one for `decision` has begun; `before` is the table that was active until
    then."""
    version, generation = before.version + 1, permission.generation
    if decision.reason is Reason.ROLLOUT_UNDONE:
        back = Last(version, generation, now, decision.table, decision.removed, keeps_capacity=True)
        return OwnRollouts(last=back, held_until=now + HELD_SECONDS)
    if before.table is None:
        return OwnRollouts()
    last = Last(version, generation, now, before.table, before.removed, speed, not permission.accepts)
    return OwnRollouts(last=last, held_until=permission.known.held_until)


def propose(known: OwnRollouts, decision: Decision, active: ActiveTable, hindrance: str, now: float) -> OwnRollouts:
    """`known` with a proposal of `decision`; an earlier proposal stays for a while."""
    message = f"{decision.message}. Not done: {hindrance}"[:1000]
    new = Proposal(decision.table, decision.removed, active.version, decision.reason, message, now)
    old = known.proposal
    if old is not None:
        flips = old.removed == new.removed != active.removed
        same = flips or (old.table, old.removed) == (new.table, new.removed)
        if now - old.time < (STALE_SECONDS if same else STEADY_SECONDS):
            return known
    return replace(known, proposal=new)


def hold_back(decision: Decision, active: ActiveTable, hindrance: str) -> Decision:
    """The tuner's decision where it wants a rollout that is not made: the active table stays."""
    table = active.table or decision.table
    message = f"{decision.message}. Not done: {hindrance}"
    kept = _decision(table, active.removed, Reason.ROLLOUT_NEEDS_APPROVAL, message)
    return replace(kept, changed=False, estimate=decision.estimate)


def notices(spec: DeploymentSpec, known: OwnRollouts) -> tuple[Notice, ...]:
    """One notice of the proposal that waits for approval, with the command that accepts it; none without a proposal."""
    proposal = known.proposal
    if proposal is None:
        return ()
    target = "pods without the speculator" if proposal.removed else f"table {proposal.table}"
    message = (
        f"proposed: {target}: {proposal.message}. To have exactly this rollout made now: kubectl annotate --overwrite "
        f"-n {spec.namespace} specdep {spec.name} {names.ANNOTATION_ACCEPT}={proposal.accept}. To allow such rollouts "
        "also where pods stop serving meanwhile: spec.rollout.tuning: Interrupt, with spec.rollout.window for the hours"
    )
    return (Notice(Reason.ROLLOUT_NEEDS_APPROVAL, message),)


def _back(last: Last, why: str) -> Decision:
    return _decision(last.table, last.removed, Reason.ROLLOUT_UNDONE, f"{why}; the previous pods are restored")


def _decision(table: KTable, removed: bool, reason: Reason, message: str) -> Decision:
    state = State.REMOVED if removed else State.ON if table.max_k > 0 else State.OFF
    return Decision(state, table, reason, message, valid=True, changed=True, removed=removed)
