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
from speculative_operator.domain.decision import Policy, State
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.engines.base import Engine
from speculative_operator.engines.facts import pair_facts
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.caps import unused
from speculative_operator.reconcile.deciding import Serving, Verdict, consider, policy_of, proposal, remembered
from speculative_operator.reconcile.desired import desired_children, without_drafter
from speculative_operator.reconcile.events import events
from speculative_operator.reconcile.found import EngineAsFound, engine_as_found
from speculative_operator.reconcile.history import PROBES, newest
from speculative_operator.reconcile.plan import Plan, plan, rolls
from speculative_operator.reconcile.pods import Pod, of_another_pair, read_pods
from speculative_operator.reconcile.reading import text, whole
from speculative_operator.reconcile.refusal import invalid, refusals
from speculative_operator.reconcile.rollout import Rollout, read_rollout
from speculative_operator.reconcile.status import make_status
from speculative_operator.reconcile.truth import InForce, table_in_force
from speculative_operator.reconcile.view import View
from speculative_operator.reconcile.world import Event, Outcome, World
from speculative_operator.render import RenderError
from speculative_operator.render.labels import pair_hash
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
    engine = engine_as_found(engine_for(world.spec), world.spec, world.status)
    refused = refusals(world.spec, engine)
    if refused:
        return _stay(world, look, memory, (*refused, *world.problems), now)
    policy = policy_of(world.spec, knobs=engine.knobs(world.spec), facts=pair_facts(world.spec))
    in_force = table_in_force(world, policy)
    held = remembered(world, memory, policy, in_force, now)
    if world.spec.paused:
        return _stay(world, look, held, world.problems, now)
    verdict = consider(held, observation, policy, in_force, _serving(world, look, in_force), now)
    try:
        planned = _plan(world, look, engine, verdict, policy.knobs.actuator)
    except RenderError as error:
        problem = Condition(ConditionType.READY, Truth.FALSE, Reason.RENDER_INVALID, str(error))
        return _stay(world, look, memory, (problem, *world.problems), now)
    notices = (*engine.notices(world.spec), *unused(world.spec, policy.knobs))
    view = replace(_view(world, look, policy, verdict, planned), notices=notices)
    status = make_status(view, world.status, verdict.memory, now)
    told = events(world.status, status, planned.actions)
    return Outcome(planned.actions, status, told, verdict.memory, _probed(verdict))


def _serving(world: World, look: _Look, in_force: InForce) -> Serving:
    overridden = text(world.spec.template, "metadata", "labels", names.LABEL_PAIR)
    pair = overridden or pair_hash(without_drafter(world.spec) if in_force.hard_off else world.spec)
    return Serving(look.rollout, of_another_pair(look.pods, pair))


def _plan(world: World, look: _Look, engine: Engine, verdict: Verdict, actuator: Actuator) -> Plan:
    desired = desired_children(world, engine, verdict.in_force)
    given_up = text(world.status, "speculation", "actuator") == Actuator.LIVE.value != actuator.value
    fallen = isinstance(engine, EngineAsFound) and given_up
    why = Reason.ENGINE_VERSION_DIFFERS if fallen else _why(world, verdict)
    return plan(world, desired, look.pods, look.rollout, why)


def _why(world: World, verdict: Verdict) -> Reason:
    """Why manifests are new ones: the tuner's reason, also where its decision was recorded but not carried out yet."""
    if verdict.changed and verdict.decision is not None:
        return verdict.decision.reason
    last = newest(world.status)
    known = whole(world.status, "observedGeneration") == world.spec.generation
    if known and verdict.in_force.why is None and whole(last, "tableVersion") == verdict.in_force.version > 0:
        return next((reason for reason in Reason if reason.value == text(last, "reason")), Reason.SPEC_CHANGED)
    return Reason.SPEC_CHANGED


def _view(world: World, look: _Look, policy: Policy, verdict: Verdict, planned: Plan) -> View:
    rollout = look.rollout
    if rollout.exists and rolls(world, (*planned.actions, *planned.held)):
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
        probing=_probing(world, verdict),
        proposed=proposal(verdict, policy),
    )


def _probing(world: World, verdict: Verdict) -> bool:
    """True while a probe runs: as the tuner says, or, while it says nothing, as it said last."""
    if verdict.decision is not None:
        return verdict.decision.state is State.PROBING
    return text(world.status, "speculation", "state") == State.PROBING.value


def _probed(verdict: Verdict) -> Reason | None:
    reason = verdict.decision.reason if verdict.changed and verdict.decision is not None else None
    return reason if reason in PROBES else None


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
