"""What is said where `spec.speculation.offPolicy` Live is asked for in vain. Used by `tick` for the warning."""

from __future__ import annotations

from speculative_operator.domain.knobs import Actuator, KnobSpace
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, OffPolicy
from speculative_operator.engines.base import Notice

_NO_EFFECT = "speculation.offPolicy Live works as Soft"


def unused(spec: DeploymentSpec, knobs: KnobSpace) -> tuple[Notice, ...]:
    """One notice where pods cannot leave the drafter out. Pods without a speculator have none."""
    if spec.speculation.off_policy is not OffPolicy.LIVE or knobs.rests or not spec.speculates:
        return ()
    return (Notice(Reason.LIVE_OFF_UNUSED, f"{_NO_EFFECT}: {_why(spec, knobs)}"),)


def _why(spec: DeploymentSpec, knobs: KnobSpace) -> str:
    if spec.engine.type is not EngineType.VLLM:
        return f"{spec.engine.type} cannot skip its speculator at K 0; set offPolicy: Soft, or Hard"
    if knobs.actuator is not Actuator.LIVE:
        return (
            "it needs pods that re-read their table, and K of these pods is fixed at their start (actuator "
            f"{knobs.actuator}); set offPolicy: Soft or Hard, or use a combination of docs/engines.md with live tables"
        )
    method = spec.speculator.method if spec.speculator is not None else ""
    return (
        "vLLM can skip the speculator for draft_model, eagle and eagle3 on its V1 runner (0.25 to 0.33 without 0.30), "
        f"on one accelerator and with K 0 allowed, but not for {method} in this object; set offPolicy: Soft, or Hard"
    )
