"""The adapter for an engine as its pods were found to run it, where that is not what the spec says. Called by `tick`.

A plug-in that was not proven on the release in the pod leaves the engine alone: the engine serves on with the table of
its start, and no other table reaches it. When all pods have reported this for a while (`engine_report`), a warning
names the annotation by which the user accepts it: the adapter then makes the table part of the pod template, and one
rollout follows. What pods report reaches us by Prometheus, where others may speak for them: it replaces no pod by
itself. A change of `spec.engine` ends it, or the annotation with the value AS_IN_SPEC: pods that are made without the
plug-in have nothing more to report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from speculative_operator.domain import names
from speculative_operator.domain.reading import at, mapping, mappings, parse_json, text
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.spec import DeploymentSpec, OffPolicy
from speculative_operator.domain.table import Actuator, KnobSpace, KTable
from speculative_operator.engines.base import Engine, EngineContainer, Notice
from speculative_operator.reconcile.pods import configs_of
from speculative_operator.render.podspec import TABLE_VOLUME

_Spec = TypeVar("_Spec", bound=DeploymentSpec)
AS_IN_SPEC = "engine-as-in-spec"
"""Value of the annotation `adopt` that takes back what another value of it had accepted."""


def engine_as_asked(spec: DeploymentSpec) -> str:
    """Type, version and image of the engine as the user set them, an override of the image by the pod template
    included."""
    containers = mappings(spec.template, "spec", "containers")
    overridden = next((text(one, "image") for one in containers if text(one, "name") == names.CONTAINER), "")
    return f"{spec.engine.type} {spec.engine.version} {overridden or spec.engine.image}".strip()


def engine_as_found(engine: Engine, spec: DeploymentSpec, status: Mapping[str, Any]) -> Engine:
    """`engine`, or one that treats the spec as the engine that its pods were found to run."""
    block = mapping(status, "engine")
    taken_back = spec.adopt == AS_IN_SPEC
    if taken_back or at(block, "fallback") is not True or text(block, "asked") != engine_as_asked(spec):
        return engine
    return without_live_tables(engine, text(block, "version"))


def engine_as_made(engine: Engine, spec: DeploymentSpec, deployment: Mapping[str, Any] | None) -> Engine | None:
    """The adapter that makes pods without a table to re-read, where running pods have no such table but new ones would.

    None where running pods have one, new ones would not, there is no Deployment, or pods run without a speculator.
    """
    reads = TABLE_VOLUME in configs_of(mapping(deployment, "spec", "template"))
    without_speculator = (
        at(parse_json(text(deployment, "metadata", "annotations", names.ANNOTATION_TABLE)), "hardOff") is True
    )
    if deployment is None or reads or without_speculator or not spec.speculates:
        return None
    return without_live_tables(engine, "") if engine.knobs(spec).actuator is Actuator.LIVE else None


def was_soft(spec: DeploymentSpec, status: Mapping[str, Any]) -> bool:
    """True where `offPolicy: Live` had no effect so far, as the status tells; also where the status is lost."""
    if spec.speculation.off_policy is not OffPolicy.LIVE:
        return False
    warned = any(text(one, "reason") == Reason.LIVE_OFF_UNUSED for one in mappings(status, "warnings"))
    return warned or not mapping(status, "speculation")


def engine_that_runs_on(
    engine: Engine, spec: DeploymentSpec, deployment: Mapping[str, Any] | None, status: Mapping[str, Any]
) -> Engine | None:
    """The adapter that makes pods which run the speculator at K 0, where pods were made so (`was_soft`) and new ones
    would skip it. Else None."""
    if deployment is None or not was_soft(spec, status):
        return None

    def soft(spec: _Spec) -> _Spec:
        return replace(spec, speculation=replace(spec.speculation, off_policy=OffPolicy.SOFT))

    def knobs(spec: DeploymentSpec) -> KnobSpace:
        return replace(engine.knobs(soft(spec)), rests=False)

    def container(spec: ResolvedSpec, table: KTable) -> EngineContainer:
        return engine.container(soft(spec), table)

    return replace(engine, knobs=knobs, container=container) if engine.knobs(spec).rests else None


def without_live_tables(engine: Engine, version: str) -> Engine:
    """An adapter that treats the spec as the release `version` that pods reported, without tables that pods re-read.

    Where the adapter refuses that release, the release of the spec counts. The image stays the spec's, and so do the
    refusals: what pods report never stops an object from being served.
    """

    def as_found(spec: DeploymentSpec) -> ResolvedSpec:
        written = resolve(spec)
        written = replace(written, engine=replace(written.engine, live=False))
        found = replace(written, engine=replace(written.engine, version=version))
        return written if not version or engine.refusals(found) else found

    def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
        """The adapter's notices without LiveUnproven: `engine_notices` tells it from what the pods report."""
        return tuple(one for one in engine.notices(as_found(spec)) if one.reason is not Reason.LIVE_UNPROVEN)

    def container(spec: ResolvedSpec, table: KTable) -> EngineContainer:
        return replace(engine.container(as_found(spec), table), image=engine.container(spec, table).image)

    return replace(
        engine, notices=notices, knobs=lambda spec: engine.knobs(as_found(spec)), container=container, from_reports=True
    )
