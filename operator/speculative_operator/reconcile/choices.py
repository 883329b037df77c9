"""The specs that pods may be made of, and the versions that can be trusted where no Job reads the models. Used by
`pairing`.

Running pods keep their versions where no Job reads the models any more, and where the status has lost the versions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from speculative_operator.domain.actions import Action
from speculative_operator.domain.conditions import Condition
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.memo import digest
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.reading import mapping, text
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import Cache, Check
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile import jobs
from speculative_operator.reconcile.effective import PairedSpec, pin_models, unpinned
from speculative_operator.reconcile.records import Record, blank, read, wanted_of
from speculative_operator.reconcile.running import running_pair, running_spec
from speculative_operator.reconcile.stages import Stages
from speculative_operator.reconcile.world import World
from speculative_operator.render.labels import pair_hash


@dataclass(frozen=True, slots=True)
class Pairing:
    """The specs that a reconcile may make pods of, and what the status says of the pair."""

    choices: tuple[PairedSpec, ...]
    """The last choice is the one that the spec asks for; an earlier one is used as long as it replaces no pod and the
    last one would. Empty: no pods may be made, and the running ones are not known well enough to be rendered again."""
    stages: Stages | None = None
    """How far the pair has come; None where no Job reads or fetches its models."""
    record: Record | None = None
    """`status.pair`"""
    coming: Record | None = None
    """`status.nextPair`"""
    conditions: tuple[Condition, ...] = ()
    """Conditions of the pair, in place of those that say that nothing was checked."""
    frozen: bool = False
    """True while the pods' template must not change."""
    actions: tuple[Action, ...] = ()
    notices: tuple[Notice, ...] = ()
    same: frozenset[str] = frozenset()
    """Hashes of the pair that the spec asks for: as written, and with its versions pinned."""
    facts: PairFacts | None = None
    """Facts from the models' files for the tuner; None where the pair was not compared."""


def compares(world: World) -> bool:
    """True where a Job reads both models and the operator compares them before it makes pods of them."""
    able = world.capabilities
    return able.check_pairs and bool(able.job_image) and world.spec.weights.check is Check.AUTO


def unread_pairing(world: World, spec: ResolvedSpec) -> Pairing:
    """The pairing where no Job reads models: pods are made of the spec as written. Running pods keep their versions
    until they are replaced for another reason."""
    actions = tuple(action for purpose in Purpose for action in jobs.leftover(world, purpose))
    current, plain = trusted_record(world), unpinned(spec)
    # Another value of `repin` asks for nothing here: no Job could look up a version.
    wanted = replace(wanted_of(spec), repin=current.repin)
    same = current.covers(wanted)
    cache, pair = spec.weights.cache, running_pair(world)
    known = current.known if same and current.cache in homes(cache) else None
    kept = pin_models(spec, known, current.cache) if known is not None else None
    if kept is None or not is_of(kept, pair):
        kept = from_template(world, spec, current)
    if is_of(plain, pair) or (kept is None and not (pair and cache is not None and not current.hash)):
        return Pairing((plain,), actions=actions)
    if kept is None:
        # The image of Jobs was taken away, and of which folders of the cache pods live is not known.
        return Pairing((), actions=actions)
    hashes = frozenset({pair_hash(spec), pair_hash(kept.pinned)})
    return Pairing((kept, plain), record=current if same else blank(wanted, spec), actions=actions, same=hashes)


def homes(cache: Cache | None) -> tuple[str, ...]:
    """The values that `Record.cache` may have for models in `cache`; the first is the one that this release writes."""
    return (cache.home, cache.place) if cache is not None else ("",)


def is_of(choice: PairedSpec, pair: str) -> bool:
    """True where `pair` is the hash of `choice`, with its speculator or without."""
    return pair in (pair_hash(choice.pinned), pair_hash(choice.pinned.without_speculator()))


def from_template(world: World, spec: ResolvedSpec, current: Record, place: str = "") -> PairedSpec | None:
    """The spec at the versions that the pods run, as their template names them, where the status has lost or never had
    these versions. None where pods have other sources or revisions than the spec, or load from elsewhere than the cache
    at `place` (empty: no cache)."""
    found = running_spec(world, spec, place)
    same = current.covers(replace(wanted_of(spec), repin=current.repin))
    if found is None or ((current.asked or current.hash) and not same):
        return None
    return found if not current.hash or current.hash in (running_pair(world), pair_hash(found.pinned)) else None


def record(world: World, name: str) -> Record:
    """The record in `status.pair` or `status.nextPair` (`name`), parsed once and kept in the memo."""
    block = mapping(world.status, name)
    return world.memo.get(("record", digest(block)), lambda: read(block))


def trusted_record(world: World) -> Record:
    """The record in `status.pair`; without its hash where it names a version but its facts can no longer be read: then
    nobody knows what pods were made of."""
    current = record(world, "pair")
    unknown = current.known is None and text(world.status, "pair", "verifierPin", "resolved")
    return replace(current, hash="") if unknown else current
