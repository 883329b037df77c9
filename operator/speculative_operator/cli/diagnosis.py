"""What keeps an object from being ready or tuned, by its status: the one cause that counts, and all that is wrong.

Pure. Used by `explain`, `status`, `get` and `doctor`, so that all of them say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from speculative_operator.cli.cluster import Object, condition, mode, speculation
from speculative_operator.cli.next_steps import meaning_of, next_step
from speculative_operator.domain.reasons import ConditionType, Reason

WRONG_IF_FALSE = (
    ConditionType.PAIR_COMPATIBLE, ConditionType.MEMORY_FITS, ConditionType.WEIGHTS_READY,
    ConditionType.ROLLOUT_HEALTHY, ConditionType.READY, ConditionType.METRICS_AVAILABLE,
)  # fmt: skip
"""Conditions that say by False that something is wrong, the nearest to the cause first. False of other conditions is no
fault: a rollout that is over does not progress, and a table that is still being tuned is not converged."""
_BY_MODE = {"Static": Reason.FIXED, "Disabled": Reason.DISABLED}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about an object: its source, its reason, and what can be done."""

    source: str
    """A type of condition, or `status`, `decision`, `warning`, `annotation`, `mode`, `proposal`."""
    reason: str
    message: str
    means: str = ""
    next: str = ""

    def to_json(self) -> dict[str, str]:
        """All fields of the finding by name."""
        return {name: getattr(self, name) for name in ("source", "reason", "message", "means", "next")}


def cause_of(body: Object) -> Finding:
    """The finding that says why K is what it is: a user's order, else a fault, else the tuner's last decision."""
    if not (body.get("status") or {}).get("conditions"):
        message = "the operator has not looked at the object yet; watchNamespaces may leave its namespace out"
        return Finding("status", Reason.UNKNOWN.value, message, "", "speculative doctor")
    chosen = mode(body)
    if chosen == "Paused":
        return _finding(body, "annotation", Reason.PAUSED.value, "the annotation paused is set")
    faults = list(faults_of(body))
    refused = next((one for one in faults if one.source != ConditionType.METRICS_AVAILABLE), None)
    if refused is not None:
        return refused
    ready = condition(body, ConditionType.READY)
    if ready.get("reason") == Reason.SCALED_TO_ZERO:
        return _finding(body, ConditionType.READY, Reason.SCALED_TO_ZERO.value, str(ready.get("message", "")))
    if chosen in _BY_MODE:
        seen = speculation(body)
        return _finding(body, "mode", _BY_MODE[chosen].value, str(seen.get("message") or f"the mode is {chosen}"))
    return next(_causes_in_auto(body, faults))


def _causes_in_auto(body: Object, faults: list[Finding]) -> Iterator[Finding]:
    status, seen = body.get("status") or {}, speculation(body)
    yield from faults
    for one in status.get("warnings") or ():
        if one.get("reason") == Reason.ENGINE_VERSION_DIFFERS:  # the table of the status may not be the pods'
            yield _finding(body, "warning", one["reason"], str(one.get("message", "")))
    proposal = (status.get("rollout") or {}).get("proposal")
    if proposal:
        reason = Reason.ROLLOUT_NEEDS_APPROVAL.value
        yield _finding(body, "proposal", reason, str(proposal.get("message", "")))
    if seen.get("reason"):
        yield _finding(body, "decision", str(seen["reason"]), str(seen.get("message", "")))
    for kind in (ConditionType.METRICS_AVAILABLE, ConditionType.TUNING_CONVERGED, ConditionType.READY):
        one = condition(body, kind)
        if one and (one.get("status") == "Unknown" or kind is ConditionType.READY):
            yield _finding(body, kind, str(one.get("reason", "")), str(one.get("message", "")))
    yield Finding("status", Reason.UNKNOWN.value, "the status says nothing of tuning", "", "speculative doctor")


def faults_of(body: Object) -> Iterator[Finding]:
    """Yield a finding for each condition that says that something is wrong; one message once, though several conditions
    carry it."""
    found: set[str] = set()
    for kind in WRONG_IF_FALSE:
        one = condition(body, kind)
        message = str(one.get("message", ""))
        if one.get("status") == "False" and message not in found:
            found.add(message)
            yield _finding(body, kind, str(one.get("reason", "")), message)
    late = condition(body, ConditionType.TUNING_CONVERGED)
    if late.get("reason") == Reason.TABLE_NOT_IN_FORCE:
        yield _finding(body, ConditionType.TUNING_CONVERGED, Reason.TABLE_NOT_IN_FORCE, str(late.get("message", "")))


def warnings_of(body: Object) -> Iterator[Finding]:
    """Yield a finding for each warning of the status."""
    for one in (body.get("status") or {}).get("warnings") or ():
        yield _finding(body, "warning", str(one.get("reason", "")), str(one.get("message", "")))


def _finding(body: Object, source: str, reason: str, message: str) -> Finding:
    meta = body["metadata"]
    step = next_step(reason, str(meta["name"]), str(meta.get("namespace", "default")))
    return Finding(str(source), reason, message, meaning_of(reason), step)
