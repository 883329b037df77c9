"""The spec with each model at the version that was found for it: what pods are made of. Used by `pairing`.

hf://     the commit as revision
oci://    the digest in place of the tag
cached    the version's folder in the cache's claim, whatever the source
pvc://    as it is; the hash over its files counts for the pair's
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from speculative_operator.domain.artifact import Pin
from speculative_operator.domain.spec import DeploymentSpec, ModelSource, Scheme
from speculative_operator.reconcile.records import Known

FOLDER = "models"
"""Folder of a cache in which whole versions lie, each by its key."""


@dataclass(frozen=True, slots=True)
class Effective:
    """One spec in two forms."""

    named: DeploymentSpec
    """Models by the names that the user gave: for whatever knows models by name."""
    told: DeploymentSpec
    """Models as the engine is told of them: for whatever ends up in a manifest."""


def as_written(spec: DeploymentSpec) -> Effective:
    """Nothing is pinned: the engine resolves what the spec says when a pod starts."""
    return Effective(spec, spec)


def pinned(spec: DeploymentSpec, known: Known, claim: str) -> Effective:
    """`spec` at the versions of `known`, from the cache in `claim` (empty: none)."""
    verifier, speculator = spec.verifier.source, spec.speculator
    told = replace(spec, verifier=replace(spec.verifier, source=_told(verifier, known.verifier.pin, claim)))
    if speculator is not None and speculator.source is not None:
        facts = known.verifier if speculator.source.uri == verifier.uri else known.speculator
        # In mode Off nothing was read of a speculator, and nothing of it reaches a pod.
        source = _told(speculator.source, facts.pin, claim) if facts is not None else speculator.source
        told = replace(told, speculator=replace(speculator, source=source))
    size = sum(facts.weights.bytes for facts in (known.models if spec.speculates else (known.verifier,)))
    return Effective(spec, replace(told, weights=replace(told.weights, bytes=size)))


def standing(spec: DeploymentSpec, known: Known, asked: tuple[tuple[str, str], ...], claim: str) -> Effective | None:
    """`spec` with the pair of `known` in place of its own; None where it is not known how that pair drafts."""
    if not known.adopted or not asked:
        return None
    scheme, _, location = asked[0][0].partition("://")
    if scheme not in set(Scheme):
        return None
    source = ModelSource(Scheme(scheme), location, asked[0][1])
    held = replace(spec, verifier=replace(spec.verifier, source=source), speculator=known.drafter)
    return pinned(held, known, claim)


def _told(source: ModelSource, pin: Pin, claim: str) -> ModelSource:
    if claim and pin.scheme is not Scheme.PVC:
        return ModelSource(Scheme.PVC, f"{claim}/{FOLDER}/{pin.key}")
    if pin.scheme is Scheme.HF:
        return replace(source, revision=pin.resolved)
    if pin.scheme is Scheme.OCI:
        return ModelSource(Scheme.OCI, f"{pin.location}@{pin.resolved}")
    return replace(source, content=pin.resolved)
