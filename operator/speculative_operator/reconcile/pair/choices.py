"""The specs that pods may be made of: as written, or at the versions that running pods have. Used by `pairing`.

Running pods keep their versions where no Job reads the models any more, and where the status has lost the versions. It
holds them; where it does not, the record on the Deployment (`render.resolved`) names them, and the label of its
template proves them: versions that make the same hash are those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, Condition
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import MOUNTED, Cache, Check, ModelSource, Scheme
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.pair import jobs
from speculative_operator.reconcile.pair.pinning import PairedSpec, in_pods, pin_models, unpinned, untagged
from speculative_operator.reconcile.pair.stages import Stages
from speculative_operator.reconcile.snapshot.records import Failure, Record, blank, to_status, wanted_of
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.render.metadata import pair_hash
from speculative_operator.render.resolved import Model


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

    @property
    def is_known(self) -> bool:
        """True where the status tells of the pair: it is checked or recorded."""
        return self.stages is not None or self.record is not None

    @property
    def blocks(self) -> dict[str, dict[str, Any]]:
        """Parts of the status; one that is empty is left out of it."""
        return {
            "pair": to_status(self.record) if self.record is not None else {},
            "nextPair": to_status(self.coming) if self.coming is not None else {},
            "weights": self.stages.download() if self.stages is not None else {},
        }

    def made_of(self, choice: PairedSpec) -> Pairing:
        """The pairing once pods are made of `choice`: its record has their hash."""
        if self.record is None or self.frozen:
            return self
        return replace(self, record=replace(self.record, hash=pair_hash(choice.pinned)))


def compares(world: Snapshot) -> bool:
    """True where a Job reads both models and the operator compares them before it makes pods of them."""
    able = world.capabilities
    return able.check_pairs and bool(able.job_image) and world.spec.weights.check is Check.AUTO


def unread_pairing(world: Snapshot, spec: ResolvedSpec) -> Pairing:
    """The pairing where no Job reads models: pods are made of the spec as written. Running pods keep their versions
    until they are replaced for another reason."""
    actions = tuple(action for purpose in Purpose for action in jobs.leftover(world, purpose))
    current, plain = world.status.pair.trusted, unpinned(spec)
    # Another value of `repin` asks for nothing here: no Job could look up a version.
    wanted = replace(wanted_of(spec), repin=current.repin)
    same = current.covers(wanted)
    cache, pair = spec.weights.cache, running_pair(world)
    known = current.known if same and current.cache == home_of(cache) else None
    kept = pin_models(spec, known, current.cache) if known is not None else None
    if kept is None or pair not in kept.hashes:
        kept = from_template(world, spec, current)
    if pair in plain.hashes or (kept is None and not (pair and cache is not None and not current.hash)):
        return Pairing((plain,), actions=actions)
    if kept is None:
        # The image of Jobs was taken away, and of which folders of the cache pods live is not known.
        return Pairing((), actions=actions)
    hashes = frozenset({pair_hash(spec), pair_hash(kept.pinned)})
    return Pairing((kept, plain), record=current if same else blank(wanted, spec), actions=actions, same=hashes)


def home_of(cache: Cache | None) -> str:
    """The value of `Record.cache` for models in `cache`."""
    return cache.home if cache is not None else ""


def from_template(world: Snapshot, spec: ResolvedSpec, current: Record, place: str = "") -> PairedSpec | None:
    """The spec at the versions that the pods run, as their template names them, where the status has lost or never had
    these versions. None where pods have other sources or revisions than the spec, or load from elsewhere than the cache
    at `place` (empty: no cache)."""
    found = running_spec(world, spec, place)
    same = current.covers(replace(wanted_of(spec), repin=current.repin))
    if found is None or ((current.asked or current.hash) and not same):
        return None
    return found if not current.hash or current.hash in (running_pair(world), pair_hash(found.pinned)) else None


def running_pair(world: Snapshot) -> str:
    """Hash of the pair that the Deployment's template was made of; `?` where it bears none, empty without a
    Deployment."""
    return (world.workload.pair or "?") if world.workload.exists else ""


def running_spec(world: Snapshot, spec: ResolvedSpec, place: str = "") -> PairedSpec | None:
    """`spec` at the versions that running pods were made of, from the cache at `place` (empty: none); None where
    they are of another pair, or nothing tells."""
    drawn = running_versions(world, spec, place)
    if drawn is not None:
        return PairedSpec(spec, drawn)
    # Pods say nothing of a speculator that was taken away.
    alone = (_with(spec, one, None) for one in _models(world, spec.verifier.source, place))
    pair = running_pair(world)
    return next((PairedSpec(spec, one) for one in alone if pair_hash(one.without_speculator()) == pair), None)


def running_versions(world: Snapshot, spec: ResolvedSpec, place: str = "") -> ResolvedSpec | None:
    """`spec` at the versions of verifier and speculator that running pods were made of; None
    where they are of another pair, or nothing tells."""
    pair = running_pair(world)
    return next((one for one in _versions(world, spec, place) if pair_hash(one) == pair), None) if pair else None


def _versions(world: Snapshot, spec: ResolvedSpec, place: str) -> Iterator[ResolvedSpec]:
    speculator = spec.speculator if spec.speculates else None
    for verifier in _models(world, spec.verifier.source, place):
        if speculator is None or speculator.source is None:
            yield _with(spec, verifier, None)
            continue
        for model in _models(world, speculator.source, place):
            yield _with(spec, verifier, model)


def _with(spec: ResolvedSpec, verifier: Model, speculator: Model | None) -> ResolvedSpec:
    pinned, brought = replace(spec, verifier=replace(spec.verifier, source=verifier.told)), verifier.brought
    if speculator is not None and spec.speculator is not None:
        pinned = replace(pinned, speculator=replace(spec.speculator, source=speculator.told))
        brought = tuple(dict((*brought, *speculator.brought)).items())
    if spec.weights.cache is None or not brought:
        return pinned
    return replace(pinned, weights=replace(spec.weights, cache=replace(spec.weights.cache, brought=brought)))


def _models(world: Snapshot, source: ModelSource, place: str) -> Iterator[Model]:
    """The models that pods load and that may be a version of `source`, from the cache at `place` (empty: none)."""
    found = world.workload.resolved
    models = found.models if found is not None else ()
    return (one for one in models if _is_version(one.told, source, place))


def _is_version(told: ModelSource, source: ModelSource, place: str) -> bool:
    """True where `told` may be `source` at some version, from the cache at `place`: the pair's hash proves which."""
    if place and source.scheme not in MOUNTED:
        return told.scheme is (Scheme.POD if in_pods(place) else Scheme.PVC) and told.location.startswith(f"{place}/")
    return told.scheme is source.scheme and untagged(told) == untagged(source)


def not_followed_notice(failure: Failure) -> Notice:
    """The notice that newer versions were asked for and could not be read."""
    message = (
        f"the annotation {names.ANNOTATION_REPIN} asks for new versions, which the operator could not resolve; pods "
        f"keep theirs, and the operator retries every few minutes: {failure.message}"
    )
    return Notice(Reason.VERSIONS_UNREAD, message)
