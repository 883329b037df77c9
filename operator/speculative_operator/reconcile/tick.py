"""One reconcile of one object: from what was observed to what is to be done and said. Called by the shell.

    refuse -> pause -> pair -> hold -> choose -> active table -> decide -> render -> plan -> status -> events

Each of the first four steps returns the outcome, or passes on what it has found.

Nothing here does I/O or fails on what others wrote: garbled status, children and pods read as empty. Harm to serving
is the only unforgivable outcome: whatever cannot be rendered, understood or proven leaves running pods as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain.actions import Condition
from speculative_operator.domain.clock import Clock, Moment
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import Reason, reason_of
from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.engines.base import Notice
from speculative_operator.engines.pairs import unknown_accelerator
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.children import candidate, measuring, privileges, upgrade
from speculative_operator.reconcile.children.desired import Desired, desired_children, template_in
from speculative_operator.reconcile.children.plan import Plan, follow_route, keep_pods, plan, repairs_of_group, rolls
from speculative_operator.reconcile.observed import canary, route, startup, surge, targets
from speculative_operator.reconcile.pair.jobs import of_jobs
from speculative_operator.reconcile.pair.pairing import pairing_of
from speculative_operator.reconcile.pair.picking import pass_over_misfits, picking_of, settle
from speculative_operator.reconcile.pair.pinning import PairedSpec
from speculative_operator.reconcile.pair.verdicts import tuner_facts
from speculative_operator.reconcile.report.figures import estimate_of
from speculative_operator.reconcile.report.view import View
from speculative_operator.reconcile.snapshot import rollouts
from speculative_operator.reconcile.snapshot.pods import first_ended_by_probe
from speculative_operator.reconcile.snapshot.tables import Leaving
from speculative_operator.reconcile.snapshot.take import Snapshot, take
from speculative_operator.reconcile.snapshot.workload import Rollout
from speculative_operator.reconcile.table import own_rollouts, tables
from speculative_operator.reconcile.table.active_table import ActiveTable, active_table
from speculative_operator.reconcile.table.deciding import Verdict, consider, policy_of, proposal, restore_memory
from speculative_operator.reconcile.table.own_rollouts import Permission, permission_of
from speculative_operator.reconcile.table.suspension import resumed, suspension_of
from speculative_operator.reconcile.turn import (
    Turn,
    conclude,
    invalid,
    refusals,
    render_problem,
    stay,
    without_unknown_method,
)
from speculative_operator.reconcile.world import Event, Outcome, World
from speculative_operator.render import RenderError
from speculative_operator.render.metadata import pair_hash
from speculative_operator.render.podspec import TABLE_VOLUME
from speculative_operator.tuner import Memory
from speculative_operator.tuner.quorum import Sight, sight

__all__ = ["Event", "Outcome", "World", "invalid", "tick"]


def tick(world: World, memory: Memory | None, observation: Observation | None, now: float) -> Outcome:
    """What is to be done for one object, and what its status is to say.

    `memory` is None at the first reconcile since the operator started: then it is restored from the notes.
    `observation` is None when nothing new was seen of the pods: then nothing is decided. `now` is unix seconds.
    """
    world.memo.begin()
    clock = Clock()
    at = Moment(now, clock)
    if observation is not None:
        observation = replace(observation, time=Moment(observation.time, clock))
    outcome = _walk(canary.weighed(take(world, at)), memory, observation, at)
    clock.runs = False
    return replace(outcome, stands_for=clock.changes_in)


def _walk(world: Snapshot, memory: Memory | None, observation: Observation | None, now: float) -> Outcome:
    picking = picking_of(world, now)
    if picking is not None:
        picking = pass_over_misfits(picking, now)
    spec = picking.spec if picking is not None else resolve(world.spec)
    rollout = world.rollout
    if not rollout.complete:
        served = {one.pod for one in world.status.starts}
        stuck = surge.find_stuck(world.pods, served, now, short=rollout.ready < rollout.wanted)
        rollout = replace(rollout, stuck=stuck)
    turn = Turn(world, spec, rollout, observation, engine_for(world.spec), memory, now, picking)
    for step in (_refuse, _pause, _pair, _hold):
        result = step(turn)
        if isinstance(result, Outcome):
            return result
        turn = result
    return _reconcile_with(turn, _choose(turn))


def _refuse(turn: Turn) -> Outcome | Turn:
    """Leaves pods as they are where the spec cannot be served."""
    refused = _refusals(turn)
    if refused and turn.picking is None:
        spec, notices = without_unknown_method(turn.world, turn.spec)
        turn = replace(turn, spec=spec, notices=notices)
        refused = _refusals(turn) if notices else refused
    beside = (*follow_route(turn.world), *candidate.actions(turn.world))
    return stay(turn, (*refused, *turn.world.problems), actions=beside) if refused else turn


def _refusals(turn: Turn) -> tuple[Condition, ...]:
    world = turn.world
    return (
        *targets.refusals(world), *refusals(turn.spec, turn.engine, jobs=bool(world.capabilities.job_image)),
        *privileges.refusals(world),
    )  # fmt: skip


def _pause(turn: Turn) -> Outcome | Turn:
    """Leaves everything as it is while the object is paused."""
    world = turn.world
    if not world.spec.paused:
        return turn
    policy = policy_of(turn.spec, knobs=turn.engine.knobs(turn.spec), facts=tuner_facts(turn.spec, None))
    memory = restore_memory(world, turn.memory, policy, active_table(world, turn.spec, policy), turn.now)
    return stay(replace(turn, memory=memory), world.problems)


def _pair(turn: Turn) -> Outcome | Turn:
    """Finds what pods may be made of; leaves pods as they are where the Jobs for that cannot be rendered."""
    world, picking = turn.world, turn.picking
    try:
        pairing = picking.pairing if picking is not None else None
        pairing = pairing if pairing is not None else pairing_of(world, turn.spec, turn.now)
    except RenderError as error:
        return stay(turn, (render_problem(error), *world.problems))
    if picking is not None:
        picking, pairing = settle(picking, pairing, turn.now)
    if pairing.stages is not None:
        # Pods do not depend on Jobs: what stands in a Job's way is told with the pair.
        world = replace(world, problems=tuple(one for one in world.problems if not of_jobs(one)))
    return replace(turn, world=world, picking=picking, pairing=pairing)


def _hold(turn: Turn) -> Outcome | Turn:
    """Leaves pods and their table as they are where nothing is known that pods may be made of."""
    pairing = turn.pairing
    if pairing.choices and (not pairing.frozen or _rereads_table(turn)):
        return turn
    actions = (*pairing.actions, *follow_route(turn.world), *candidate.actions(turn.world))
    return stay(turn, turn.world.problems, actions)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What pods are made of in this reconcile, and what the tuner goes by with them."""

    choice: PairedSpec
    policy: Policy
    active: ActiveTable
    """The active table before this reconcile decides anything."""
    own: frozenset[str]
    """Labels of the pods that the active table is for."""
    waiting: tuple[Notice, ...] = ()
    """What new pods could do by now, where those that run stay."""


def _choose(turn: Turn) -> Chosen:
    """The first choice that pods were made of, with what they can do; else the last one, which the spec asks for."""
    made = (_as_made(turn, choice) for choice in turn.pairing.choices)
    return next((one for one in made if one is not None), None) or _chosen(turn, turn.pairing.choices[-1])


def _chosen(turn: Turn, choice: PairedSpec, knobs: KnobSpace | None = None) -> Chosen:
    """Pods of `choice`. `knobs`: what the tuner may choose for those that run, where new ones could do something else;
    else None."""
    pairing, spec = turn.pairing, choice.pinned
    policy = policy_of(
        choice.by_name,
        knobs=knobs or turn.engine.knobs(choice.by_name),
        facts=tuner_facts(choice.by_name, pairing.facts),
        start_seconds=startup.expected_seconds(turn.world.status.starts, choice.by_name.weights.bytes),
    )
    if pairing.frozen and policy.off_policy is OffPolicy.REMOVE:
        policy = replace(policy, off_policy=OffPolicy.KEEP_RUNNING)
    active = active_table(turn.world, spec, policy, pairing.same)
    own = pairing.same | {tables.label_of(spec)}
    own = frozenset({tables.label_of(spec.without_speculator())}) if active.removed else own
    return Chosen(choice, policy, active, own)


def _as_made(turn: Turn, choice: PairedSpec) -> Chosen | None:
    """Pods of `choice` as those that run were made; None where there are none, or a user asks for others."""
    world, workload = turn.world, turn.world.workload
    if not workload.exists:
        return None
    record = workload.resolved
    waiting: tuple[Notice, ...] = ()
    live = turn.engine.knobs(choice.by_name).actuator is Actuator.LIVE
    if live and not workload.table.removed and TABLE_VOLUME not in workload.configs:
        live, waiting = False, (upgrade.live_notice(choice.by_name),)
        choice = choice.without_live_tables
    known = record.knobs if record is not None and (record.knobs.actuator is Actuator.LIVE) is live else None
    made = replace(_chosen(turn, choice, known), waiting=waiting)
    asked = upgrade.made_of(choice, made.policy, made.active)
    if not upgrade.asks_for_others(world, asked):
        return made
    # What a user writes may make no difference to pods, such as a default.
    same = record is not None and record.adopt == world.spec.adopt
    return made if same and _template_rendered(turn, made, asked) == workload.made_as else None


def _template_rendered(turn: Turn, made: Chosen, asked: str) -> str:
    """Hash of the pod template that is rendered; empty where none can be."""
    try:
        desired = desired_children(turn.world, made.choice, turn.engine, made.active, asked, made.own)
    except RenderError:
        return ""
    return template_in(desired.manifests, turn.world.spec.uid)


def _reconcile_with(turn: Turn, made: Chosen) -> Outcome:
    """One reconcile with pods that are made as `made` says."""
    world, choice, policy, own = turn.world, made.choice, made.policy, made.own
    pairing = turn.pairing.made_of(choice)
    suspended = suspension_of(world, policy, made.active, turn.now)
    if not suspended.until:
        made = replace(made, active=resumed(world, made.active, tables.config_name(world, choice.pinned, own)))
    memory = restore_memory(world, turn.memory, policy, made.active, turn.now)
    observation = tables.of_pods(turn.observation, world.pods, own)
    permission = permission_of(world, turn.rollout, memory, policy, made.active, turn.now)
    turn = replace(turn, rollout=permission.rollout, pairing=pairing)
    seen = None if suspended.until else observation  # of steps at a K that the tuner did not choose it learns nothing
    verdict = consider(memory, seen, policy, made.active, permission, turn.now)
    verdict = replace(verdict, active=replace(verdict.active, suspended_until=suspended.until))
    leaving, memories = _decide_for_leaving(world, turn, policy, own)
    proposed = proposal(verdict, policy)
    own_notices = own_rollouts.notices(choice.by_name, verdict.own)
    made_of = upgrade.made_of(choice, policy, verdict.active)
    try:
        makes_room = turn.rollout.stuck is not None and not turn.rollout.stuck.why_not
        desired = desired_children(
            world, choice, turn.engine, verdict.active, made_of, own, leaving, makes_room=makes_room
        )  # fmt: skip
        planned = plan(world, desired, turn.rollout, _reason_of_change(world, verdict))
    except RenderError as error:
        return stay(replace(turn, memory=memory), (render_problem(error), *world.problems), pairing.actions)
    starts = _startup_status(world, choice.pinned, desired, planned)
    waiting = made.waiting
    if pairing.frozen:
        planned = keep_pods(world, planned, repairs=False)
    elif upgrade.waits(world, planned, turn.rollout, made_of):
        waiting, planned = (upgrade.notice(world, planned),), keep_pods(world, planned, repairs=True)
    repairs = () if pairing.frozen else repairs_of_group(world, desired, planned.actions)
    actions = (*pairing.actions, *targets.of_objects(choice.pinned, planned.actions), *repairs)
    measured, picking = measuring.follow(world, turn.picking, bool(suspended.until), turn.now)
    actions = (*actions, *candidate.actions(world, measured))
    late = first_ended_by_probe(world.pods)
    notices = (
        *turn.notices, *suspended.notices, *turn.engine.notices(choice.by_name), *unknown_accelerator(world.spec),
        *pairing.notices, *waiting,
        *privileges.notices(world), *own_notices, *targets.scaling_notices(world.spec, world.workload.scaler),
        *targets.notices(world.spec, turn.rollout), *route.notices(world),
        *((startup.late_notice(late.name, late.outlasted),) if late is not None else ()),
    )  # fmt: skip
    view = View(
        spec=choice.pinned, rollout=_rollout_with(world, turn.rollout, planned), pods=world.pods, notices=notices,
        active=verdict.active, actuator=policy.knobs.actuator, skips=policy.skips and not verdict.active.removed,
        observation=turn.observation, of_pair=observation, sight=_sight(turn.observation, policy, verdict),
        decision=verdict.decision, changed=verdict.changed, proposed=proposed,
        own_rollouts=rollouts.to_status(verdict.own), leaving=leaving, startup=starts,
        problems=(*planned.problems, *route.problems(world), *world.problems),
        pairing=pairing if pairing.is_known else None, picking=picking, canary=canary.follow(world, turn.now),
        measured=measured,
    )  # fmt: skip
    return conclude(
        turn, view, verdict.memory, actions, leaving=memories,
        tries_changed=verdict.active.why is Reason.TRIES_CHANGED,
        estimate=estimate_of(view, view.observation) if view.observation is not None else None,
    )  # fmt: skip


def _rereads_table(turn: Turn) -> bool:
    """True where the table of pods that must stay as they are can still be changed, because they re-read it."""
    told = turn.world.status.speculation
    table = turn.world.children.get(("ConfigMap", turn.world.workload.configs.get(TABLE_VOLUME, "")))
    live = turn.engine.knobs(turn.pairing.choices[-1].by_name).actuator is Actuator.LIVE
    read = told.actuator == Actuator.LIVE.value and not told.removed
    return live and read and table is not None and table.owned


def _decide_for_leaving(
    world: Snapshot, turn: Turn, policy: Policy, own: frozenset[str]
) -> tuple[tuple[Leaving, ...], dict[str, Memory]]:
    """The tables of pods of former pairs after this reconcile, and the tuner's memory of each pair."""
    found, memories = [], {}
    for one in tables.read_leaving(world, own):
        seen = tables.of_pods(turn.observation, world.pods, {one.pair})
        if policy.mode is Mode.AUTO:
            active = ActiveTable(one.table, one.version)
            known = world.leaving.get(one.pair) or Memory.fresh(one.table, turn.now)
            allowed = tables.policy_for(one, policy)
            verdict = consider(known, seen, allowed, active, Permission(turn.rollout), turn.now)
            if verdict.memory is not None:
                memories[one.pair] = verdict.memory
            table = verdict.active.table or one.table
            one = tables.with_decision(one, table, verdict.active.version, verdict.decision)  # noqa: PLW2901
        found.append(one)
    return tuple(found), memories


def _startup_status(world: Snapshot, spec: ResolvedSpec, desired: Desired, planned: Plan) -> dict[str, Any]:
    """`status.startup` with the measured starts and the budget of the template that pods were made of."""
    known = startup.collect_starts(world.status.starts, world.pods, pair_hash(spec), spec.weights.bytes)
    rolling = rolls(world, (*planned.actions, *planned.held))
    seconds = world.status.budget_seconds if rolling else desired.startup_seconds
    return startup.to_status(known, seconds)


def _reason_of_change(world: Snapshot, verdict: Verdict) -> Reason:
    """The reason given for new manifests: the tuner's, also where its decision was recorded but not carried out yet;
    else SpecChanged."""
    if verdict.changed and verdict.decision is not None:
        return verdict.decision.reason
    if verdict.active.why is Reason.TRIES_CHANGED:
        return Reason.TRIES_CHANGED
    last = world.status.last
    if not world.edited and verdict.active.why is None and last.version == verdict.active.version > 0:
        return reason_of(last.reason) or Reason.SPEC_CHANGED
    return Reason.SPEC_CHANGED


def _rollout_with(world: Snapshot, rollout: Rollout, planned: Plan) -> Rollout:
    """The rollout as it is once the plan is carried out."""
    if not rollout.exists or not rolls(world, (*planned.actions, *planned.held)):
        return rollout
    return replace(rollout, complete=False, updated=0, stalled="", stuck=None)


def _sight(observation: Observation | None, policy: Policy, verdict: Verdict) -> Sight | None:
    if observation is None or verdict.memory is None:
        return None
    asked = verdict.decision is not None and policy.knobs.actuator is not Actuator.NONE
    knobs = policy.knobs if asked else None  # pods of another pair may draft what these do not know
    return sight(observation, verdict.memory.last_windows, knobs, observation.time)
