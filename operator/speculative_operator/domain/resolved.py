"""What pods are made of: the spec of an object with what the operator has found out beside what its user asked for.

`reconcile` makes it of a spec and passes it on; the world keeps the user's spec. What needs a resolved spec says so by
its type, so a spec that lacks what was found out cannot take its place, and no found value fits into a user's spec.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from speculative_operator.domain.spec import NOT_OF_PODS, Cache, DeploymentSpec, EngineSettings, ModelSource, Weights


@dataclass(frozen=True, slots=True)
class ResolvedEngine(EngineSettings):
    """The engine, with what its pods and their starts have shown."""

    live: bool = field(default=True, metadata=NOT_OF_PODS)
    """False for pods that were made without a table to re-read: their K changes by a rollout."""
    startup_seconds: int = 0
    """Least startup budget in seconds, from measured starts; 0: the engine's adapter estimates it."""


@dataclass(frozen=True, slots=True)
class ResolvedCache(Cache):
    """The cache of weights, with the versions that pods bring there."""

    brought: tuple[tuple[str, ModelSource], ...] = ()
    """Folder within the cache -> the version that each pod brings there itself."""


@dataclass(frozen=True, slots=True)
class ResolvedWeights(Weights):
    """The weights, with their size once their files were read."""

    cache: ResolvedCache | None = None
    bytes: int = field(default=0, metadata=NOT_OF_PODS)
    """Size of all models that pods load together; 0 where unknown."""
    verifier_bytes: int = field(default=0, metadata=NOT_OF_PODS)
    """Size of the verifier alone; 0 where unknown."""


@dataclass(frozen=True, slots=True)
class ResolvedSpec(DeploymentSpec):
    """The spec with the picked speculator in place of `auto`, with models at the versions that were found, and with
    what was measured."""

    engine: ResolvedEngine = field(default_factory=ResolvedEngine)
    weights: ResolvedWeights = field(default_factory=ResolvedWeights)

    def without_speculator(self) -> Self:
        """The resolved spec with mode Disabled: its pods load the verifier alone."""
        alone = DeploymentSpec.without_speculator(self)
        return replace(alone, weights=replace(self.weights, bytes=self.weights.verifier_bytes))


def resolve(spec: DeploymentSpec) -> ResolvedSpec:
    """`spec` as it is, as far as nothing was found out beside it yet."""
    weights = _values(spec.weights)
    if spec.weights.cache is not None:
        weights["cache"] = ResolvedCache(**_values(spec.weights.cache))
    parts = {"engine": ResolvedEngine(**_values(spec.engine)), "weights": ResolvedWeights(**weights)}
    return ResolvedSpec(**(_values(spec) | parts))


def _values(part: Any) -> dict[str, Any]:
    return {one.name: getattr(part, one.name) for one in fields(part)}
