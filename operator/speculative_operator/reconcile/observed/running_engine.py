"""The adapter for an engine as its pods were found to run it, where that is not what the spec says. Called by `tick`.

A plug-in that was not proven on the release in the pod leaves the engine alone: the engine serves on with the table of
its start, and no other table reaches it. When all pods have reported this for a while (`engine_report`), a warning
names the annotation by which the user accepts it: the adapter then makes the table part of the pod template, and one
rollout follows. What pods report reaches us by Prometheus, where others may speak for them: it replaces no pod by
itself. A change of `spec.engine` ends it, or the annotation with the value AS_IN_SPEC: pods that are made without the
plug-in have nothing more to report.
"""

from __future__ import annotations

from dataclasses import replace

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.base import Engine, EngineContainer, Notice
from speculative_operator.reconcile.snapshot.status import EngineReport
from speculative_operator.reconcile.snapshot.template import image_in
from speculative_operator.reconcile.snapshot.workload import Workload
from speculative_operator.render.podspec import TABLE_VOLUME

AS_IN_SPEC = "engine-as-in-spec"
"""Value of the annotation `adopt` that takes back what another value of it had accepted."""


def engine_as_asked(spec: DeploymentSpec) -> str:
    """Type, version and image of the engine as the user set them, an override of the image by the pod template
    included."""
    return f"{spec.engine.type} {spec.engine.version} {image_in(spec.template) or spec.engine.image}".strip()


def is_about(report: EngineReport, spec: DeploymentSpec) -> bool:
    """True where the report is of the engine that the spec asks for. To name the release that pods reported asks for no
    other engine."""
    kind, _, rest = report.asked.partition(" ")
    named = f"{kind} {report.version} {rest.partition(' ')[2]}".strip()
    return engine_as_asked(spec) in (report.asked, named)


def engine_as_found(engine: Engine, spec: DeploymentSpec, report: EngineReport) -> Engine:
    """`engine`, or one that treats the spec as the engine that its pods were found to run."""
    return without_live_tables(engine, report.version) if fell_back(spec, report) else engine


def fell_back(spec: DeploymentSpec, report: EngineReport) -> bool:
    """True where a user has accepted that pods re-read no table, and has not taken it back."""
    return spec.adopt != AS_IN_SPEC and report.fallback and is_about(report, spec)


def engine_of_pods(engine: Engine, spec: DeploymentSpec, workload: Workload) -> Engine:
    """`engine`; without tables that pods re-read where pods that draft mount none, though new ones would."""
    rereads = workload.table.removed or TABLE_VOLUME in workload.configs
    return engine if rereads or engine.knobs(spec).actuator is not Actuator.LIVE else without_live_tables(engine, "")


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
        """The adapter's notices without LiveUnproven: `engine_notices` tells what the pods report."""
        return tuple(one for one in engine.notices(as_found(spec)) if one.reason is not Reason.LIVE_UNPROVEN)

    def container(spec: ResolvedSpec, table: KTable) -> EngineContainer:
        return replace(engine.container(as_found(spec), table), image=engine.container(spec, table).image)

    return replace(
        engine, notices=notices, knobs=lambda spec: engine.knobs(as_found(spec)), container=container,
        from_reports=True,
    )  # fmt: skip
