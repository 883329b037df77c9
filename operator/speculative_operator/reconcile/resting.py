"""What is said where `spec.speculation.offPolicy` Live is asked for in vain. Used by `tick` for the warning."""

from __future__ import annotations

from speculative_operator.domain.knobs import Actuator, KnobSpace
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, OffPolicy
from speculative_operator.engines.base import Notice

_NO_EFFECT = "speculation.offPolicy Live does no more than Soft here"


def unused(spec: DeploymentSpec, knobs: KnobSpace) -> tuple[Notice, ...]:
    """One notice where pods cannot leave the drafter out. Pods without a speculator have none."""
    if spec.speculation.off_policy is not OffPolicy.LIVE or knobs.rests or not spec.speculates:
        return ()
    return (Notice(Reason.LIVE_OFF_UNUSED, f"{_NO_EFFECT}: {_why(spec, knobs)}"),)


def _why(spec: DeploymentSpec, knobs: KnobSpace) -> str:
    if spec.engine.type is not EngineType.VLLM:
        return f"{spec.engine.type} has no place where its drafter could be left out; set offPolicy: Soft, or Hard"
    if knobs.actuator is not Actuator.LIVE:
        return (
            f"it comes with a table that pods re-read, and here K is fixed at their start (actuator {knobs.actuator}); "
            "set offPolicy: Soft, or Hard, or see docs/engines.md for where tables are live"
        )
    method = spec.speculator.method if spec.speculator is not None else ""
    return (
        "it is there for draft_model, eagle and eagle3 on vLLM's V1 runner (0.25 to 0.33 without 0.30), on one "
        f"accelerator and with K 0 in reach, and not for {method} here; set offPolicy: Soft, or Hard"
    )
