"""The condition OutputsVerified, for objects on which `speculative verify` was run. Called by `status`."""

from __future__ import annotations

from speculative_operator.domain import names
from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.outputs.record import Verdict
from speculative_operator.reconcile.report.view import View

_KIND = ConditionType.OUTPUTS_VERIFIED
_OF_VERDICT = {
    Verdict.SAME: (Truth.TRUE, Reason.OUTPUTS_SAME),
    Verdict.TIES: (Truth.TRUE, Reason.OUTPUTS_TIED),
    Verdict.DIFFERENT: (Truth.FALSE, Reason.OUTPUTS_DIFFER),
}


def outputs_conditions(view: View) -> tuple[Condition, ...]:
    """What was found of pods like those that run; no condition where nothing was looked for."""
    found = view.verified
    if not view.spec.verified:
        return ()
    if found is None:
        message = f"the annotation {names.ANNOTATION_VERIFIED} cannot be read; remove it, or run speculative verify"
        return (Condition(_KIND, Truth.UNKNOWN, Reason.OUTPUTS_UNREADABLE, message),)
    if {pod.template for pod in view.pods if not (pod.terminating or pod.over)} != {found.template}:
        message = f"the pods of {found.at} are no more, or not alone; run speculative verify again"
        return (Condition(_KIND, Truth.UNKNOWN, Reason.OUTPUTS_OUTDATED, message),)
    told = f"{found.verdict} at {found.at}: {found.prompts} prompts, {found.tokens} tokens compared"
    message = f"{told}; {found.ties} answers part at a tie, {found.different} elsewhere"
    return (Condition(_KIND, *_OF_VERDICT[found.verdict], message),)
