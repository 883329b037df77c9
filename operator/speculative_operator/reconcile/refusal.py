"""Specs that cannot be served: said in conditions and an event, while whatever runs is left alone.

`refusals` is called by `tick`; `invalid` by the shell, for an object that does not even become a DeploymentSpec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain.conditions import Condition, Truth
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import DeploymentSpec, Target
from speculative_operator.engines.base import Engine
from speculative_operator.reconcile.conditions import stamped
from speculative_operator.reconcile.events import events
from speculative_operator.reconcile.reading import mapping, mappings, text, whole
from speculative_operator.reconcile.world import Event, Outcome

_UNSEEN = "the object was refused before this could be known"


def refusals(spec: DeploymentSpec, engine: Engine) -> tuple[Condition, ...]:
    """Why `spec` cannot be served, the first reason first; empty when it can."""
    found = [
        Condition(ConditionType.READY, Truth.FALSE, refused.reason, _sentence(refused.field, refused.message))
        for refused in engine.refusals(spec)
    ]
    if spec.target is not Target.DEPLOYMENT:
        message = f"spec.target {spec.target} is not available in this release; use target: {Target.DEPLOYMENT}"
        found.insert(0, Condition(ConditionType.READY, Truth.FALSE, Reason.UNSUPPORTED_TARGET, message))
    return tuple(found)


def invalid(owner: Mapping[str, Any], message: str, now: float) -> Outcome:
    """The outcome for an object that `api.to_domain` refuses: no action, SpecInvalid, everything else as it was.

    `owner` is the object as the API server has it, `message` names field, value and remedy.
    """
    old = mapping(owner, "status")
    generation = whole(owner, "metadata", "generation")
    before = {text(one, "type"): one for one in mappings(old, "conditions")}
    conditions = [_condition(kind, before.get(kind, {}), message) for kind in ConditionType]
    status: dict[str, Any] = {key: value for key, value in old.items() if key != "conditions"}
    status |= {"conditions": stamped(conditions, old, generation, now), "observedGeneration": generation}
    told: tuple[Event, ...] = events(old, status, ())
    return Outcome((), status, told, None)


def _condition(kind: ConditionType, before: Mapping[str, Any], message: str) -> Condition:
    if kind in (ConditionType.READY, ConditionType.PROGRESSING):
        return Condition(kind, Truth.FALSE, Reason.SPEC_INVALID, message)
    try:
        return Condition(kind, Truth(text(before, "status")), Reason(text(before, "reason")), text(before, "message"))
    except ValueError:
        return Condition(kind, Truth.UNKNOWN, Reason.SPEC_INVALID, _UNSEEN)


def _sentence(field: str, message: str) -> str:
    return message if field.removeprefix("spec.") in message else f"{field}: {message}"
