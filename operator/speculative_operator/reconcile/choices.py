"""What pods may be made of, and what of them may be trusted where nothing is read. Used by `pairing`, which reads.

Pods that run keep their versions where nothing is looked at any more, and where status has lost them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from speculative_operator.domain.actions import Action
from speculative_operator.domain.conditions import Condition
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.memo import digest
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.reading import mapping, text
from speculative_operator.domain.spec import Cache, Check
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile import jobs
from speculative_operator.reconcile.effective import Effective, as_written, pin_models
from speculative_operator.reconcile.records import Record, blank, read, wanted_of
from speculative_operator.reconcile.running import running_pair, spec_by_template
from speculative_operator.reconcile.stages import Stages
from speculative_operator.reconcile.world import World
from speculative_operator.render.labels import pair_hash


@dataclass(frozen=True, slots=True)
class Pairing:
    """What a tick may make pods of, and what is to be said of the pair."""

    choices: tuple[Effective, ...]
    """The last one is what is wanted; an earlier one is kept to as long as it replaces no pod and the last one would.
    Empty: nothing may be made, and what runs is not known well enough to be kept at."""
    stages: Stages | None = None
    """How far the pair has come; None where nothing is looked at."""
    record: Record | None = None
    """`status.pair`"""
    coming: Record | None = None
    """`status.nextPair`"""
    conditions: tuple[Condition, ...] = ()
    """Those of the pair that are not as they would be without this module."""
    frozen: bool = False
    """True while the pods' template must not change."""
    actions: tuple[Action, ...] = ()
    notices: tuple[Notice, ...] = ()
    same: frozenset[str] = frozenset()
    """Hashes that stand for the pair wanted: as the spec has it, and with its versions pinned."""
    facts: PairFacts | None = None
    """What the files tell the tuner."""


def compares(world: World) -> bool:
    """True where a Job reads both models before pods are made of them, and they are compared."""
    able = world.capabilities
    return able.check_pairs and bool(able.job_image) and world.spec.weights.check is Check.AUTO


def unread_pairing(world: World) -> Pairing:
    """Nothing is read: pods are made of what the spec says. Those that run keep the versions that they were made of
    until they are replaced for another reason."""
    actions = tuple(action for purpose in Purpose for action in jobs.leftover(world, purpose))
    spec, current, plain = world.spec, trusted_record(world), as_written(world.spec)
    # Another value of the annotation asks nobody here: there is no version to be looked up.
    wanted = replace(wanted_of(spec), repin=current.repin)
    same = current.covers(wanted)
    cache, pair = spec.weights.cache, running_pair(world)
    known = current.known if same and current.cache in homes(cache) else None
    kept = pin_models(spec, known, current.cache) if known is not None else None
    if kept is None or not is_of(kept, pair):
        kept = from_template(world, current)
    if is_of(plain, pair) or (kept is None and not (pair and cache is not None and not current.hash)):
        return Pairing((plain,), actions=actions)
    if kept is None:
        # The image of Jobs was taken away, and of which folders of the cache pods live is not known.
        return Pairing((), actions=actions)
    hashes = frozenset({pair_hash(spec), pair_hash(kept.told)})
    return Pairing((kept, plain), record=current if same else blank(wanted, spec), actions=actions, same=hashes)


def homes(cache: Cache | None) -> tuple[str, ...]:
    """What `Record.cache` may say of models that lie in `cache`, what this release writes first."""
    return (cache.home, cache.place) if cache is not None else ("",)


def is_of(effective: Effective, pair: str) -> bool:
    return pair in (pair_hash(effective.told), pair_hash(effective.told.without_speculator()))


def from_template(world: World, current: Record, place: str = "") -> Effective | None:
    """The spec at the versions that pods run, where status does not tell them: it was lost, or nothing was read of the
    same sources since these pods were made. Pods of other sources or revisions are another edit's, and so are those
    that load from elsewhere than the cache at `place` (empty: none)."""
    found = spec_by_template(world, place)
    same = current.covers(replace(wanted_of(world.spec), repin=current.repin))
    if found is None or ((current.asked or current.hash) and not same):
        return None
    return found if not current.hash or current.hash in (running_pair(world), pair_hash(found.told)) else None


def record(world: World, name: str) -> Record:
    """`status.pair` or `status.nextPair`, read once."""
    block = mapping(world.status, name)
    return world.memo.get(("record", digest(block)), lambda: read(block))


def trusted_record(world: World) -> Record:
    """`status.pair`. Where what was read of it cannot be understood any more, nobody knows what pods were made of."""
    current = record(world, "pair")
    unknown = current.known is None and text(world.status, "pair", "verifierPin", "resolved")
    return replace(current, hash="") if unknown else current
