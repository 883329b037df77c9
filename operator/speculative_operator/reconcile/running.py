"""Which pair the pods run, as the Deployment alone tells it. Used by `pairing` and `choices`, and by the shell's cache.

Status holds the versions that pods were made of. Where it was lost, or another release wrote it, the template still
names them, and its label proves them: versions that make the same hash are those. Not every source's can be told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.artifact import Pin
from speculative_operator.domain.reading import mapping, text
from speculative_operator.domain.spec import DeploymentSpec, ModelSource, Scheme
from speculative_operator.reconcile.effective import FOLDER, Effective, in_pods
from speculative_operator.reconcile.world import World
from speculative_operator.render.labels import pair_hash

_COMMIT = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}(?![0-9a-f])")
_VERSION = re.compile(rf"(?<![0-9a-zA-Z_.-])((?:{re.escape(names.CACHE_FOLDER)}/)?{FOLDER}/[0-9a-f]{{16}})(?![0-9a-f])")
"""Folder of a version in a cache; without our own folder in front where an earlier release filled the cache."""
_MOST = 8
"""Most versions of one template that are compared with its hash; a template has two."""


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
    return frozenset(found.rpartition("/")[2] for found in _VERSION.findall(json.dumps(parts, default=str)))


def spec_by_template(world: World, place: str = "") -> Effective | None:
    """The spec at the versions that stand in the template, from the cache at `place` (empty: none); None where pods
    are of another pair, or the template does not tell."""
    pair, content = running_pair(world), _template(world)
    if not pair:
        return None
    drawn = _version_of_pair(world.spec, pair, content, place)
    if drawn is not None:
        return Effective(world.spec, drawn)
    for verifier in _at(world.spec.verifier.source, content, place):
        # The template names nothing of a speculator that was taken away.
        spec = _with(world.spec, verifier, None)
        if pair_hash(spec.without_speculator()) == pair:
            return Effective(world.spec, spec)
    return None


def speculator_by_template(world: World, spec: DeploymentSpec, place: str = "") -> DeploymentSpec | None:
    """Another `spec` of the object at the versions of verifier and speculator that stand in the template; else None."""
    pair = running_pair(world)
    return _version_of_pair(spec, pair, _template(world), place) if pair else None


def _version_of_pair(spec: DeploymentSpec, pair: str, content: str, place: str) -> DeploymentSpec | None:
    return next((told for told in _versions(spec, content, place) if pair_hash(told) == pair), None)


def _template(world: World) -> str:
    return json.dumps(mapping(world.deployment, "spec", "template"), default=str)


def _versions(spec: DeploymentSpec, content: str, place: str) -> Iterator[DeploymentSpec]:
    speculator = spec.speculator if spec.speculates else None
    for verifier in _at(spec.verifier.source, content, place):
        if speculator is None or speculator.source is None:
            yield _with(spec, verifier, None)
            continue
        for source in _at(speculator.source, content, place):
            yield _with(spec, verifier, source)


@dataclass(frozen=True, slots=True)
class _Version:
    """A model at one version."""

    told: ModelSource
    """The model as the engine loads it."""
    brought: tuple[tuple[str, ModelSource], ...] = ()
    """The entries of `Cache.brought` for the model."""


def _with(spec: DeploymentSpec, verifier: _Version, speculator: _Version | None) -> DeploymentSpec:
    told, brought = replace(spec, verifier=replace(spec.verifier, source=verifier.told)), verifier.brought
    if speculator is not None and spec.speculator is not None:
        told = replace(told, speculator=replace(spec.speculator, source=speculator.told))
        brought = tuple(dict((*brought, *speculator.brought)).items())
    if spec.weights.cache is None or not brought:
        return told
    return replace(told, weights=replace(spec.weights, cache=replace(spec.weights.cache, brought=brought)))


def _at(source: ModelSource, content: str, place: str) -> Iterator[_Version]:
    """`source` at each version that stands in `content`; a model in a claim of the user as the spec names it."""
    if not place or source.scheme is Scheme.PVC:
        yield from (_Version(told) for told in _sources(source, content))
    elif not in_pods(place):
        for folder in _find(_VERSION, content):
            yield _Version(ModelSource(Scheme.PVC, f"{place}/{folder}"))
    else:
        for pin in _pins(source, content):
            folder = f"{names.CACHE_FOLDER}/{FOLDER}/{pin.key}"
            yield _Version(ModelSource(Scheme.POD, f"{place}/{folder}"), ((folder, pin.source),))


def _pins(source: ModelSource, content: str) -> Iterator[Pin]:
    """The pins of `source` at the versions in `content`, for weights that pods fetch themselves."""
    for told in _sources(source, content) if source.scheme is not Scheme.S3 else ():
        location, _, digest = told.location.partition("@")
        if digest or told.revision:
            yield Pin(source.scheme, location, "", digest or told.revision)
    for digest in _find(_DIGEST, content) if source.scheme is Scheme.S3 else ():
        yield Pin(source.scheme, source.location, "", digest)


def _sources(source: ModelSource, content: str) -> Iterator[ModelSource]:
    """`source` at each version that stands in `content`, or else as the spec has it."""
    if source.scheme is Scheme.HF:
        yield from (replace(source, revision=one) for one in _find(_COMMIT, content))
    elif source.scheme is Scheme.OCI:
        name = source.location.partition("@")[0]
        head, _, tag = name.rpartition(":")
        name = head if head and "/" not in tag else name
        yield from (ModelSource(Scheme.OCI, f"{name}@{one}") for one in _find(_DIGEST, content))
    yield source


def _find(pattern: re.Pattern[str], content: str) -> list[str]:
    return list(dict.fromkeys(pattern.findall(content)))[:_MOST]
