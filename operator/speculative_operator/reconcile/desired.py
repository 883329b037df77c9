"""The children as they should be: container, strategy and replicas put together for `render`. Called by `tick`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.spec import DeploymentSpec, Mode
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Engine
from speculative_operator.reconcile import strategy
from speculative_operator.reconcile.reading import text
from speculative_operator.reconcile.rollout import scaled_elsewhere
from speculative_operator.reconcile.truth import InForce
from speculative_operator.reconcile.world import World
from speculative_operator.render import RenderInput, render_again


@dataclass(frozen=True, slots=True)
class Desired:
    """Manifests in the order in which they are best applied."""

    manifests: tuple[Mapping[str, Any], ...]
    live: bool
    """True when pods re-read the table from a file."""
    table_version: int

    def find(self, kind: str, name: str) -> Mapping[str, Any] | None:
        """The manifest of one child."""
        wanted = (kind, name)
        return next((one for one in self.manifests if (one["kind"], one["metadata"]["name"]) == wanted), None)


def desired_children(world: World, engine: Engine, in_force: InForce) -> Desired:
    """Every child for the table in force. Raises RenderError."""
    spec = without_drafter(world.spec) if in_force.hard_off else world.spec
    deployment = world.children.get(("Deployment", names.child(spec.name)))
    table = in_force.table or KTable.constant(0, spec.verifier.max_num_seqs or 1)
    inp = RenderInput(
        spec=spec,
        container=engine.container(spec, table),
        table=None if in_force.hard_off else in_force.table,
        table_version=in_force.version,
        capabilities=world.capabilities,
        strategy=strategy.choose(spec, world.capabilities.spare_accelerators),
        owns_replicas=not scaled_elsewhere(deployment),
        waiting=in_force.table if in_force.hard_off else None,
        per_request=in_force.per_request,
    )
    manifests: tuple[Mapping[str, Any], ...] = render_again(inp)
    if world.capabilities.spare_accelerators is not None and deployment is not None:
        manifests = _steady(inp, manifests, text(deployment, "metadata", "annotations", names.ANNOTATION_HASH))
    return Desired(manifests, inp.live, in_force.version)


def without_drafter(spec: DeploymentSpec) -> DeploymentSpec:
    """`spec` as it would be with mode Off: what pods are made of while the tuner has them run without a drafter.

    The same pods, labels included, so that a user who then sets mode Off replaces none.
    """
    return replace(spec, speculation=replace(spec.speculation, mode=Mode.OFF))


def _steady(inp: RenderInput, manifests: tuple[Mapping[str, Any], ...], applied: str) -> tuple[Mapping[str, Any], ...]:
    """Keeps the strategy last applied while nothing else changed.

    Free accelerators come and go by the minute; the choice matters only when pods are about to be replaced.
    """
    hashes = {one["metadata"]["annotations"][names.ANNOTATION_HASH] for one in manifests}
    if applied in hashes:
        return manifests
    for other in strategy.EVERY:
        candidate = render_again(replace(inp, strategy=other))
        if any(one["metadata"]["annotations"][names.ANNOTATION_HASH] == applied for one in candidate):
            return candidate
    return manifests
