"""One reconcile of one object as far as it has come, and the outcomes that leave pods as they are: for a spec that
cannot be served, for a paused object, for a pair that is not there yet. Used by `tick`.

`invalid` is called by the shell too, for an object that does not even become a DeploymentSpec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from speculative_operator.domain.actions import Action, Condition, Truth
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import NOT_ALWAYS, ConditionType, Reason
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DEFAULT_VERSIONS, DeploymentSpec, Scheme
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.base import Engine, Notice
from speculative_operator.engines.matrix.refusing import METHOD
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.pair.choices import Pairing
from speculative_operator.reconcile.pair.picking import Picking
from speculative_operator.reconcile.report.conditions import stamp
from speculative_operator.reconcile.report.events import events
from speculative_operator.reconcile.report.status import make_status
from speculative_operator.reconcile.report.view import View
from speculative_operator.reconcile.snapshot.notes import notes_of
from speculative_operator.reconcile.snapshot.status import Status, read_refused, read_status
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.snapshot.workload import Rollout
from speculative_operator.reconcile.table.active_table import ActiveTable
from speculative_operator.reconcile.table.tables import label_of
from speculative_operator.reconcile.world import Outcome
from speculative_operator.render import RenderError
from speculative_operator.tuner import Memory
from speculative_operator.tuner.persistence import to_status as to_stored


@dataclass(frozen=True, slots=True)
class Turn:
    """One reconcile of one object, as far as it has come."""

    world: Snapshot
    spec: ResolvedSpec
    """The spec with the pick in place of `auto`; versions are resolved by `pairing`."""
    rollout: Rollout
    observation: Observation | None
    engine: Engine
    memory: Memory | None
    now: float
    picking: Picking | None = None
    """Where the operator picks the speculator: the pick, which is in `spec`."""
    pairing: Pairing = field(default_factory=lambda: Pairing(()))
    """The pairing of the object, once it is known."""
    notices: tuple[Notice, ...] = ()
    """Notices about the spec, before all others."""


def render_problem(error: RenderError) -> Condition:
    """Ready=False for manifests that cannot be rendered."""
    return Condition(ConditionType.READY, Truth.FALSE, Reason.RENDER_INVALID, str(error))


def stay(turn: Turn, problems: Sequence[Condition], actions: tuple[Action, ...] = ()) -> Outcome:
    """The outcome that leaves pods and their table as they are: nothing is decided, and the status keeps what it said
    of them. `actions` are those of Jobs and of the route."""
    view = View(
        spec=turn.spec,
        rollout=turn.rollout,
        pods=turn.world.pods,
        active=ActiveTable(None, 0),
        actuator=Actuator.NONE,
        problems=tuple(problems),
        observation=turn.observation,
        kept=True,
        pairing=turn.pairing if turn.pairing.is_known else None,
        picking=turn.picking,
    )
    return conclude(turn, view, turn.memory, actions)


def conclude(turn: Turn, view: View, memory: Memory | None, actions: tuple[Action, ...], **more: Any) -> Outcome:
    """The outcome of a reconcile that has found `view`. `more`: fields of the outcome."""
    before = turn.world.status
    status = make_status(replace(view, verified=turn.world.verified), before, turn.now)
    after = read_status(status)
    found = (turn.pairing.record, turn.pairing.coming, before.pair, before.coming)
    known = before.memory if view.kept else to_stored(memory) if memory is not None else {}
    notes = notes_of(known, after.pair.hash, (one.facts for one in found if one is not None))
    return Outcome(actions, status, events(before, after, actions), memory, notes=notes, **more)


_UNSEEN = "the operator refused the object before it could check this"


def refusals(spec: DeploymentSpec, engine: Engine, *, jobs: bool = True) -> tuple[Condition, ...]:
    """Why `spec` cannot be served, the first reason first; empty when it can. `jobs`: whether Jobs can fetch
    weights."""
    found = [
        Condition(ConditionType.READY, Truth.FALSE, refused.reason, _sentence(refused.field, refused.message))
        for refused in engine.refusals(spec)
    ]
    found += [] if jobs or found else _refuse_sources(spec)
    return tuple(found)


def _refuse_sources(spec: DeploymentSpec) -> list[Condition]:
    """The refusals of weights that only the operator's image could fetch, where the operator does not know it."""
    cache = spec.weights.cache
    if cache is not None and cache.in_pods:
        kind = f"nodePath {cache.node_path}" if cache.node_path else "emptyDir"
        message = (
            f"spec.weights.cache.{kind} needs an init container with the operator's image, which the operator does not "
            "know; set its setting SPECULATIVE_JOB_IMAGE, or remove weights.cache"
        )
        return [Condition(ConditionType.READY, Truth.FALSE, Reason.UNSUPPORTED_SOURCE, message)]
    sources = (spec.verifier.source, spec.speculator.source if spec.speculator is not None else None)
    uris = [source.uri for source in sources if source is not None and source.scheme is Scheme.S3]
    message = (
        "must be fetched by a Job with the operator's image, which the operator does not know; set its setting "
        "SPECULATIVE_JOB_IMAGE"
    )
    return [Condition(ConditionType.READY, Truth.FALSE, Reason.UNSUPPORTED_SOURCE, f"{uri} {message}") for uri in uris]


def without_unknown_method(world: Snapshot, spec: ResolvedSpec) -> tuple[ResolvedSpec, tuple[Notice, ...]]:
    """`spec` with mode Disabled and a notice, where the engine's release is older than the method, as in the images of
    a platform; else `spec` as it is. Also as it is where pods speculate: they stay until the spec can be served."""
    if not spec.speculates:
        return spec, ()
    engine, without = engine_for(spec), spec.without_speculator()
    refused = engine.refusals(spec)
    newer = replace(spec, engine=replace(spec.engine, version=DEFAULT_VERSIONS[spec.engine.type]))
    still = {one.field for one in engine.refusals(newer)}
    only_older = {one.field for one in refused} == {METHOD} and METHOD not in still
    if not only_older or engine.refusals(without):
        return spec, ()
    if world.workload.exists and world.workload.pair != label_of(without):
        return spec, ()
    message = f"pods serve without a speculator: {refused[0].message}"
    return without, (Notice(refused[0].reason, message),)


def invalid(owner: Mapping[str, Any], message: str, now: float) -> Outcome:
    """The outcome for an object that `api.to_domain` refuses: no action, SpecInvalid, everything else as it was.

    `owner` is the object as the API server has it, `message` names field, value and remedy.
    """
    old, generation, wanted = read_refused(owner)
    kinds = [kind for kind in ConditionType if kind not in NOT_ALWAYS or old.condition(kind).status]
    conditions = stamp([_refused(kind, old, message) for kind in kinds], old, generation, now)
    status: dict[str, Any] = {"ready": f"{old.ready}/{wanted}", **old.parts}
    status |= {"conditions": conditions, "observedGeneration": generation}
    return Outcome((), status, events(old, read_status(status), ()), None)


def _refused(kind: ConditionType, old: Status, message: str) -> Condition:
    if kind in (ConditionType.READY, ConditionType.PROGRESSING):
        return Condition(kind, Truth.FALSE, Reason.SPEC_INVALID, message)
    unseen = Condition(kind, Truth.UNKNOWN, Reason.SPEC_INVALID, _UNSEEN)
    return old.condition(kind).as_condition(kind) or unseen


def _sentence(field: str, message: str) -> str:
    return message if field.removeprefix("spec.") in message else f"{field}: {message}"
