"""From `speculator: {auto: true}` to the speculator that this reconcile uses. Called by `tick`.

    nothing picked yet  ->  the catalogue's first that the engine serves, by name, then by the verifier's model card
    picked              ->  stays, whatever rows, release or restart bring; a better one is told

The pick changes only with the verifier or a new value of the annotation `repin`, or where it cannot be served and the
spec has changed since pods were last made with it: what serves is never replaced because the operator knows something
new. An entry that does not work is passed over for the next one, at last for no speculator: a pick holds up no object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from speculative_operator.domain import names
from speculative_operator.domain.actions import Condition
from speculative_operator.domain.jobs import Phase, Purpose
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.spec import DeploymentSpec, Mode
from speculative_operator.engines.base import Notice
from speculative_operator.engines.pairs import Key, choose, hindrance, key_of, with_entry
from speculative_operator.engines.registry import engine_for
from speculative_operator.pairing.catalogue import REMEDY, Choice, Match
from speculative_operator.pairing.catalogue_rows import Entry
from speculative_operator.reconcile.pair import jobs, verdicts
from speculative_operator.reconcile.pair.choices import Pairing, compares, running_pair, running_versions
from speculative_operator.reconcile.pair.pairing import pairing_of
from speculative_operator.reconcile.pair.pinning import unpinned
from speculative_operator.reconcile.pair.stages import Stage
from speculative_operator.reconcile.snapshot import records
from speculative_operator.reconcile.snapshot.picked import (
    LONGEST_WHY,
    MOST_PASSED_OVER,
    Basis,
    PassedOver,
    Pick,
    Row,
    pick_of,
)
from speculative_operator.reconcile.snapshot.records import Known
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.render import RenderError
from speculative_operator.render.metadata import pair_hash


@dataclass(frozen=True, slots=True)
class Picking:
    """The speculator that the operator picked for one object, as far as one reconcile has come with it."""

    asked: Snapshot
    """The object as it is: the spec of its user has no speculator."""
    pick: Pick | None
    """`status.picked`; None while nothing can be said: nothing is known by name and the model card is to be read, or
    drafts are off or the object paused before anything was picked."""
    open: bool = False
    """True while the model card decides whether there is anything to pick."""
    notices: tuple[Notice, ...] = ()
    pairing: Pairing | None = None
    """The pairing with the pick, where the pair check was asked already; else None."""

    @property
    def spec(self) -> ResolvedSpec:
        """The spec with the pick in place of `auto`."""
        if self.pick is None or self.pick.verifier != self.asked.spec.verifier.source.uri:
            return resolve(self.asked.spec)
        return self.pick.fill(self.asked.spec)

    @property
    def alone(self) -> tuple[Reason, str] | None:
        """Why the verifier is served alone, in place of NoSpeculator; None while nothing was picked."""
        pick = self.pick
        if pick is None or pick.row is None:
            return (Reason.NOTHING_KNOWN, pick.reason) if pick is not None else None
        message = f"the verifier is served alone until a Job has inspected the pick {pick.title}; see PairCompatible"
        return Reason.PAIR_UNREAD, message

    @property
    def free(self) -> bool:
        """True where pods of this generation of the spec were not made with the pick: nobody serves by it."""
        spec = self.asked.spec
        return self.pick is not None and not spec.paused and self.pick.generation != spec.generation


def picking_of(world: Snapshot, now: float) -> Picking | None:
    """The pick of one object, `now` in unix seconds; None where the spec names its speculator itself."""
    spec, held = world.spec, world.status.picked
    if not spec.auto_speculator:
        return None
    if held is not None and not spec.paused and not _still_holds(held, spec):
        held = None
    if spec.paused or (held is None and spec.speculation.mode is Mode.DISABLED):
        return Picking(world, held)
    card = _card(world, held)
    pick = _keep(world, held, card, now) if held is not None else _fresh(world, card, now)
    if pick is None:
        return Picking(world, None, open=True)
    return Picking(world, pick, notices=_better(world, pick, card))


def pass_over_misfits(picking: Picking, now: float) -> Picking:
    """`picking` with the first pick that the pair check does not refuse; refused ones are passed over. A pick that pods
    were made with stays, whatever the check finds."""
    while picking.free and picking.pick is not None and (row := picking.pick.row) is not None:
        try:
            pairing = pairing_of(picking.asked, picking.spec, now)
        except RenderError:
            return picking
        why = _misfit(picking, pairing)
        if not why:
            return replace(picking, pairing=pairing)
        pick, card = picking.pick, _card(picking.asked, picking.pick)
        shown = why if len(why) <= LONGEST_WHY else f"{why[: LONGEST_WHY - 3]}..."
        over = (*pick.passed_over, PassedOver(Row(row.method, row.uri), shown))
        picking = Picking(picking.asked, _next(picking.asked, card, over, now))
    return picking


def settle(picking: Picking, pairing: Pairing, now: float) -> tuple[Picking, Pairing]:
    """The pick after this reconcile, and the pairing with it.

    A pick that could not be read may belong to another model than the catalogue says, or lie where engines cannot reach
    it: until a Job has read it, pods are made of the verifier alone.
    """
    spec, stages, pick = picking.spec, pairing.stages, picking.pick
    pairing = _alone_while_unread(picking, pairing)
    reading = stages is not None and stages.stage is Stage.READING
    if not pairing.choices or pairing.frozen or reading or pairing.choices[-1].by_name.speculator != spec.speculator:
        return picking, pairing
    if pick is None and picking.open:
        pick = pick_of(_choose(picking.asked, None), spec, Basis.NAME, now)
    if pick is not None and pick.generation != spec.generation:
        pick = replace(pick, generation=spec.generation)
    return replace(picking, pick=pick), pairing


def next_entry(picking: Picking, without: frozenset[Key]) -> Entry | None:
    """The catalogue's best entry for the object that is none of `without`; None where none is left."""
    world, pick = picking.asked, picking.pick
    over = frozenset(one.row.key for one in pick.passed_over) if pick is not None else frozenset()
    return choose(world.spec, world.catalogue, _card(world, pick) or (), without=without | over, memo=world.memo).entry


# -- choosing


def _still_holds(held: Pick, spec: DeploymentSpec) -> bool:
    """True where the pick is for this verifier, and the user asks for no new one. A revision is another state of one
    model."""
    return held.verifier == spec.verifier.source.uri and spec.weights.repin in ("", held.repin)


def _fresh(world: Snapshot, card: tuple[str, ...] | None, now: float) -> Pick | None:
    """The first pick; None while the model card is still to be read and nothing is known by name."""
    found = _pick_of_pods(world, card, now)
    if found is not None:
        return found
    choice = _choose(world, card)
    if choice.entry is None and card is None and compares(world):
        return None
    return pick_of(choice, world.spec, _basis(card), now)


def _pick_of_pods(world: Snapshot, card: tuple[str, ...] | None, now: float) -> Pick | None:
    """The entry that pods run already, at whatever version, where status does not say so: it was lost, or not written
    yet when the operator was killed."""
    if not running_pair(world) or world.status.names_pick:
        return None
    spec, cache = world.spec, world.spec.weights.cache
    for _, entry in world.catalogue.entries_for(spec.verifier.source.uri, card or ()):
        pick = resolve(with_entry(spec, entry))
        if running_versions(world, pick) or (cache is not None and running_versions(world, pick, cache.place)):
            return pick_of(_choose(world, card, only=key_of(entry)), spec, _basis(card), now)
    return None


def _basis(card: tuple[str, ...] | None) -> Basis:
    return Basis.NAME if card is None else Basis.CARD


def _keep(world: Snapshot, held: Pick, card: tuple[str, ...] | None, now: float) -> Pick:
    """The pick as it was; another one where no pods were made with it yet and the model card names a better one, or
    where the engine that the spec now names does not serve it."""
    spec = world.spec
    if held.row is None:
        return held
    why = hindrance(held.fill(spec), engine_for(spec)) if held.generation != spec.generation else ""
    if why:
        choice = _choose(world, card, held.passed_over)
        instead = replace(choice, reason=f"{choice.reason}; instead of {held.title}: {why}")
        return pick_of(instead, spec, _basis(card), now, held.passed_over)
    if card is None or held.basis is Basis.CARD or held.generation:
        return held
    choice = _choose(world, card, held.passed_over)
    if choice.match is Match.DERIVED and choice.entry is not None and key_of(choice.entry) != held.key:
        return pick_of(choice, spec, Basis.CARD, now, held.passed_over)
    return replace(held, basis=Basis.CARD)


def _next(world: Snapshot, card: tuple[str, ...] | None, over: tuple[PassedOver, ...], now: float) -> Pick:
    """The pick after the entries `over` that were passed over; no speculator where none is left."""
    spec = world.spec
    why = "; ".join(f"passed over {one.row.title}: {one.why}" for one in over)
    choice = _choose(world, card, over)
    if choice.entry is None or len(over) >= MOST_PASSED_OVER:
        reason = f"no known speculator for {spec.verifier.source.uri} works: {REMEDY}. {_again()}. {why}"
        return pick_of(Choice(None, reason), spec, _basis(card), now, over[:MOST_PASSED_OVER])
    return pick_of(replace(choice, reason=f"{choice.reason}; {why}"), spec, _basis(card), now, over)


def _better(world: Snapshot, pick: Pick, card: tuple[str, ...] | None) -> tuple[Notice, ...]:
    """One notice where the catalogue would pick another speculator now, which the operator does not follow; else
    none."""
    spec = world.spec
    if spec.speculation.mode is Mode.DISABLED or (pick.basis is Basis.CARD and card is None):
        return ()
    if spec.measure is not None:
        return ()  # measuring says which is better
    best = _choose(world, card, pick.passed_over)
    if best.entry is None or key_of(best.entry) == pick.key:
        return ()
    message = f"the catalogue now prefers {best.chosen}. {pick.title} stays. {_again()}"
    return (Notice(Reason.BETTER_KNOWN, message),)


def _again() -> str:
    return f"A new value of the annotation {names.ANNOTATION_REPIN} makes the operator pick again"


def _choose(
    world: Snapshot, card: tuple[str, ...] | None, over: tuple[PassedOver, ...] = (), only: Key | None = None
) -> Choice:
    """The catalogue's choice for the object, without the entries that were passed over."""
    without = frozenset(one.row.key for one in over)
    return choose(world.spec, world.catalogue, card or (), without=without, only=only, memo=world.memo)


# -- what is known


def _card(world: Snapshot, held: Pick | None) -> tuple[str, ...] | None:
    """The models that the verifier is derived from by its model card; None while the card was not read."""
    source = world.spec.verifier.source
    for found in (world.status.pair, world.status.coming):
        if found.asked[:1] == ((source.uri, source.revision),) and found.known is not None:
            return found.known.verifier.base_models
    return _just_read(world, held) if world.jobs else None


def _just_read(world: Snapshot, held: Pick | None) -> tuple[str, ...] | None:
    """The same from a Job that has just ended, before the pair check takes over its result: otherwise pods would first
    be made of the verifier alone."""
    specs = (world.spec, held.fill(world.spec) if held is not None else world.spec)
    ours = {jobs.inspection(world, records.wanted_of(spec)).wanted for spec in specs}
    for seen in world.jobs:
        if seen.purpose is Purpose.INSPECT and seen.phase is Phase.SUCCEEDED and seen.wanted in ours:
            verifier = world.results[seen.name].verifier
            return verifier.base_models if verifier is not None else None
    return None


# -- what does not do


def _misfit(picking: Picking, pairing: Pairing) -> str:
    """Why the pick cannot be served though the verifier could; empty where nothing says so."""
    world, spec, stages = picking.asked, picking.spec, pairing.stages
    if stages is None or stages.goes_on:
        return ""
    if stages.stage is Stage.MISMATCH and stages.judged is not None and stages.known is not None:
        alone = verdicts.judge_pair(replace(spec, speculator=None), Known(stages.known.verifier, None), world.memo)
        return verdicts.mismatch(stages.judged).message if alone.verdict.compatible else ""
    failure = stages.failure
    if failure is None or failure.side != "speculator":
        return ""
    # Pods that run can wait for a source to answer; a new object is not held up by the speculator's.
    gone = failure.final or (stages.stage is Stage.UNREAD and not running_pair(world))
    return failure.message.removeprefix(f"{failure.side}: ") if gone else ""


def _alone_while_unread(picking: Picking, pairing: Pairing) -> Pairing:
    """The pairing with pods of the verifier alone in place of pods with a pick that nobody has read; pods of another
    pair stay."""
    world, spec, stages = picking.asked, picking.spec, pairing.stages
    if stages is None or not stages.goes_on or spec.speculator is None or not spec.speculates:
        return pairing
    alone, pair = unpinned(replace(spec, speculator=None)), running_pair(world)
    if pair == pair_hash(spec):
        return pairing
    conditions = tuple(_unread(one, picking.pick) for one in pairing.conditions)
    if pair in ("", pair_hash(alone.pinned)):
        return replace(pairing, choices=(alone,), conditions=conditions, facts=None)
    current = world.status.pair
    apart = bool(current.verifier) and current.asked != (pairing.record.asked if pairing.record is not None else ())
    return replace(
        pairing,
        choices=(),
        frozen=True,
        stages=replace(stages, goes_on=False),
        record=current if apart else pairing.record,
        coming=pairing.record if apart else None,
        conditions=conditions,
    )


def _unread(condition: Condition, pick: Pick | None) -> Condition:
    if condition.type is not ConditionType.PAIR_COMPATIBLE or pick is None:
        return condition
    message = (
        f"{condition.message}. The verifier is served alone until a Job has inspected the pick {pick.title}; set "
        "weights.check: Disabled to serve the pick unchecked"
    )
    return replace(condition, message=message)
