"""Asks the tuner, when there is something to ask and somebody to obey, and says what is in force afterwards.

Called by `tick`. Keeps the memory at one with the table in force, whatever the tuner, a restart or the spec did to it.
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
from speculative_operator.reconcile.truth import InForce
from speculative_operator.reconcile.world import World
from speculative_operator.tuner import Memory, decide
from speculative_operator.tuner.start import fit


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is in force after this tick. `decision` is None when the tuner was not asked."""

    memory: Memory | None
    decision: Decision | None
    in_force: InForce

    @property
    def changed(self) -> bool:
        """True when the tuner's table came into force with this tick."""
        return self.decision is not None and self.decision.changed and self.in_force.table == self.decision.table


def policy_of(spec: DeploymentSpec, **known: Any) -> Policy:
    """What the tuner may do. `known`: knobs and facts, which only the engine adapter can tell."""
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


def remembered(world: World, memory: Memory | None, policy: Policy, in_force: InForce, now: float) -> Memory | None:
    """The tuner's memory with the table in force: kept, restored from status after a restart, or fresh."""
    table = in_force.table
    if table is None:
        return None
    if in_force.fresh:
        return Memory.fresh(table, now)
    if memory is None:
        stored = mapping(world.status, "memory")
        memory = Memory.from_status(stored, policy) if stored else Memory.fresh(table, now)
    return memory if memory.table == table else replace(memory, table=table)


def consider(
    memory: Memory | None,
    observation: Observation | None,
    policy: Policy,
    in_force: InForce,
    rollout: Rollout,
    now: float,
) -> Verdict:
    """The tuner's answer, if it is asked.

    It is not asked when nothing was observed, in the tick in which the spec has just changed the table, and, where a
    new table means a rollout, during a rollout: windows of two templates would mix, and a second rollout would run
    into the first.
    """
    if memory is None or observation is None or in_force.why is not None:
        return Verdict(memory, None, in_force)
    if policy.knobs.actuator is not Actuator.LIVE and not rollout.complete:
        return Verdict(memory, None, in_force)
    memory, decision = decide(memory, observation, policy, now)
    if _obey(decision, observation, policy, in_force):
        return Verdict(memory, decision, InForce(decision.table, in_force.version + 1, before=in_force.table))
    if memory.table != in_force.table and in_force.table is not None:
        memory = replace(memory, table=in_force.table)
    return Verdict(memory, decision, in_force)


def proposal(verdict: Verdict, policy: Policy) -> KTable | None:
    """The table that Auto would put in force, in mode Recommend; None when it is the one in force."""
    decision = verdict.decision
    if policy.mode is not Mode.RECOMMEND or decision is None or not decision.valid:
        return None
    return decision.table if decision.table != verdict.in_force.table else None


def _obey(decision: Decision, observation: Observation, policy: Policy, in_force: InForce) -> bool:
    """A change is carried out only in Auto, only on evidence, and only within what the engine can do."""
    return (
        policy.mode is Mode.AUTO
        and decision.valid
        and decision.changed
        and decision.table != in_force.table
        and observation.gap is None
        and bool(observation.windows)
        and fit(decision.table, policy) == decision.table
        and (policy.knobs.actuator is not Actuator.RESTART or len(decision.table.ks) == 1)
    )
