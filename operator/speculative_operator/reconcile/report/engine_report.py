"""What serving pods report of their engine, kept in `status.engine`, and which pods lack the active table.

Called by `status` (the report, the warnings), `figures` and `tuning` (pods behind the table). What pods report reaches
the operator by Prometheus, where others may speak for them: it is told, and replaces no pod.
"""

from __future__ import annotations

from dataclasses import replace

from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.base import Notice
from speculative_operator.engines.matrix.rows import parse_version
from speculative_operator.reconcile.report.view import View
from speculative_operator.reconcile.snapshot.status import EngineReport, Status
from speculative_operator.reconcile.snapshot.template import image_in

CERTAIN_SECONDS = 60.0
"""Seconds for which a pod must have made steps since the table became active: a restarting engine reports much."""


def engine_report(view: View, old: Status, now: float) -> EngineReport:
    """The release and the table that pods report; empty until a pod has reported its engine."""
    asked = engine_as_asked(view.spec)
    before = old.engine if old.engine.asked == asked else EngineReport()
    lowest, told = _lowest(view.of_pair), _agreed_engine(view)
    report = replace(before, table_in_pods=lowest) if lowest is not None else before
    if told is not None and told != (report.version, report.live):
        report = replace(report, version=told[0], live=told[1], since=now)
    if told is not None and view.observation is not None:
        inert = min(filter(None, (one.inert for one in view.observation.windows.values())), default="")
        report = replace(report, inert=inert)
    return replace(report, asked=asked) if replace(report, asked="") != EngineReport() else EngineReport()


def engine_as_asked(spec: DeploymentSpec) -> str:
    """Type, version and image of the engine as the user set them, an override of the image by the pod template
    included."""
    return f"{spec.engine.type} {spec.engine.version} {image_in(spec.template) or spec.engine.image}".strip()


def engine_notices(spec: DeploymentSpec, report: EngineReport) -> tuple[Notice, ...]:
    """Warnings about the engine that pods report, such as another release than the spec's."""
    version, wanted = report.version, spec.engine.version
    inert = report.live is False
    lacks = f" (the plug-in says {report.inert})" if report.inert else ""
    if version and not same_release(version, wanted):
        how = f" and do not re-read their table{lacks}, so K stays as it was at their start" if inert else ""
        message = (
            f"pods report engine {version}, not spec.engine.version {wanted}{how}; set spec.engine.version: {version}, "
            f"or spec.engine.image to an image of {wanted}"
        )
        return (Notice(Reason.ENGINE_VERSION_DIFFERS, message),)
    if inert:
        message = (
            f"pods of engine {version or wanted} do not re-read their table{lacks}: K stays as it was at their start; "
            "set spec.engine to a release that docs/engines.md lists as Live, or speculation.mode: Static with "
            "the K that you want"
        )
        return (Notice(Reason.PLUG_IN_INERT, message),)
    return ()


def same_release(one: str, other: str) -> bool:
    """True when both versions are builds of one release."""
    releases = parse_version(one), parse_version(other)
    return one == other if None in releases else releases[0] == releases[1]


def table_since(view: View, old: Status, now: float) -> float:
    """Unix seconds at which the version of the active table became active; `now` where it is new."""
    known = old.speculation.since
    return known if known is not None and old.speculation.version == view.active.version else now


def behind(view: View, old: Status, now: float) -> str:
    """A sentence about the first pod that serves without the active table; empty when no such pod is known.

    Only pods that made steps for a minute after the table became active count: an idle engine reads no table.
    """
    active, observation = view.active, view.of_pair
    if observation is None or view.actuator is not Actuator.LIVE or active.table is None or active.removed:
        return ""
    since = table_since(view, old, now)
    for pod, window in sorted(observation.windows.items()):
        if window.steps <= 0 or window.live is None or window.start < since or window.end - since < CERTAIN_SECONDS:
            continue
        if window.live is False:
            return f"{pod} does not re-read its table, so table {active.version} is not active in it"
        if (window.table_version or 0) < active.least_version:
            has = f"table {window.table_version}" if window.table_version else "the table from its start"
            return f"{pod} serves with {has} and has not activated table {active.version}"
    return ""


def _agreed_engine(view: View) -> tuple[str, bool] | None:
    """Release that every ready pod reports, and whether they re-read their table; None while pods are replaced,
    disagree or report nothing."""
    ready = [pod.name for pod in view.pods if pod.ready]
    if view.observation is None or not ready or view.problems or view.hold or not view.rollout.complete:
        return None
    windows = view.observation.windows
    told = {(windows[pod].engine_version[:64], windows[pod].live) if pod in windows else ("", None) for pod in ready}
    if len(told) != 1:
        return None
    version, live = told.pop()
    return (version, live) if live is not None else None


def _lowest(observation: Observation | None) -> int | None:
    versions = [] if observation is None else [one.table_version for one in observation.windows.values()]
    return min((version for version in versions if version is not None), default=None)
