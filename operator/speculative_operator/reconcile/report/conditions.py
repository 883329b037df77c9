"""Conditions about serving: Ready, Progressing, Available, RolloutHealthy, OutputsVerified, and those of a pair that
is not checked.

Called by `status`. Messages hold counts and states, never figures that move by themselves: a condition that changes is
a write and an event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.formats import LONGEST_MESSAGE, timestamp
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.outputs.record import Verdict
from speculative_operator.reconcile.observed.surge import explain
from speculative_operator.reconcile.report.view import View
from speculative_operator.reconcile.snapshot.pods import first_ended_by_probe, first_trouble
from speculative_operator.reconcile.snapshot.status import KnownCondition, Status

_WEIGHTS = Condition(
    ConditionType.WEIGHTS_READY, Truth.UNKNOWN, Reason.ENGINE_LOADS, "the engine loads the weights when a pod starts"
)
_MEMORY = Condition(ConditionType.MEMORY_FITS, Truth.UNKNOWN, Reason.NOT_CHECKED, "the operator does not check memory")
_OF_VERDICT = {
    Verdict.SAME: (Truth.TRUE, Reason.OUTPUTS_SAME),
    Verdict.TIES: (Truth.TRUE, Reason.OUTPUTS_TIED),
    Verdict.DIFFERENT: (Truth.FALSE, Reason.OUTPUTS_DIFFER),
}
UNDER_WAY = frozenset({Reason.INSPECTING, Reason.DOWNLOADING})
"""Reasons to wait that pass by themselves."""


def serving_conditions(view: View) -> tuple[Condition, ...]:
    """Conditions that follow from pods, Deployment and problems alone."""
    found = {one.type: one for one in view.pairing.conditions} if view.pairing is not None else {}
    return (
        _ready(view),
        _progressing(view),
        _available(view),
        _rollout_healthy(view),
        *(found.get(one.type, one) for one in (_WEIGHTS, _pair(view), _MEMORY)),
    )


def outputs_conditions(view: View) -> tuple[Condition, ...]:
    """The condition OutputsVerified: what `speculative verify` found of pods like those that run; no condition where
    nothing was looked for."""
    kind, found = ConditionType.OUTPUTS_VERIFIED, view.verified
    if not view.spec.verified:
        return ()
    if found is None:
        message = f"the annotation {names.ANNOTATION_VERIFIED} cannot be read; remove it, or run speculative verify"
        return (Condition(kind, Truth.UNKNOWN, Reason.OUTPUTS_UNREADABLE, message),)
    if {pod.template for pod in view.pods if not (pod.terminating or pod.over)} != {found.template}:
        message = f"the pods of {found.at} are no more, or not alone; run speculative verify again"
        return (Condition(kind, Truth.UNKNOWN, Reason.OUTPUTS_OUTDATED, message),)
    told = f"{found.verdict} at {found.at}: {found.prompts} prompts, {found.tokens} tokens compared"
    message = f"{told}; {found.ties} answers part at a tie, {found.different} elsewhere"
    return (Condition(kind, *_OF_VERDICT[found.verdict], message),)


def stamp(conditions: Iterable[Condition], old: Status, generation: int, now: float) -> list[dict[str, Any]]:
    """Conditions as `status.conditions`, the time of transition kept where the status is the same as in `old`."""
    return [_stamp(condition, old.condition(condition.type), generation, now) for condition in conditions]


def _stamp(condition: Condition, before: KnownCondition, generation: int, now: float) -> dict[str, Any]:
    since = before.since if before.status == condition.status.value else ""
    return {
        "type": condition.type.value,
        "status": condition.status.value,
        "reason": condition.reason.value,
        "message": condition.message[:LONGEST_MESSAGE],
        "lastTransitionTime": since or timestamp(now),
        "observedGeneration": generation,
    }


def _ready(view: View) -> Condition:
    if view.problems:
        return Condition(ConditionType.READY, Truth.FALSE, view.problems[0].reason, view.problems[0].message)
    if view.hold is not None:
        return view.hold
    hindrance = _hindrance(view)
    if hindrance is not None:
        return Condition(ConditionType.READY, Truth.FALSE, hindrance[0], _with_trouble(view, hindrance[1]))
    if view.rollout.wanted == 0:
        return Condition(ConditionType.READY, Truth.TRUE, Reason.SCALED_TO_ZERO, "spec.replicas is 0: no pod serves")
    return Condition(ConditionType.READY, Truth.TRUE, Reason.ALL_READY, _count(view))


def _hindrance(view: View) -> tuple[Reason, str] | None:
    """Reason and message of what keeps the pods from being ready; None when they are as the spec asks."""
    rollout = view.rollout
    if not rollout.exists:
        return Reason.NO_PODS, "no pod exists yet"
    if rollout.stalled:
        return Reason.ROLLOUT_STALLED, rollout.stalled
    if rollout.ready < rollout.wanted:
        return Reason.START_TIMED_OUT if first_ended_by_probe(view.pods) else Reason.PODS_NOT_READY, _count(view)
    return None if rollout.complete else (Reason.ROLLING_OUT, _count_of_updated(view))


def _progressing(view: View) -> Condition:
    kind, rollout = ConditionType.PROGRESSING, view.rollout
    if view.spec.paused:
        return Condition(kind, Truth.FALSE, Reason.PAUSED, "the annotation paused is set: the operator waits")
    if view.problems:
        return Condition(kind, Truth.FALSE, view.problems[0].reason, view.problems[0].message)
    if view.hold is not None:
        waits = Truth.TRUE if view.hold.reason in UNDER_WAY else Truth.FALSE
        return Condition(kind, waits, view.hold.reason, view.hold.message)
    if rollout.stalled:
        return Condition(kind, Truth.FALSE, Reason.ROLLOUT_STALLED, rollout.stalled)
    if rollout.exists and rollout.complete:
        return Condition(kind, Truth.FALSE, Reason.ROLLED_OUT, "all pods run the current template")
    return Condition(kind, Truth.TRUE, Reason.ROLLING_OUT, _count_of_updated(view))


def _available(view: View) -> Condition:
    kind, rollout = ConditionType.AVAILABLE, view.rollout
    if not rollout.exists:
        return Condition(kind, Truth.FALSE, Reason.NO_PODS, "no pod exists yet")
    if rollout.ready:
        reason = Reason.ALL_READY if rollout.ready >= rollout.wanted else Reason.PODS_NOT_READY
        return Condition(kind, Truth.TRUE, reason, _count(view))
    if rollout.wanted == 0:
        return Condition(kind, Truth.FALSE, Reason.SCALED_TO_ZERO, "spec.replicas is 0: no pod serves")
    return Condition(kind, Truth.FALSE, Reason.PODS_NOT_READY, _with_trouble(view, _count(view)))


def _rollout_healthy(view: View) -> Condition:
    kind, rollout = ConditionType.ROLLOUT_HEALTHY, view.rollout
    if not rollout.exists:
        return Condition(kind, Truth.UNKNOWN, Reason.NO_PODS, "no pod exists yet")
    if rollout.stuck is not None:
        return Condition(kind, Truth.FALSE, Reason.ROLLOUT_WAITS, explain(rollout.stuck))
    if rollout.stalled:
        return Condition(kind, Truth.FALSE, Reason.ROLLOUT_STALLED, _with_trouble(view, rollout.stalled))
    if rollout.complete:
        return Condition(kind, Truth.TRUE, Reason.ROLLED_OUT, "all pods run the current template")
    return Condition(kind, Truth.TRUE, Reason.ROLLING_OUT, "the Deployment is replacing its pods within the deadline")


def _pair(view: View) -> Condition:
    if not view.spec.speculates:
        message = "the verifier is served alone: no pair to compare"
        return Condition(ConditionType.PAIR_COMPATIBLE, Truth.UNKNOWN, Reason.NO_SPECULATOR, message)
    message = "the operator does not compare verifier and speculator; the engine does when it starts"
    return Condition(ConditionType.PAIR_COMPATIBLE, Truth.UNKNOWN, Reason.NOT_CHECKED, message)


def _count(view: View) -> str:
    return f"{view.rollout.ready} of {view.rollout.wanted} pods are ready"


def _count_of_updated(view: View) -> str:
    return f"{view.rollout.updated} of {view.rollout.wanted} pods run the current template"


def _with_trouble(view: View, message: str) -> str:
    trouble = first_trouble(view.pods) or view.rollout.refused
    return f"{message}; {trouble}" if trouble else message
