"""Asks the tuner when there are observations and pods that can take its decision, and returns the active table
afterwards.

Called by `tick`. Keeps the tuner's memory consistent with the active table, whatever the tuner, a restart or the spec
changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.spec import DeploymentSpec, Mode, OffPolicy
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.reconcile.snapshot.rollouts import OwnRollouts
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.snapshot.workload import Rollout
from speculative_operator.reconcile.table.active_table import ActiveTable, may_remove
from speculative_operator.reconcile.table.own_rollouts import (
    Permission,
    find_order,
    hold_back,
    note_rollout,
    propose,
    takes_rollout,
)
from speculative_operator.tuner import Memory, decide, first_trials
from speculative_operator.tuner.allowed import fit_trials, lawful
from speculative_operator.tuner.pace import ROLLOUT_DWELL
from speculative_operator.tuner.persistence import from_status
from speculative_operator.tuner.request_time import Speed

_SEEN = (
    "costs", "acceptance", "traffic", "last", "windows", "updated_at", "seen", "cells", "speed", "blind_since",
)  # fmt: skip
"""Fields of a memory that say what was seen, not what was done."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The active table and the tuner's memory after this reconcile. `decision` is None when the tuner was not asked."""

    memory: Memory | None
    decision: Decision | None
    active: ActiveTable
    changed: bool = False
    """True when this reconcile carries out the decision."""
    own: OwnRollouts = field(default_factory=OwnRollouts)
    """Rollouts that no user asked for: the proposal that waits, and the last rollout, which is watched."""


def policy_of(spec: DeploymentSpec, **known: Any) -> Policy:
    """The tuner's policy for `spec`. `known`: fields of the policy that the spec alone cannot tell."""
    speculation = spec.speculation
    return Policy(
        mode=speculation.mode,
        start_k=speculation.num_speculative_tokens,
        schedule=speculation.schedule if speculation.mode is Mode.STATIC else None,
        off_policy=speculation.off_policy,
        objective=speculation.objective,
        workload=speculation.workload,
        **known,
    )


def restore_memory(
    world: Snapshot, memory: Memory | None, policy: Policy, active: ActiveTable, now: float
) -> Memory | None:
    """The tuner's memory, consistent with the active table: kept, restored from the status after a restart, or fresh.
    None where pods have no table."""
    table = active.table
    if table is None:
        return None
    if active.fresh:
        return Memory.fresh(table, now)
    if memory is None:
        stored = world.status.memory
        memory = from_status(stored, policy) if stored else Memory.fresh(table, now)
    return _at_one(memory, active)


def consider(
    memory: Memory | None,
    observation: Observation | None,
    policy: Policy,
    active: ActiveTable,
    permission: Permission,
    now: float,
) -> Verdict:
    """The verdict, with the tuner's decision if it is asked.

    The tuner is not asked when nothing was observed; in the reconcile in which the spec has just changed the table;
    where no pod reads a table; and, where a new table means a rollout, during a rollout, for a second one would run
    into the first. `observation` covers only pods that the table is for: windows of another pair, or without a
    speculator, would mix with theirs. What a new object tries is written again where somebody took it away.
    """
    if memory is not None and not active.trials:
        active = replace(active, trials=fit_trials(first_trials(memory, policy), memory.table, policy))
        memory = _at_one(memory, active)
    quiet = Verdict(memory, None, active, own=permission.known)
    if memory is None or active.why is not None:
        return quiet
    if observation is not None and permission.rollout.complete:
        memory = replace(memory, speed=memory.speed.after(observation.windows.values()))
        quiet = replace(quiet, memory=memory)
    order = find_order(memory, permission, active)
    if order is not None:
        return _activate(_note_change(memory, order, now), order, quiet, policy, permission, now)
    waits = policy.knobs.actuator is not Actuator.LIVE and not permission.rollout.complete
    if observation is None or waits or _unread(observation, policy):
        return quiet
    return _ask(quiet, memory, replace(observation, table_version=active.least_version), policy, permission, now)


def _unread(observation: Observation, policy: Policy) -> bool:
    """True where no pod re-reads its table: no decision reaches the pods, and their windows tell nothing of the active
    table."""
    windows = observation.windows.values()
    return policy.knobs.actuator is Actuator.LIVE and bool(windows) and all(one.live is False for one in windows)


def _ask(
    quiet: Verdict, memory: Memory, observation: Observation, policy: Policy, permission: Permission, now: float
) -> Verdict:
    """The verdict with the tuner's decision; `quiet` is the verdict without it."""
    active, rollout = quiet.active, permission.rollout
    after, decision = decide(memory, observation, policy, now)
    may = _obey(decision, observation, policy, active, rollout) and _has_rested(policy, rollout, now)
    if may and permission.hindrance and takes_rollout(decision, policy, active):
        known = propose(permission.known, decision, active, permission.hindrance, now)
        quiet = replace(quiet, own=known)
        if policy.knobs.actuator is not Actuator.LIVE or active.removed:
            after = replace(memory, **{name: getattr(after, name) for name in _SEEN})
            return replace(quiet, memory=after, decision=hold_back(decision, active, permission.hindrance))
        # The table of pods that keep their speculator goes on following the load.
        policy = replace(policy, off_policy=OffPolicy.KEEP_RUNNING)
        after, decision = decide(memory, observation, policy, now)
        may = _obey(decision, observation, policy, active, rollout)
    if may:
        return _activate(after, decision, quiet, policy, permission, now)
    if decision.changed and policy.mode is not Mode.RECOMMEND:
        # What was not done starts no waiting time and spends no allowance; what was seen stays seen.
        after = replace(memory, **{name: getattr(after, name) for name in _SEEN})
    elif decision.valid and decision.table == active.table and not active.removed:
        trials = fit_trials(decision.trials, decision.table, policy)
        active = active if trials == active.trials else active.with_trials(trials)
    return replace(quiet, memory=_at_one(after, active), decision=decision, active=active)


def _activate(
    after: Memory, decision: Decision, was: Verdict, policy: Policy, permission: Permission, now: float
) -> Verdict:
    """The verdict that carries out `decision`: `was` is the verdict without it, `after` the memory with it."""
    last, memory = was.active, was.memory
    trials = () if decision.removed else fit_trials(decision.trials, decision.table, policy)
    changed = ActiveTable(
        decision.table, last.version + 1, before=None if last.removed else last.table, removed=decision.removed,
        trials=trials,
    )  # fmt: skip
    own = was.own
    if takes_rollout(decision, policy, last) and memory is not None:
        own = note_rollout(permission, decision, memory.speed, last, now)
        after = replace(after, speed=Speed())
    return replace(was, memory=_at_one(after, changed), decision=decision, active=changed, changed=True, own=own)


def _note_change(memory: Memory, order: Decision, now: float) -> Memory:
    """`memory` with a note of the change by `order`, which the tuner did not decide."""
    off_at = now if order.removed != memory.removed else memory.removed_at
    return replace(memory, changed_at=now, removed_at=off_at, wanted_since=None, doomed_since=None)


def proposal(verdict: Verdict, policy: Policy) -> KTable | None:
    """The table that the tuner proposes: in mode Recommend, or by a rollout that waits for approval. None without a
    proposal."""
    decision, waits = verdict.decision, verdict.own.proposal
    if waits is not None and waits.removed == verdict.active.removed:
        return waits.table
    if policy.mode is not Mode.RECOMMEND or decision is None or not decision.valid:
        return None
    return decision.table if decision.table != verdict.active.table else None


def _obey(decision: Decision, observation: Observation, policy: Policy, active: ActiveTable, rollout: Rollout) -> bool:
    """True where the decision is carried out: only in mode Auto, only on evidence, and only within what the engine can
    do."""
    return (
        policy.mode is Mode.AUTO
        and lawful(decision, observation, policy)
        and _is_new(decision, policy, active, rollout)
    )


def _has_rested(policy: Policy, rollout: Rollout, now: float) -> bool:
    """False shortly after a rollout, where the next table means another rollout. The tuner counts from its decision: a
    slow rollout could end when the next is due, and pods would do nothing but restart."""
    ended = rollout.completed_at
    return policy.knobs.actuator is Actuator.LIVE or ended is None or not 0.0 <= now - ended < ROLLOUT_DWELL


def _is_new(decision: Decision, policy: Policy, active: ActiveTable, rollout: Rollout) -> bool:
    """True for another table for pods with a speculator, and for the removal or return of the speculator, which begins
    only when no other rollout is under way, the removal only where the spec allows it. False for another table for pods
    without a speculator: it would merely wait."""
    if decision.removed == active.removed:
        return not active.removed and decision.table != active.table
    return rollout.exists and rollout.complete and (may_remove(policy) or not decision.removed)


def _at_one(memory: Memory, active: ActiveTable) -> Memory:
    """`memory` with the table, the trials and the removal of `active`."""
    table = active.table if active.table is not None else memory.table
    return replace(memory, table=table, trials=active.trials, removed=active.removed)
