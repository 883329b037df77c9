"""Events: transitions between the status before and the one after, and what was done. Called by `tick`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, DeleteChild, Truth
from speculative_operator.domain.reasons import ConditionType, Reason, reason_of
from speculative_operator.reconcile.snapshot.canaries import Phase
from speculative_operator.reconcile.snapshot.status import KnownCondition, Status
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
        Reason.DRAFTS_SUSPENDED,
        Reason.BETTER_KNOWN,
        Reason.ROLLOUT_NEEDS_APPROVAL,
        Reason.SCALED_ELSEWHERE,
    }
)
"""Warnings of the status that harm nobody: their events are Normal."""
_TOLD = frozenset({Reason.REPAIRED, Reason.SPEC_CHANGED})
"""Reasons of changes of children that no other event tells."""


def events(old: Status, new: Status, actions: Sequence[Action]) -> tuple[Event, ...]:
    """The events of one reconcile, the most important first: transitions from status `old` to `new`, and the
    actions."""
    return (
        *_transitions(old, new),
        *_pick_events(old, new),
        *_warning_events(old, new),
        *_decision_events(old, new),
        *_canary_events(old, new),
        *_measured_events(old, new),
        *_leaving_events(old, new),
        *_action_events(actions),
    )


def _transitions(old: Status, new: Status) -> Iterator[Event]:
    of_pairs = {new.condition(kind).why for kind in _OF_PAIRS}
    for kind in _WATCHED:
        event = _transition(old.condition(kind), new.condition(kind))
        if event is not None and not (event.type is WARNING and event.reason in of_pairs):
            yield event
    for kind in _OF_PAIRS:
        yield from _of_pair(old.condition(kind), new.condition(kind))
    was, now = (one.condition(ConditionType.PROGRESSING) for one in (old, new))
    if now.why is Reason.PAUSED is not was.why:
        yield Event(NORMAL, Reason.PAUSED, now.message)
    if was.why is Reason.PAUSED is not now.why and now.reason:
        yield Event(NORMAL, Reason.UNPAUSED, "the annotation paused is gone: the operator goes on")


def _of_pair(before: KnownCondition, after: KnownCondition) -> Iterator[Event]:
    """One event for each new reason of a condition of the pair, and for each new way in which a pair does not fit;
    figures alone make no event. That a Job inspects the pair is told by PairCompatible, not again by WeightsReady."""
    reason = after.why
    if reason is None or reason in _NOT_LOOKED:
        return
    weights = after.type == ConditionType.WEIGHTS_READY.value
    if weights and reason in (Reason.INSPECTING, Reason.PAIR_MISMATCH):
        return
    if reason is Reason.MEMORY_SUFFICES and before.why is not Reason.MEMORY_SHORT:
        return  # no news, but after it did not
    if before.why is reason and (reason in _WELL or before.message == after.message):
        return
    yield Event(NORMAL if reason in _WELL else WARNING, reason, _sentence(after))


def _transition(before: KnownCondition, after: KnownCondition) -> Event | None:
    was, now, reason = before.status, after.status, after.why
    if reason is None:
        return None
    if now == Truth.TRUE.value and was in (Truth.FALSE.value, Truth.UNKNOWN.value):
        # The first samples of a new deployment are no news; their return is.
        if after.type != ConditionType.READY.value and was == Truth.UNKNOWN.value:
            return None
        return Event(NORMAL, reason, _sentence(after))
    refused = reason in _REFUSALS and (before.why is not reason or before.message != after.message)
    if now == Truth.FALSE.value and (refused or was in (Truth.TRUE.value, Truth.UNKNOWN.value)):
        return Event(WARNING, reason, _sentence(after))
    return None


def _sentence(condition: KnownCondition) -> str:
    return f"{condition.type}={condition.status}: {condition.message}"


def _pick_events(old: Status, new: Status) -> Iterator[Event]:
    """The event of a new pick from the catalogue; where nothing was picked, a condition tells it."""
    before, after = old.picked, new.picked
    if after is None or after.row is None:
        return
    if before is None or (before.verifier, before.key) != (after.verifier, after.key):
        yield Event(NORMAL, Reason.PICKED, after.reason)


def _warning_events(old: Status, new: Status) -> Iterator[Event]:
    for told in new.warnings:
        reason, message = reason_of(told[0]), told[1]
        if reason is not None and told not in old.warnings:
            yield Event(NORMAL if reason in _HARMLESS else WARNING, reason, message)


def _decision_events(old: Status, new: Status) -> Iterator[Event]:
    last, reason = new.last, reason_of(new.last.reason)
    if reason is None or last == old.last:
        return
    label = "proposed table" if reason is Reason.RECOMMENDED else f"table {new.speculation.version}"
    yield Event(
        WARNING if reason in (Reason.GUARD, Reason.METRICS_LOST, Reason.ROLLOUT_UNDONE) else NORMAL,
        reason,
        f"{label}: {last.before} -> {last.after}: {last.message}",
        decision=True,
    )


def _canary_events(old: Status, new: Status) -> Iterator[Event]:
    """One event for each step of a canary's analysis, and for its end. That it waits, a warning tells."""
    before, after = old.canary, new.canary
    if after is None or after.phase is Phase.WAITING:
        return
    if before is None or (before.of, before.phase, before.step) != (after.of, after.phase, after.step):
        yield Event(WARNING if after.phase is Phase.TAKEN_BACK else NORMAL, after.reason, after.message)


def _measured_events(old: Status, new: Status) -> Iterator[Event]:
    """One event for each candidate, for what became of it, and for each new cause for which none is started."""
    before, after = old.measured, new.measured
    if after is None or (before is not None and (before.reason, before.running) == (after.reason, after.running)):
        return
    if after.running is None or before is None or before.running is None:
        yield Event(NORMAL, after.reason, after.message)


def _leaving_events(old: Status, new: Status) -> Iterator[Event]:
    """One event for each former pair whose pods get another table."""
    before = {one.pair: one.version for one in old.leaving}
    for one in new.leaving:
        reason = reason_of(one.reason)
        if reason is not None and before.get(one.pair, one.version) != one.version:
            table = f"table {one.version} for the pods of pair {one.pair}, which are being replaced"
            kind = WARNING if reason is Reason.GUARD else NORMAL
            yield Event(kind, reason, f"{table}: {one.table.rows()}", decision=True)


def _action_events(actions: Sequence[Action]) -> Iterator[Event]:
    new = [one.manifest for one in actions if isinstance(one, ApplyChild) and one.reason is Reason.CREATED]
    if new:
        created = ", ".join(f"{one['kind']} {one['metadata']['name']}" for one in new)
        yield Event(NORMAL, Reason.CREATED, f"created {created}")
    for action in actions:
        if isinstance(action, DeleteChild):
            if action.kind in ("Job", names.KIND):
                continue  # what it brought was told
            yield Event(NORMAL, Reason.SPEC_CHANGED, f"deleted {action.why}")
        elif isinstance(action, ApplyChild) and action.reason in _TOLD:
            kind = WARNING if action.reason is Reason.REPAIRED else NORMAL
            yield Event(kind, action.reason, action.why)
