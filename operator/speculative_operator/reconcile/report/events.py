"""Events: transitions between the status before and the one after, and what was done. Called by `tick`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from speculative_operator.domain.actions import Action, ApplyChild, DeleteChild, Truth
from speculative_operator.domain.reading import conditions_of, mapping, mappings, text, whole
from speculative_operator.domain.reasons import ConditionType, Reason, reason_of
from speculative_operator.reconcile.report.figures import newest
from speculative_operator.reconcile.world import Event

NORMAL, WARNING = "Normal", "Warning"
_WATCHED = (ConditionType.READY, ConditionType.METRICS_AVAILABLE, ConditionType.ROLLOUT_HEALTHY)
"""Conditions whose transitions are events; the others follow from these or are told by the history."""
_OF_PAIRS = (ConditionType.PAIR_COMPATIBLE, ConditionType.MEMORY_FITS, ConditionType.WEIGHTS_READY)
"""Conditions whose every new reason is an event, except reasons that say that nothing was checked."""
_NOT_LOOKED = frozenset({Reason.NOT_CHECKED, Reason.NO_SPECULATOR, Reason.ENGINE_LOADS})
_PROGRESS = frozenset({Reason.INSPECTING, Reason.DOWNLOADING})
_WELL = frozenset({Reason.PAIR_MATCHES, Reason.MEMORY_SUFFICES, Reason.WEIGHTS_CACHED}) | _PROGRESS
"""Reasons of the conditions in `_OF_PAIRS` whose events are Normal."""
_REFUSALS = frozenset(
    {
        Reason.SPEC_INVALID, Reason.RENDER_INVALID, Reason.UNSUPPORTED_BY_ENGINE, Reason.UNSUPPORTED_TARGET,
        Reason.UNSUPPORTED_SOURCE, Reason.NAME_CONFLICT, Reason.FORBIDDEN, Reason.CHANGED_BACK,
        Reason.ROUTE_UNSUPPORTED,
    }
)  # fmt: skip
_HARMLESS = frozenset(
    {
        Reason.LIVE_UNPROVEN,
        Reason.BETTER_KNOWN,
        Reason.ROLLOUT_NEEDS_APPROVAL,
        Reason.SCALED_ELSEWHERE,
    }
)
"""Warnings of the status that harm nobody: their events are Normal."""
_PICK = ("verifier", "speculator", "method")
"""Fields of `status.picked`: where one differs, it is another pick."""
_TOLD = frozenset({Reason.REPAIRED, Reason.SPEC_CHANGED, Reason.ENGINE_VERSION_DIFFERS})
"""Reasons of changes of children that no other event tells."""


def events(old: Mapping[str, Any], new: Mapping[str, Any], actions: Sequence[Action]) -> tuple[Event, ...]:
    """The events of one reconcile, the most important first: transitions from status `old` to `new`, and the
    actions."""
    return (
        *_transitions(old, new),
        *_pick_events(old, new),
        *_warning_events(old, new),
        *_decision_events(old, new),
        *_leaving_events(old, new),
        *_action_events(actions),
    )


def _transitions(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    before, after = conditions_of(old), conditions_of(new)
    of_pairs = {text(after.get(kind, {}), "reason") for kind in _OF_PAIRS}
    for kind in _WATCHED:
        event = _transition(before.get(kind, {}), after.get(kind, {}))
        if event is not None and not (event.type is WARNING and event.reason.value in of_pairs):
            yield event
    for kind in _OF_PAIRS:
        yield from _of_pair(before.get(kind, {}), after.get(kind, {}))
    was, now = (text(conditions.get(ConditionType.PROGRESSING, {}), "reason") for conditions in (before, after))
    if now == Reason.PAUSED.value != was:
        yield Event(NORMAL, Reason.PAUSED, text(after[ConditionType.PROGRESSING], "message"))
    if was == Reason.PAUSED.value != now and now:
        yield Event(NORMAL, Reason.UNPAUSED, "the annotation paused is gone: the operator goes on")


def _of_pair(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    """One event for each new reason of a condition of the pair, and for each new way in which a pair does not fit;
    figures alone make no event. That a Job inspects the pair is told by PairCompatible, not again by WeightsReady."""
    reason = reason_of(text(after, "reason"))
    if reason is None or reason in _NOT_LOOKED:
        return
    weights = text(after, "type") == ConditionType.WEIGHTS_READY.value
    if weights and reason in (Reason.INSPECTING, Reason.PAIR_MISMATCH):
        return
    same = text(before, "reason") == reason.value
    if reason is Reason.MEMORY_SUFFICES and text(before, "reason") != Reason.MEMORY_SHORT.value:
        return  # no news, but after it did not
    if same and (reason in _PROGRESS or reason in _WELL or text(before, "message") == text(after, "message")):
        return
    message = f"{text(after, 'type')}={text(after, 'status')}: {text(after, 'message')}"
    yield Event(NORMAL if reason in _WELL else WARNING, reason, message)


def _transition(before: Mapping[str, Any], after: Mapping[str, Any]) -> Event | None:
    was, now = text(before, "status"), text(after, "status")
    reason = reason_of(text(after, "reason"))
    if reason is None:
        return None
    message = f"{text(after, 'type')}={now}: {text(after, 'message')}"
    if now == Truth.TRUE.value and was in (Truth.FALSE.value, Truth.UNKNOWN.value):
        # The first samples of a new deployment are no news; their return is.
        if text(after, "type") != ConditionType.READY.value and was == Truth.UNKNOWN.value:
            return None
        return Event(NORMAL, reason, message)
    refused = reason in _REFUSALS and (
        text(before, "reason") != reason.value or text(before, "message") != text(after, "message")
    )
    if now == Truth.FALSE.value and (refused or was in (Truth.TRUE.value, Truth.UNKNOWN.value)):
        return Event(WARNING, reason, message)
    return None


def _pick_events(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    """The event of a new pick from the catalogue; where nothing was picked, a condition tells it."""
    before, after = (mapping(status, "picked") for status in (old, new))
    if text(after, "method") and any(text(before, name) != text(after, name) for name in _PICK):
        yield Event(NORMAL, Reason.PICKED, text(after, "reason"))


def _warning_events(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    known = [(text(one, "reason"), text(one, "message")) for one in mappings(old, "warnings")]
    for one in mappings(new, "warnings"):
        reason, message = reason_of(text(one, "reason")), text(one, "message")
        if reason is not None and (reason.value, message) not in known:
            yield Event(NORMAL if reason in _HARMLESS else WARNING, reason, message)


def _decision_events(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    last = newest(new)
    reason = reason_of(text(last, "reason"))
    if reason is None or last == newest(old):
        return
    version = whole(new, "speculation", "tableVersion")
    label = "proposed table" if reason is Reason.RECOMMENDED else f"table {version}"
    yield Event(
        WARNING if reason in (Reason.GUARD, Reason.METRICS_LOST, Reason.ROLLOUT_UNDONE) else NORMAL,
        reason,
        f"{label}: {text(last, 'from')} -> {text(last, 'to')}: {text(last, 'message')}",
        decision=True,
    )


def _leaving_events(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    """One event for each former pair whose pods get another table."""
    before = {text(one, "pair"): whole(one, "tableVersion") for one in mappings(old, "leaving")}
    for one in mappings(new, "leaving"):
        pair, version, reason = text(one, "pair"), whole(one, "tableVersion"), reason_of(text(one, "reason"))
        if reason is not None and before.get(pair, version) != version:
            message = f"table {version} for the pods of pair {pair}, which are being replaced: {one.get('table')}"
            yield Event(WARNING if reason is Reason.GUARD else NORMAL, reason, message, decision=True)


def _action_events(actions: Sequence[Action]) -> Iterator[Event]:
    created = [_name(one) for one in actions if isinstance(one, ApplyChild) and one.reason is Reason.CREATED]
    if created:
        yield Event(NORMAL, Reason.CREATED, f"created {', '.join(created)}")
    for action in actions:
        if isinstance(action, DeleteChild):
            if action.kind == "Job":
                continue  # what it brought was told
            yield Event(NORMAL, Reason.SPEC_CHANGED, f"deleted {action.why}")
        elif isinstance(action, ApplyChild) and action.reason in _TOLD:
            kind = WARNING if action.reason is Reason.REPAIRED else NORMAL
            yield Event(kind, action.reason, action.why)


def _name(action: ApplyChild) -> str:
    return f"{action.manifest['kind']} {action.manifest['metadata']['name']}"
