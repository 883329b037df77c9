"""Whether pods may withhold the drafts of single requests (`spec.speculation.perRequest`), and the warnings where this
setting or `offPolicy: Live` has no effect.

Used by `active_table`, which lets the table file say so, and by `tick` for the warnings.
"""

from __future__ import annotations

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, OffPolicy, PerRequest
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.engines.base import Notice

_NO_EFFECT = "speculation.perRequest Auto has no effect"
_AS_SOFT = "speculation.offPolicy Live works as Soft"


def per_request(spec: DeploymentSpec, knobs: KnobSpace) -> bool:
    """True when the spec asks for caps by request and they take effect."""
    return spec.speculation.per_request is PerRequest.AUTO and knobs.per_request


def unused_notices(spec: DeploymentSpec, knobs: KnobSpace, *, stay: bool = False) -> tuple[Notice, ...]:
    """One notice for each of perRequest and `offPolicy: Live` that the spec sets without effect; none where pods run
    without a speculator. `stay`: pods of an earlier release run, and new ones could do more (UpgradeWaits)."""
    if not spec.speculates:
        return ()
    found = []
    if spec.speculation.per_request is PerRequest.AUTO and not knobs.per_request:
        found.append(Notice(Reason.PER_REQUEST_UNUSED, f"{_NO_EFFECT}: {_why_no_caps(spec, knobs)}"))
    if spec.speculation.off_policy is OffPolicy.LIVE and not knobs.rests:
        found.append(Notice(Reason.LIVE_OFF_UNUSED, f"{_AS_SOFT}: {_why_soft(spec, knobs, stay)}"))
    return tuple(found)


def _why_no_caps(spec: DeploymentSpec, knobs: KnobSpace) -> str:
    if spec.engine.type is not EngineType.VLLM:
        return (
            f"only the plug-in in vLLM can withhold drafts, and engine.type is {spec.engine.type}; remove perRequest, "
            "or set engine.type: vLLM and speculator.method: ngram"
        )
    if knobs.actuator is not Actuator.LIVE:
        return (
            "it needs pods that re-read their table, and K of these pods is fixed at their start (actuator "
            f"{knobs.actuator}); remove perRequest, or use a combination of docs/engines.md with live tables"
        )
    method = spec.speculator.method if spec.speculator is not None else ""
    return (
        "it needs drafts that pass through vLLM's scheduler, as those of ngram without pipeline parallelism do; the "
        f"method is {method}; remove perRequest, or set speculator.method: ngram"
    )


def _why_soft(spec: DeploymentSpec, knobs: KnobSpace, stay: bool) -> str:
    if spec.engine.type is not EngineType.VLLM:
        return f"{spec.engine.type} cannot skip its speculator at K 0; set offPolicy: Soft, or Hard"
    if knobs.actuator is not Actuator.LIVE:
        return (
            "it needs pods that re-read their table, and K of these pods is fixed at their start (actuator "
            f"{knobs.actuator}); set offPolicy: Soft or Hard, or use a combination of docs/engines.md with live tables"
        )
    if stay:
        return f"the running pods were created before they could skip the speculator; {Reason.UPGRADE_WAITS} tells more"
    method = spec.speculator.method if spec.speculator is not None else ""
    if knobs.draft_free:
        return f"{method} makes no pass at K 0 that could be skipped; set offPolicy: Soft"
    if knobs.rests_with:
        return (
            f"vLLM's V2 model runner, which serves {method} here, cannot skip the speculator at K 0, but V1 can: add "
            f"{knobs.rests_with} to spec.engine.env (this replaces the pods, and V1 has only piecewise CUDA graphs at "
            "every K), or set offPolicy: Soft, or Hard"
        )
    return (
        "vLLM can skip the speculator for draft_model, eagle, eagle3 and mtp on its V1 runner (0.25 to 0.33 without "
        f"0.30), without pipeline parallelism and with K 0 allowed, but not for {method} in this object; set "
        "offPolicy: Soft, or Hard"
    )
