"""What a user should know of a vLLM spec that can be served. Called by `adapter`; shown in status and as one event."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Mode
from speculative_operator.engines.base import Notice
from speculative_operator.engines.matrix.vendors import platform_of
from speculative_operator.engines.matrix.version import parse, show
from speculative_operator.engines.vllm.capability import LIVE_PROVEN
from speculative_operator.engines.vllm.plan import plan


def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """Empty for most specs, and for those without a speculator or with one K (mode Static, no schedule)."""
    version = parse(spec.engine.version)
    fixed = spec.speculation.mode is Mode.STATIC and spec.speculation.schedule is None
    if version is None or spec.speculator is None or not spec.speculates or fixed:
        return ()
    return tuple(_notices(spec))


def _notices(spec: DeploymentSpec) -> Iterator[Notice]:
    planned = plan(spec)
    release = show(planned.version)
    row = platform_of(EngineType.VLLM, spec.accelerator.vendor, planned.version)
    if planned.actuator is Actuator.TABLE and planned.version[:2] not in LIVE_PROVEN:
        proven = " to ".join(f"{major}.{minor}" for major, minor in (LIVE_PROVEN[0], LIVE_PROVEN[-1]))
        message = (
            f"engine.version {release}: live changes of K are tested with {proven} only, so K changes by rollouts; "
            f"set engine.version {proven.rpartition(' ')[2]}.0 to change K without rollouts"
        )
        yield Notice(Reason.LIVE_UNPROVEN, message)
    elif planned.actuator is Actuator.RESTART and row is not None and row.actuator is Actuator.RESTART:
        message = (
            f"{row.plugin} on {row.vendor} drafts with one constant K, which changes by rollouts and cannot follow the "
            "load within a pod"
        )
        yield Notice(Reason.LIVE_UNPROVEN, message)
