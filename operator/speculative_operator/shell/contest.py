"""Ends the repairs of a Deployment that another writer keeps changing back, because each repair would replace pods.
Used by `writes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.conditions import Condition, Truth
from speculative_operator.domain.reasons import ConditionType, Reason

MOST_REPAIRS = 5
"""Most equal applies of a Deployment in a row, the last one a repair: a writer who undid so many does not stop by
himself."""


def condition(action: ApplyChild, found: Mapping[str, Any]) -> Condition:
    """The condition that tells that the repairs have ended. `found`: the Deployment with its managed fields."""
    kind, name = action.manifest["kind"], action.manifest["metadata"]["name"]
    message = (
        f"{action.why}. The operator restored it {MOST_REPAIRS} times, and each time it was changed again, by "
        f"{_writers(found)}; each restore replaces pods, so the operator stops. Write the change into spec.template of "
        f"this object, or stop the other writer of {kind} {name} and set the annotation "
        f"{names.ANNOTATION_ADOPT} to a new value"
    )
    return Condition(ConditionType.READY, Truth.FALSE, Reason.CHANGED_BACK, message)


def _writers(found: Mapping[str, Any]) -> str:
    """Names of the last three other managers that wrote the Deployment, writes of its status aside, the latest
    first."""
    entries = [
        one
        for one in found["metadata"].get("managedFields") or ()
        if one.get("manager") != names.FIELD_MANAGER and not one.get("subresource")
    ]
    entries.sort(key=lambda one: str(one.get("time") or ""), reverse=True)
    told = [f"{one.get('manager')} (last at {one.get('time')})" for one in entries[:3]]
    return ", ".join(told) or "a webhook, or a writer that uses the operator's name"
