"""One tick of one object: what was seen in, what is to be done and said out. Called by the shell; joins the parts.

    refusals -> pair -> table in force -> decide -> render -> plan -> status -> events

Nothing here does I/O or fails on what others wrote: garbled status, children and pods read as empty. Harm to serving
is the only unforgivable outcome: whatever cannot be rendered, understood or proven leaves running pods as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain.actions import Action
from speculative_operator.domain.conditions import Condition, Truth
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator, KnobSpace
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import OffPolicy, RolloutStrategy
from speculative_operator.engines.base import Engine, Notice
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile import compiling, own_rollouts, privileges, resting, startup, tables, upgrade
from speculative_operator.reconcile.caps import unused
from speculative_operator.reconcile.choices import Pairing
from speculative_operator.reconcile.deciding import Serving, Verdict, consider, policy_of, proposal, remembered
from speculative_operator.reconcile.desired import Desired, desired_children
from speculative_operator.reconcile.effective import Effective
from speculative_operator.reconcile.events import events
from speculative_operator.reconcile.found import EngineAsFound, engine_as_found, engine_as_made
from speculative_operator.reconcile.history import newest
from speculative_operator.reconcile.jobs import of_jobs
from speculative_operator.reconcile.own_rollouts import permission_of
from speculative_operator.reconcile.pairing import pairing_of
from speculative_operator.reconcile.picking import Picking, picking_of, said, served, tried
from speculative_operator.reconcile.plan import Plan, frozen, is_ours, plan, replaces, rolls
from speculative_operator.reconcile.pods import Pod, first_outlasted, read_pods
from speculative_operator.reconcile.reading import at, mapping, text, whole
from speculative_operator.reconcile.records import written
from speculative_operator.reconcile.refusal import invalid, refusals
from speculative_operator.reconcile.rollout import Rollout, read_rollout, scaling_notices
from speculative_operator.reconcile.status import make_status
from speculative_operator.reconcile.truth import InForce, table_in_force
from speculative_operator.reconcile.verdicts import tuner_facts
from speculative_operator.reconcile.view import PairView, View
from speculative_operator.reconcile.world import Event, Outcome, World
from speculative_operator.render import RenderError
from speculative_operator.render.labels import pair_hash
from speculative_operator.render.podspec import TABLE_VOLUME
from speculative_operator.tuner import Memory
from speculative_operator.tuner.quorum import Sight, sight

__all__ = ["Event", "Outcome", "World", "invalid", "tick"]


@dataclass(frozen=True, slots=True)
class _Look:
    """What is there, read once."""

    pods: tuple[Pod, ...]
    rollout: Rollout
    observation: Observation | None


@dataclass(frozen=True, slots=True)
class _Turn:
    """One tick of one object, up to where it is known what pods may be made of."""

    world: World
    look: _Look
    engine: Engine
    memory: Memory | None
    now: float


def tick(world: World, memory: Memory | None, observation: Observation | None, now: float) -> Outcome:
    """What is to be done for one object, and what its status is to say.

    `memory` is None on the first visit since the operator started: then it is restored from status. `observation` is
    None when nothing new was seen of the pods: then nothing is decided. `now` is unix seconds.
    """
    picking = picking_of(world, now)
    if picking is not None:
        picking = tried(picking, now)
        world = picking.world
    outcome, picking = _ticked(world, memory, observation, now, picking)
    return outcome if picking is None else said(outcome, picking)


def _ticked(
    world: World, memory: Memory | None, observation: Observation | None, now: float, picking: Picking | None
) -> tuple[Outcome, Picking | None]:
    """The tick of a spec whose speculator is named, or was picked: then with what became of the pick."""
    look = _Look(read_pods(world.pods), read_rollout(world.deployment, world.spec.replicas), observation)
    engine = engine_as_found(engine_for(world.spec), world.spec, world.status)
    refused = (
        *refusals(world.spec, engine, jobs=bool(world.capabilities.job_image)), *privileges.refused(world)
    )  # fmt: skip
    if refused:
        return _stay(world, look, memory, (*refused, *world.problems), now), picking
    if world.spec.paused:
        policy = policy_of(world.spec, knobs=engine.knobs(world.spec), facts=tuner_facts(world.spec, None))
        held = remembered(world, memory, policy, table_in_force(world, policy), now)
        return _stay(world, look, held, world.problems, now), picking
    try:
        pairing = pairing_of(world, now)
    except RenderError as error:
        return _stay(world, look, memory, (_unrendered(error), *world.problems), now), picking
    if picking is not None:
        picking, pairing = served(picking, pairing, now)
    if pairing.stages is not None:
        # Pods do not depend on Jobs: what stands in a Job's way is told with the pair.
        world = replace(world, problems=tuple(one for one in world.problems if not of_jobs(one)))
    return _turned(_Turn(world, look, engine, memory, now), pairing), picking


def _turned(turn: _Turn, pairing: Pairing) -> Outcome:
    """The first choice that replaces no pod, else the last one, which is what is wanted."""
    if not pairing.choices or (pairing.frozen and not _lives_on(turn, pairing)):
        said = _said(turn.world, pairing, None)
        return _stay(turn.world, turn.look, turn.memory, turn.world.problems, turn.now, said, pairing.actions)
    wanted, rolls_pods = _served(turn, pairing, pairing.choices[-1])
    for choice in pairing.choices[:-1] if rolls_pods else ():
        outcome, others = _served(turn, pairing, choice)
        if not others:
            return outcome
    return wanted


def _served(turn: _Turn, pairing: Pairing, choice: Effective) -> tuple[Outcome, bool]:
    """One tick with pods made of `choice`, and whether it would replace any."""
    older = engine_as_made(turn.engine, choice.named, turn.world.deployment)
    if older is None:
        return _made(turn, pairing, choice)
    as_made = replace(turn, engine=older)
    if _asks_for_others(as_made, pairing, choice):
        return _made(turn, pairing, choice)
    return _made(as_made, pairing, choice, (upgrade.live_notice(choice.named),))


def _asks_for_others(turn: _Turn, pairing: Pairing, choice: Effective) -> bool:
    """True where somebody asks for other pods than those that run. The tuner's rollouts, the way back from them and
    repairs are nobody's word: they are looked for as if nothing was observed, in the table that is in force."""
    world = replace(turn.world, spec=choice.told)
    policy = _policy(turn, pairing, choice)
    asked = upgrade.made_of(choice, policy, table_in_force(world, policy, pairing.same))
    if not upgrade.asks_for_others(world, asked):
        return False
    quiet = replace(turn, look=replace(turn.look, observation=None))
    return upgrade.asks_anew(world) or _made(quiet, pairing, choice)[1]


def _made(turn: _Turn, pairing: Pairing, choice: Effective, beside: tuple[Notice, ...] = ()) -> tuple[Outcome, bool]:
    """One tick with pods that the engine of `turn` makes of `choice`, and whether it would replace any. `beside`: what
    is to be said where nothing else waits."""
    world, engine = replace(turn.world, spec=choice.told), turn.engine
    policy = _policy(turn, pairing, choice)
    in_force = table_in_force(world, policy, pairing.same)
    held = remembered(world, turn.memory, policy, in_force, turn.now)
    own = _labels(world, in_force, pairing.same)
    observation = tables.of_pods(turn.look.observation, turn.look.pods, own)
    permission = permission_of(world, turn.look.rollout, policy, in_force, turn.now)
    verdict = consider(held, observation, policy, in_force, Serving(turn.look.rollout, permission), turn.now)
    leaving, memories = _leaving(world, turn, policy, own)
    said = _said(turn.world, pairing, choice)
    made_of = _made_of(turn, choice, policy, verdict.in_force)
    try:
        desired = desired_children(world, engine, verdict.in_force, made_of, own, leaving)
        planned = _plan(world, turn.look, engine, verdict, policy.knobs.actuator, desired)
    except RenderError as error:
        problems = (_unrendered(error), *world.problems)
        return _stay(turn.world, turn.look, held, problems, turn.now, said, pairing.actions), False
    starts = _starts(world, desired, planned)
    waiting = beside
    if pairing.frozen:
        planned = frozen(turn.world, planned)
    elif upgrade.waits(turn.world, planned, turn.look.rollout, made_of):
        waiting, planned = (upgrade.notice(turn.world, planned),), upgrade.kept(turn.world, planned)
    late = first_outlasted(turn.look.pods)
    notices = (
        *engine.notices(choice.named), *unused(choice.named, policy.knobs),
        *resting.unused(choice.named, policy.knobs), *compiling.unused(choice.named, world),
        *pairing.notices, *waiting, *privileges.notices(world), *own_rollouts.notices(choice.named, verdict.own),
        *scaling_notices(world.deployment),
        *((startup.late(late.name, late.outlasted),) if late is not None else ()),
    )  # fmt: skip
    view = replace(
        _view(world, turn.look, policy, verdict, planned), notices=notices, pairing=said, startup=starts,
        leaving=leaving, of_pair=observation,
    )  # fmt: skip
    status = make_status(view, world.status, verdict.memory, turn.now)
    actions = (*pairing.actions, *(() if pairing.frozen else compiling.claim(world)), *planned.actions)
    told = events(world.status, status, actions)
    others = turn.look.rollout.exists and replaces(world, (*planned.actions, *planned.held))
    asks = verdict.asks_room or (others and world.spec.rollout_strategy is not RolloutStrategy.RECREATE)
    room_for = _template(desired) if asks and world.room is None else None
    tried_anew = verdict.in_force.why is Reason.TRIES_CHANGED
    return Outcome(actions, status, told, verdict.memory, tried_anew, room_for, memories), others


def _made_of(turn: _Turn, choice: Effective, policy: Policy, in_force: InForce) -> str:
    """What pods are made of (`upgrade.made_of`); in the words of the release before, where that is what pods bear."""
    asked = upgrade.made_of(choice, policy, in_force)
    former = (upgrade.made_of(choice, replace(policy, knobs=one), in_force) for one in _former(turn, choice, in_force))
    return next((one for one in (asked, *former) if not upgrade.asks_for_others(turn.world, one)), asked)


def _former(turn: _Turn, choice: Effective, in_force: InForce) -> Iterator[KnobSpace]:
    """What could be changed in pods under a release before, though nobody asked for another engine: that of another
    default release, and in pods without a drafter that of a release which could not change K live."""
    engine, of_pods = choice.named.engine, upgrade.release_of_pods(turn.world)
    if not engine.version_named and of_pods not in ("", engine.version):
        yield turn.engine.knobs(replace(choice.named, engine=replace(engine, version=of_pods)))
    if in_force.hard_off:
        yield EngineAsFound(turn.engine, "").knobs(choice.named)


def _policy(turn: _Turn, pairing: Pairing, choice: Effective) -> Policy:
    """What the tuner may do with pods that the engine of `turn` makes of `choice`."""
    policy = policy_of(
        choice.named,
        knobs=turn.engine.knobs(choice.named),
        facts=tuner_facts(choice.named, pairing.facts),
        start_seconds=startup.expected(startup.starts(turn.world.status), choice.named.weights.bytes),
    )
    if pairing.frozen:
        policy = replace(policy, off_policy=min(policy.off_policy, OffPolicy.SOFT, key=list(OffPolicy).index))
    return replace(policy, tries=tables.takes_tries(turn.world))


def _template(desired: Desired) -> Mapping[str, Any] | None:
    """The template of the pods as they should be: what one of them asks of a node."""
    found = next((one for one in desired.manifests if one["kind"] == "Deployment"), None)
    return mapping(found, "spec", "template") if found is not None else None


def _lives_on(turn: _Turn, pairing: Pairing) -> bool:
    """True where the table of pods that must stay as they are can still be changed, because they re-read it."""
    block = mapping(turn.world.status, "speculation")
    template = mapping(turn.world.deployment, "spec", "template")
    table = turn.world.children.get(("ConfigMap", tables.mounted(template).get(TABLE_VOLUME, "")))
    live = turn.engine.knobs(pairing.choices[-1].named).actuator is Actuator.LIVE
    told = text(block, "actuator") == Actuator.LIVE.value and at(block, "hardOff") is not True
    return live and told and table is not None and is_ours(turn.world, table)


def _said(world: World, pairing: Pairing, choice: Effective | None) -> PairView | None:
    """What is to be said of the pair. The hash is that of what pods are made of, once they are."""
    record = pairing.record
    if pairing.stages is None and record is None:
        return None
    if record is not None and choice is not None and not pairing.frozen:
        record = replace(record, hash=pair_hash(choice.told))
    blocks = {
        "pair": written(record) if record is not None else {},
        "nextPair": written(pairing.coming) if pairing.coming is not None else {},
        "weights": pairing.stages.download() if pairing.stages is not None else {},
    }
    return PairView(pairing.conditions, pairing.stages.hold if pairing.stages is not None else None, blocks)


def _unrendered(error: RenderError) -> Condition:
    return Condition(ConditionType.READY, Truth.FALSE, Reason.RENDER_INVALID, str(error))


def _labels(world: World, in_force: InForce, same: frozenset[str]) -> frozenset[str]:
    """Labels of the pods that the table in force is for."""
    if in_force.hard_off:
        return frozenset({tables.label_of(world.spec.without_drafter())})
    return same | {tables.label_of(world.spec)}


def _leaving(
    world: World, turn: _Turn, policy: Policy, own: frozenset[str]
) -> tuple[tuple[tables.Leaving, ...], dict[str, Memory]]:
    """The tables of pods that are replaced, as the tuner has them after this tick, and what it remembers of each."""
    found, memories = [], {}
    for one in tables.read_leaving(world, turn.look.pods, own):
        seen = tables.of_pods(turn.look.observation, turn.look.pods, {one.pair})
        if tables.watched(policy):
            in_force = InForce(one.table, one.version, per_request=one.per_request)
            known = world.leaving.get(one.pair) or Memory.fresh(one.table, turn.now)
            allowed = tables.policy_for(one, policy)
            verdict = consider(known, seen, allowed, in_force, Serving(turn.look.rollout), turn.now)
            if verdict.memory is not None:
                memories[one.pair] = verdict.memory
            table = verdict.in_force.table or one.table
            one = tables.after(one, table, verdict.in_force.version, verdict.decision)  # noqa: PLW2901
        found.append(one)
    return tuple(found), memories


def _starts(world: World, desired: Desired, planned: Plan) -> dict[str, Any]:
    """What was measured of starts. What the template is called, and its budget, are those that pods were made of."""
    spec = world.spec
    known = startup.seen(world.status, world.pods, pair_hash(spec), spec.weights.bytes)
    seconds, template = desired.startup_seconds, desired.template
    if rolls(world, (*planned.actions, *planned.held)):
        before = mapping(world.status, "startup")
        seconds, template = whole(before, "budgetSeconds"), text(before, "template")
    return startup.told(known, seconds, template)


def _plan(world: World, look: _Look, engine: Engine, verdict: Verdict, actuator: Actuator, desired: Desired) -> Plan:
    given_up = text(world.status, "speculation", "actuator") == Actuator.LIVE.value != actuator.value
    fallen = isinstance(engine, EngineAsFound) and given_up
    why = Reason.ENGINE_VERSION_DIFFERS if fallen else _why(world, verdict)
    return plan(world, desired, look.pods, look.rollout, why)


def _why(world: World, verdict: Verdict) -> Reason:
    """Why manifests are new ones: the tuner's reason, also where its decision was recorded but not carried out yet."""
    if verdict.changed and verdict.decision is not None:
        return verdict.decision.reason
    if verdict.in_force.why is Reason.TRIES_CHANGED:
        return Reason.TRIES_CHANGED
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
        sight=_sight(look, policy, verdict),
        decision=verdict.decision,
        changed=verdict.changed,
        proposed=proposal(verdict, policy),
        own_rollouts=own_rollouts.to_status(verdict.own),
    )


def _sight(look: _Look, policy: Policy, verdict: Verdict) -> Sight | None:
    if look.observation is None or verdict.memory is None:
        return None
    asked = verdict.decision is not None and policy.knobs.actuator is not Actuator.NONE
    knobs = policy.knobs if asked else None  # pods of another pair may draft what these do not know
    return sight(look.observation, verdict.memory.known, knobs, look.observation.time)


def _stay(
    world: World,
    look: _Look,
    memory: Memory | None,
    problems: Sequence[Condition],
    now: float,
    pairing: PairView | None = None,
    actions: tuple[Action, ...] = (),
) -> Outcome:
    """Nothing is decided or done to what serves; pods and their table stay as they are, and status keeps what it said
    of them. `actions` are those of Jobs."""
    view = View(
        spec=world.spec,
        rollout=look.rollout,
        pods=look.pods,
        in_force=InForce(None, 0),
        actuator=Actuator.NONE,
        problems=tuple(problems),
        observation=look.observation,
        kept=True,
        pairing=pairing,
    )
    status = make_status(view, world.status, None, now)
    return Outcome(actions, status, events(world.status, status, actions), memory)
