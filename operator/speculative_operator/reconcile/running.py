"""Which pair the pods run, as the Deployment alone tells it. Used by `pairing` and `choices`, and by the shell's cache.

Status holds the versions that pods were made of. Where it was lost, or another release wrote it, the record on the
Deployment (`render.resolved`) names them, and the label of its template proves them: versions that make the same hash
are those.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import mapping, text
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.reconcile import formerly
from speculative_operator.reconcile.effective import VERSION_FOLDER, PairedSpec, in_pods, untagged
from speculative_operator.reconcile.world import World
from speculative_operator.render import resolved
from speculative_operator.render.labels import pair_hash
from speculative_operator.render.resolved import Model


def running_pair(world: World) -> str:
    """Hash of the pair that the Deployment's template was made of; `?` where it bears none, empty without a
    Deployment."""
    if world.deployment is None:
        return ""
    return text(world.deployment, "spec", "template", "metadata", "labels", names.LABEL_PAIR) or "?"


def folders(template: Mapping[str, Any]) -> frozenset[str]:
    """Folders of caches that pods of `template`, or a pod itself, load models from: whatever status says, they need
    them when their engine is started again."""
    parts = [mapping(template, "metadata", "annotations"), mapping(template, "spec")]
    return frozenset(found.rpartition("/")[2] for found in VERSION_FOLDER.findall(json.dumps(parts, default=str)))


def running_spec(world: World, spec: ResolvedSpec, place: str = "") -> PairedSpec | None:
    """`spec` at the versions that running pods were made of, from the cache at `place` (empty: none); None where
    they are of another pair, or nothing tells."""
    drawn = running_versions(world, spec, place)
    if drawn is not None:
        return PairedSpec(spec, drawn)
    # Pods say nothing of a speculator that was taken away.
    alone = (_with(spec, one, None) for one in _models(world, spec.verifier.source, place))
    pair = running_pair(world)
    return next((PairedSpec(spec, one) for one in alone if pair_hash(one.without_speculator()) == pair), None)


def running_versions(world: World, spec: ResolvedSpec, place: str = "") -> ResolvedSpec | None:
    """`spec` at the versions of verifier and speculator that running pods were made of; None
    where they are of another pair, or nothing tells."""
    pair = running_pair(world)
    return next((one for one in _versions(world, spec, place) if pair_hash(one) == pair), None) if pair else None


def _versions(world: World, spec: ResolvedSpec, place: str) -> Iterator[ResolvedSpec]:
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


def _models(world: World, source: ModelSource, place: str) -> Iterator[Model]:
    """The models that pods load and that may be a version of `source`, from the cache at `place` (empty: none)."""
    found = resolved.read(world.deployment, world.spec.uid)
    if found is None:
        return formerly.models_in(mapping(world.deployment, "spec", "template"), source, place)
    return (one for one in found.models if _is_version(one.told, source, place))


def _is_version(told: ModelSource, source: ModelSource, place: str) -> bool:
    """True where `told` may be `source` at some version, from the cache at `place`: the pair's hash proves which."""
    if place and source.scheme is not Scheme.PVC:
        return told.scheme is (Scheme.POD if in_pods(place) else Scheme.PVC) and told.location.startswith(f"{place}/")
    return told.scheme is source.scheme and untagged(told) == untagged(source)
