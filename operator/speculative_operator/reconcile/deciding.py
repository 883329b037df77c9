"""Asks the tuner, when there is something to ask and somebody to obey, and says what is in force afterwards.

Called by `tick`. Keeps the memory at one with what is in force, whatever the tuner, a restart or the spec did to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.spec import DeploymentSpec, Mode
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.reading import mapping
from speculative_operator.reconcile.rollout import Rollout
from speculative_operator.reconcile.truth import InForce, may_hard_off
from speculative_operator.reconcile.world import World
from speculative_operator.tuner import Memory, decide
from speculative_operator.tuner.lawful import lawful
from speculative_operator.tuner.pace import ROLLOUT_DWELL

_SEEN = ("costs", "acceptance", "traffic", "last", "windows", "updated_at", "seen", "steady", "drafted_at")
"""Fields of a memory that say what was seen, not what was done."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What the pods run at this moment."""

    rollout: Rollout
    mixed: bool = False
    """True while ready pods of another pair, or with a drafter beside those without, are left."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is in force after this tick. `decision` is None when the tuner was not asked."""

    memory: Memory | None
    decision: Decision | None
    in_force: InForce
    changed: bool = False
    """True when the tuner's decision came into force with this tick."""


def policy_of(spec: DeploymentSpec, **known: Any) -> Policy:
    """What the tuner may do. `known`: what the spec alone cannot tell."""
    speculation, hourly = spec.speculation, spec.accelerator.hourly_cost
    return Policy(
        mode=speculation.mode,
        start_k=speculation.num_speculative_tokens,
        schedule=speculation.schedule if speculation.mode is Mode.STATIC else None,
        off_policy=speculation.off_policy,
        objective=speculation.objective,
        workload=speculation.workload,
        pod_hourly_cost=None if hourly is None else hourly * spec.accelerator.per_replica,
        **known,
    )


def remembered(world: World, memory: Memory | None, policy: Policy, in_force: InForce, now: float) -> Memory | None:
    """The tuner's memory with what is in force: kept, restored from status after a restart, or fresh."""
    table = in_force.table
    if table is None:
        return None
    if in_force.fresh:
        return Memory.fresh(table, now)
    if memory is None:
        stored = mapping(world.status, "memory")
        memory = Memory.from_status(stored, policy) if stored else Memory.fresh(table, now)
    return _at_one(memory, in_force)


def consider(
    memory: Memory | None,
    observation: Observation | None,
    policy: Policy,
    in_force: InForce,
    serving: Serving,
    now: float,
) -> Verdict:
    """The tuner's answer, if it is asked.

    It is not asked when nothing was observed; in the tick in which the spec has just changed the table; while ready
    pods of another pair, or with a drafter beside those without, are left, for their windows would mix; and, where a
    new table means a rollout, during a rollout, for a second one would run into the first.
    """
    if memory is None or observation is None or in_force.why is not None or serving.mixed:
        return Verdict(memory, None, in_force)
    if policy.knobs.actuator is not Actuator.LIVE and not serving.rollout.complete:
        return Verdict(memory, None, in_force)
    observation = replace(observation, table_version=in_force.version)
    after, decision = decide(memory, observation, policy, now)
    before = None if in_force.hard_off else _settled(memory, in_force)
    if _obey(decision, observation, policy, in_force, serving.rollout) and _rested(policy, serving.rollout, now):
        version, capped = in_force.version + 1, in_force.per_request
        changed = InForce(decision.table, version, before=before, hard_off=decision.hard_off, per_request=capped)
        return Verdict(_at_one(after, changed), decision, changed, changed=True)
    if memory.probe is not None and after.probe is None and _adopted(decision, policy, in_force, before):
        kept = replace(in_force, before=before)
        return Verdict(_at_one(after, kept), decision, kept, changed=True)
    if decision.changed and policy.mode is not Mode.RECOMMEND:
        # What was not done starts no waiting time and spends no allowance; what was seen stays seen.
        after = replace(memory, **{name: getattr(after, name) for name in _SEEN})
    return Verdict(_at_one(after, in_force), decision, in_force)


def proposal(verdict: Verdict, policy: Policy) -> KTable | None:
    """The table that Auto would put in force, in mode Recommend; None when it is the one in force."""
    decision = verdict.decision
    if policy.mode is not Mode.RECOMMEND or decision is None or not decision.valid:
        return None
    return decision.table if decision.table != verdict.in_force.table else None


def _obey(decision: Decision, observation: Observation, policy: Policy, in_force: InForce, rollout: Rollout) -> bool:
    """A change is carried out only in Auto, only on evidence, and only within what the engine can do."""
    return (
        policy.mode is Mode.AUTO
        and lawful(decision, observation, policy)
        and _is_new(decision, policy, in_force, rollout)
    )


def _rested(policy: Policy, rollout: Rollout, now: float) -> bool:
    """False shortly after a rollout where the next table means another one. The tuner counts from its decision: a slow
    rollout could end when the next is due, and pods would do nothing but restart."""
    ended = rollout.completed_at
    return policy.knobs.actuator is Actuator.LIVE or ended is None or not 0.0 <= now - ended < ROLLOUT_DWELL


def _settled(memory: Memory, in_force: InForce) -> KTable | None:
    """The table in force; during a probe the one that was before it."""
    return memory.probe.base if memory.probe is not None else in_force.table


def _adopted(decision: Decision, policy: Policy, in_force: InForce, before: KTable | None) -> bool:
    """True when the table of a probe that has ended stays: it is in force already, but only now decided for."""
    stays = decision.table == in_force.table != before and not decision.hard_off
    return policy.mode is Mode.AUTO and decision.valid and stays


def _is_new(decision: Decision, policy: Policy, in_force: InForce, rollout: Rollout) -> bool:
    """Another table for pods that have one; or the drafter's removal or return, which begins only when no other rollout
    is under way, the removal only where the spec allows it. A table that merely waits is not worth a write."""
    if decision.hard_off == in_force.hard_off:
        return not in_force.hard_off and decision.table != in_force.table
    return rollout.exists and rollout.complete and (may_hard_off(policy) or not decision.hard_off)


def _at_one(memory: Memory, in_force: InForce) -> Memory:
    """`memory` that holds for in force what is."""
    change: dict[str, Any] = {}
    if in_force.table is not None and memory.table != in_force.table:
        change["table"] = in_force.table
    if memory.hard_off is not in_force.hard_off:
        change["hard_off"] = in_force.hard_off
    return replace(memory, **change) if change else memory
