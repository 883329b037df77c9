"""Resolves the spec of an object: each model at the version that was found for it. Used by `pairing`.

hf://     the commit as revision
oci://    the digest in place of the tag
cached    the version's folder in the cache, of hf:// and s3://: of a claim, or of what each pod fills itself
pvc://    as it is; the hash over its files counts for the pair's
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from speculative_operator.domain import names
from speculative_operator.domain.models import Pin
from speculative_operator.domain.resolved import ResolvedCache, ResolvedSpec
from speculative_operator.domain.spec import EMPTY_DIR, MOUNTED, SOURCES, EmptyDir, ModelSource, Scheme
from speculative_operator.reconcile.snapshot.records import Known
from speculative_operator.render.metadata import pair_hash

FOLDER = "models"
"""Folder in the home of a cache in which whole versions lie, each by its key."""
VERSION_FOLDER = re.compile(
    rf"(?<![0-9a-zA-Z_.-])({re.escape(names.CACHE_FOLDER)}/{FOLDER}/[0-9a-f]{{16}})(?![0-9a-f])"
)
"""Folder of a version in a cache."""


@dataclass(frozen=True, slots=True)
class PairedSpec:
    """One resolved spec in two forms."""

    by_name: ResolvedSpec
    """Models by the names that the user or the catalogue gave: for whatever knows models by name."""
    pinned: ResolvedSpec
    """Models as the engine is told of them: for whatever ends up in a manifest."""

    @property
    def hashes(self) -> frozenset[str]:
        """Hashes of the pair, with its speculator and without."""
        return frozenset({pair_hash(self.pinned), pair_hash(self.pinned.without_speculator())})

    @property
    def without_live_tables(self) -> PairedSpec:
        """The spec for pods that re-read no table: their K changes by a rollout."""
        by_name, pinned = (replace(one, engine=replace(one.engine, live=False)) for one in (self.by_name, self.pinned))
        return PairedSpec(by_name, pinned)


def unpinned(spec: ResolvedSpec) -> PairedSpec:
    """The spec without pins: the engine resolves branches and tags when a pod starts."""
    return PairedSpec(spec, spec)


def in_pods(place: str) -> bool:
    """True for the `place` or the home of a cache that each pod fills itself."""
    return place.startswith("/") or place.partition("/")[0] == EMPTY_DIR


def pin_models(spec: ResolvedSpec, known: Known, home: str) -> PairedSpec:
    """`spec` at the versions of `known`, from the cache with this `home` (`Cache.home`; empty: none)."""
    place = home.removesuffix(f"/{names.CACHE_FOLDER}")
    home = f"{place}/{names.CACHE_FOLDER}" if place else ""  # a status may have been edited
    verifier, speculator = spec.verifier.source, spec.speculator
    pinned = replace(spec, verifier=replace(spec.verifier, source=_pin_source(verifier, known.verifier.pin, home)))
    if speculator is not None and speculator.source is not None:
        facts = known.verifier if speculator.source.uri == verifier.uri else known.speculator
        # In mode Disabled nothing was read of a speculator, and nothing of it reaches a pod.
        source = _pin_source(speculator.source, facts.pin, home) if facts is not None else speculator.source
        pinned = replace(pinned, speculator=replace(speculator, source=source))
    models = known.models if spec.speculates else (known.verifier,)
    size = sum(facts.weights.bytes for facts in models)
    weights = replace(pinned.weights, bytes=size, verifier_bytes=known.verifier.weights.bytes)
    if in_pods(place):
        weights = replace(weights, cache=_with_brought(spec.weights.cache, place, tuple(facts.pin for facts in models)))
    return PairedSpec(spec, replace(pinned, weights=weights))


def former_pair(spec: ResolvedSpec, known: Known, asked: tuple[tuple[str, str], ...], home: str) -> PairedSpec | None:
    """`spec` with the pair of `known` in place of its own; None where it is not known how that pair drafts."""
    if not known.adopted or not asked:
        return None
    scheme, _, location = asked[0][0].partition("://")
    if scheme not in SOURCES:
        return None
    source = ModelSource(Scheme(scheme), location, asked[0][1])
    held = replace(spec, verifier=replace(spec.verifier, source=source), speculator=known.drafter)
    return pin_models(held, known, home)


def untagged(source: ModelSource) -> str:
    """The location of `source` without tag or digest of an image."""
    name = source.location.partition("@")[0]
    head, _, tag = name.rpartition(":")
    return head if head and "/" not in tag else name


def _with_brought(cache: ResolvedCache | None, place: str, pins: tuple[Pin, ...]) -> ResolvedCache:
    """The cache with the folders that each pod fetches into it. Where pods use a cache that the spec no longer names,
    only its place is known: enough to tell which pair they run."""
    if cache is None or cache.place != place:
        cache = ResolvedCache(empty_dir=EmptyDir("")) if place == EMPTY_DIR else ResolvedCache(node_path=place)
    brought = {f"{names.CACHE_FOLDER}/{FOLDER}/{pin.key}": pin.source for pin in pins if pin.scheme not in MOUNTED}
    return replace(cache, brought=tuple(brought.items()))


def _pin_source(source: ModelSource, pin: Pin, home: str) -> ModelSource:
    if home and pin.scheme not in MOUNTED:
        scheme = Scheme.POD if in_pods(home) else Scheme.PVC
        return ModelSource(scheme, f"{home}/{FOLDER}/{pin.key}")
    if pin.scheme is Scheme.HF:
        return replace(source, revision=pin.resolved)
    if pin.scheme is Scheme.OCI:
        return ModelSource(Scheme.OCI, f"{pin.location}@{pin.resolved}")
    return replace(source, content=pin.resolved)
