"""One tick of one object: what was seen in, what is to be done and said out. Called by the shell; joins the parts.

    refusals -> table in force -> decide -> render -> plan -> status -> events

Nothing here does I/O or fails on what others wrote: garbled status, children and pods read as empty. Harm to serving
is the only unforgivable outcome: whatever cannot be rendered, understood or proven leaves running pods as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action
from speculative_operator.domain.conditions import Condition, Truth
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.engines.base import Engine
from speculative_operator.engines.facts import pair_facts
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.deciding import Verdict, consider, policy_of, proposal, remembered
from speculative_operator.reconcile.desired import desired_children
from speculative_operator.reconcile.events import events
from speculative_operator.reconcile.plan import Plan, plan, rolls
from speculative_operator.reconcile.pods import Pod, read_pods
from speculative_operator.reconcile.refusal import invalid, refusals
from speculative_operator.reconcile.rollout import Rollout, read_rollout
from speculative_operator.reconcile.status import make_status
from speculative_operator.reconcile.truth import InForce, table_in_force
from speculative_operator.reconcile.view import View
from speculative_operator.reconcile.world import Event, Outcome, World
from speculative_operator.render import RenderError
from speculative_operator.tuner import Memory

__all__ = ["Event", "Outcome", "World", "invalid", "tick"]


@dataclass(frozen=True, slots=True)
class _Look:
    """What is there, read once."""

    pods: tuple[Pod, ...]
    rollout: Rollout
    observation: Observation | None


def tick(world: World, memory: Memory | None, observation: Observation | None, now: float) -> Outcome:
    """What is to be done for one object, and what its status is to say.

    `memory` is None on the first visit since the operator started: then it is restored from status. `observation` is
    None when nothing new was seen of the pods: then nothing is decided. `now` is unix seconds.
    """
    deployment = world.children.get(("Deployment", names.child(world.spec.name)))
    look = _Look(read_pods(world.pods), read_rollout(deployment, world.spec.replicas), observation)
    engine = engine_for(world.spec)
    refused = refusals(world.spec, engine)
    if refused:
        return _stay(world, look, memory, (*refused, *world.problems), now)
    policy = policy_of(world.spec, knobs=engine.knobs(world.spec), facts=pair_facts(world.spec))
    in_force = table_in_force(world, policy)
    held = remembered(world, memory, policy, in_force, now)
    if world.spec.paused:
        return _stay(world, look, held, world.problems, now)
    verdict = consider(held, observation, policy, in_force, look.rollout, now)
    try:
        planned = _plan(world, look, engine, verdict)
    except RenderError as error:
        problem = Condition(ConditionType.READY, Truth.FALSE, Reason.RENDER_INVALID, str(error))
        return _stay(world, look, memory, (problem, *world.problems), now)
    view = _view(world, look, policy, verdict, planned)
    status = make_status(view, world.status, verdict.memory, now)
    return Outcome(planned.actions, status, events(world.status, status, planned.actions), verdict.memory)


def _plan(world: World, look: _Look, engine: Engine, verdict: Verdict) -> Plan:
    desired = desired_children(world, engine, verdict.in_force)
    changed = verdict.decision.reason if verdict.changed and verdict.decision is not None else Reason.SPEC_CHANGED
    return plan(world, desired, look.pods, look.rollout, changed)


def _view(world: World, look: _Look, policy: Policy, verdict: Verdict, planned: Plan) -> View:
    rollout = look.rollout
    if rollout.exists and rolls(world, planned.actions):
        rollout = replace(rollout, complete=False, updated=0, stalled="")
    return View(
        spec=world.spec,
        rollout=rollout,
        pods=look.pods,
        in_force=verdict.in_force,
        actuator=policy.knobs.actuator,
        problems=(*planned.problems, *world.problems),
        observation=look.observation,
        decision=verdict.decision,
        changed=verdict.changed,
        proposed=proposal(verdict, policy),
    )


def _stay(world: World, look: _Look, memory: Memory | None, problems: Sequence[Condition], now: float) -> Outcome:
    """Nothing is done or decided; pods and their table stay as they are, and status keeps what it said of them."""
    view = View(
        spec=world.spec,
        rollout=look.rollout,
        pods=look.pods,
        in_force=InForce(None, 0),
        actuator=Actuator.NONE,
        problems=tuple(problems),
        observation=look.observation,
        kept=True,
    )
    status = make_status(view, world.status, None, now)
    actions: tuple[Action, ...] = ()
    return Outcome(actions, status, events(world.status, status, actions), memory)
