"""Conditions about speculation: MetricsAvailable, SpeculationActive, TuningConverged. Called by `status`.

They change with transitions, not with every window: short lack of evidence leaves what was known standing.
"""

from __future__ import annotations

from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.formats import LONGEST_MESSAGE
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import EXPLANATIONS, ConditionType, Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.reconcile.report.engine_report import behind
from speculative_operator.reconcile.report.view import View
from speculative_operator.reconcile.snapshot.status import KnownCondition, Status
from speculative_operator.tuner.quorum import Sight, sight

_HARMLESS = frozenset({Reason.IDLE, Reason.STARTING, Reason.COLLECTING, Reason.COUNTER_RESET})
"""Gaps that come and go in a healthy deployment."""
_CONVERGED = frozenset(
    {Reason.TUNED, Reason.WITHIN_MARGIN, Reason.FIXED, Reason.SLO, Reason.DEAD_WEIGHT, Reason.TARGET_OUT_OF_REACH}
)
"""Reasons of decisions without a change: the active table is the one to keep."""
_CHANGES = frozenset(
    {
        Reason.FASTER, Reason.HIGH_CONCURRENCY, Reason.LOW_ACCEPTANCE, Reason.GUARD, Reason.SLO, Reason.RESUMED,
        Reason.TARGET_OUT_OF_REACH, Reason.METRICS_LOST, Reason.METRICS_BACK,
    }
)  # fmt: skip
"""Reasons of changes of the table, which say why speculation is as it is for as long as that table is active."""
_NOTHING_TO_TUNE = (Reason.NO_SPECULATOR, Reason.DISABLED, Reason.UNSUPPORTED_BY_ENGINE, Reason.FIXED)
_MOVING = _CHANGES | {Reason.RECENTLY_CHANGED}
_OF_TABLES = (ConditionType.SPECULATION_ACTIVE, ConditionType.TUNING_CONVERGED)
"""Conditions that speak of the active table, unless a pod is known to run another."""
_BEHIND = Reason.TABLE_NOT_IN_FORCE
MOST_NAMED = 3
"""Pods without figures that a message names."""


def tuning_conditions(view: View, old: Status, now: float) -> tuple[Condition, ...]:
    """The three conditions about speculation; those in `old`, the status before, stay until something contradicts
    them."""
    if view.kept:
        return _standing(view, old)
    active, converged = (old.condition(kind) for kind in _OF_TABLES)
    late = _late(view, old, now, active)
    return (
        _metrics(view, old.condition(ConditionType.METRICS_AVAILABLE)),
        Condition(_OF_TABLES[0], Truth.UNKNOWN, _BEHIND, late) if late else _active(view, _unless_late(active)),
        Condition(_OF_TABLES[1], Truth.FALSE, _BEHIND, late) if late else _convergence(view, _unless_late(converged)),
    )


def _late(view: View, old: Status, now: float, before: KnownCondition) -> str:
    """A sentence about a pod that serves without the active table, or empty; without a new observation the sentence of
    before stays, if it is about this table."""
    if view.observation is not None and not view.active.suspended_until:
        return behind(view, old, now)
    same = old.speculation.version == view.active.version and view.active.table is not None
    return before.message if same and before.why is _BEHIND else ""


def _unless_late(before: KnownCondition) -> KnownCondition:
    """The condition of before; empty where it was about a pod that was behind: that is over, and says nothing of the
    table."""
    return KnownCondition() if before.why is _BEHIND else before


def metrics_gap(observation: Observation, seen: Sight) -> Gap | None:
    """The gap that says which metrics are missing; None when there are enough to tune on."""
    if observation.gap is not None:
        return observation.gap
    if seen.windows and seen.enough:
        return None
    gaps = sorted((seen.left_out or observation.gaps).items())
    if not gaps:
        return None
    pod, gap = next(((pod, gap) for pod, gap in gaps if gap.reason not in _HARMLESS), gaps[0])
    whose = "" if len(observation.pods) == 1 else f"{len(gaps)} of {len(observation.pods)} pods, first "
    return Gap(gap.reason, f"{whose}{pod}: {gap.message}")


def _without(seen: Sight) -> str:
    """The message of MetricsAvailable while there are enough metrics, with the pods that are left out."""
    named = [f"{pod} ({gap.reason.value})" for pod, gap in sorted(seen.left_out.items()) if gap.reason not in _HARMLESS]
    if not named:
        return EXPLANATIONS[Reason.METRICS_FOUND]
    rest = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"{EXPLANATIONS[Reason.METRICS_FOUND]} Left out: {', '.join(named[:MOST_NAMED])}{rest}"


def _standing(view: View, old: Status) -> tuple[Condition, ...]:
    """The conditions while nothing is decided: metrics as observed, the others as they were."""
    reason = view.problems[0].reason if view.problems else Reason.PAUSED
    kept = (_keep(kind, old.condition(kind), reason, EXPLANATIONS[reason]) for kind in _OF_TABLES)
    return (_metrics(view, old.condition(ConditionType.METRICS_AVAILABLE)), *kept)


def _metrics(view: View, before: KnownCondition) -> Condition:
    kind, observation = ConditionType.METRICS_AVAILABLE, view.observation
    if observation is None:
        if any(pod.ready for pod in view.pods):
            return _repeat(kind, before, Reason.STARTING, "there is no window of metrics yet")
        return Condition(kind, Truth.UNKNOWN, Reason.NO_PODS, "no pod is ready, so there are no metrics yet")
    seen = view.sight or sight(observation, {}, None, observation.time)
    gap = metrics_gap(observation, seen)
    if gap is None:
        if not observation.pods:
            return Condition(kind, Truth.UNKNOWN, Reason.NO_PODS, "no pod is ready, so there are no metrics yet")
        direct = f" The operator reads them from the pods: {observation.direct}" if observation.direct else ""
        return Condition(kind, Truth.TRUE, Reason.METRICS_FOUND, f"{_without(seen)}{direct}"[:LONGEST_MESSAGE])
    if gap.reason in _HARMLESS:
        return _keep(kind, before, gap.reason, gap.message)
    return Condition(kind, Truth.FALSE, gap.reason, f"{gap.message}. The tuner waits until there are metrics")


def _active(view: View, before: KnownCondition) -> Condition:
    kind, table = ConditionType.SPECULATION_ACTIVE, view.active.table
    reason = _why_disabled(view)
    if reason is not None or table is None:
        reason = reason or Reason.DISABLED
        told = next((one.message for one in view.notices if one.reason is reason), EXPLANATIONS[reason])
        return Condition(kind, Truth.FALSE, reason, told)
    if view.active.removed:
        return Condition(kind, Truth.FALSE, Reason.DEAD_WEIGHT, _dead_weight(view, before))
    active = Truth.TRUE if table.max_k > 0 else Truth.FALSE
    told = f"K by scheduled requests: {table}{_off(view) if 0 in table.ks else ''}"
    return Condition(kind, active, _why_active(view, active, before), told)


def _off(view: View) -> str:
    """The words on K 0 where pods skip the speculator; else empty."""
    return "; at K 0 it is off: nothing of the speculator runs" if view.skips else ""


def _why_active(view: View, active: Truth, before: KnownCondition) -> Reason:
    """Why the active table drafts or does not: the reason of the last change, as long as nothing else is known."""
    if view.spec.speculation.mode is Mode.STATIC:
        return Reason.FIXED
    if view.changed and view.decision is not None:
        return view.decision.reason
    known = before.why
    if before.status == active.value and known is not None and known in _CHANGES | {Reason.TUNED}:
        return known
    return Reason.TUNED if active is Truth.TRUE else Reason.LOW_ACCEPTANCE


def _dead_weight(view: View, before: KnownCondition) -> str:
    """Why the speculator was removed, in the tuner's words and with the figures it had then: later ones are no news."""
    if view.changed and view.decision is not None:
        return view.decision.message
    return before.message if before.why is Reason.DEAD_WEIGHT else EXPLANATIONS[Reason.DEAD_WEIGHT]


def _convergence(view: View, before: KnownCondition) -> Condition:
    kind, decision = ConditionType.TUNING_CONVERGED, view.decision
    fixed = _why_disabled(view) or (Reason.FIXED if view.spec.speculation.mode is Mode.STATIC else None)
    if fixed is not None:
        return Condition(kind, Truth.TRUE, fixed, EXPLANATIONS[fixed])
    if view.changed and decision is not None:
        return Condition(kind, Truth.FALSE, decision.reason, EXPLANATIONS[decision.reason])
    if decision is None:
        before = KnownCondition() if before.why in _NOTHING_TO_TUNE else before
        return _repeat(kind, before, Reason.STARTING, EXPLANATIONS[Reason.STARTING])
    return _verdict(kind, view, decision.reason, before)


def _verdict(kind: ConditionType, view: View, said: Reason, before: KnownCondition) -> Condition:
    """The condition TuningConverged where the tuner's decision, with the reason `said`, changed nothing."""
    if said in _CONVERGED:
        plain = Reason.TARGET_OUT_OF_REACH if said is Reason.TARGET_OUT_OF_REACH else Reason.TUNED
        reason = Reason.DEAD_WEIGHT if view.active.removed else plain
        return Condition(kind, Truth.TRUE, reason, EXPLANATIONS[reason])
    if said in _MOVING or said in (Reason.RECOMMENDED, Reason.ROLLOUT_NEEDS_APPROVAL):
        return Condition(kind, Truth.FALSE, said, EXPLANATIONS[said])
    return _keep(kind, before, _lack(said), EXPLANATIONS[_lack(said)])


def _why_disabled(view: View) -> Reason | None:
    """Why pods have no table: they have no speculator, by the spec, its mode, or a release of the engine that is older
    than the method. None where they have one."""
    if view.spec.speculator is None:
        return Reason.NO_SPECULATOR
    if view.spec.speculation.mode is not Mode.DISABLED and view.active.table is not None:
        return None
    older = any(one.reason is Reason.UNSUPPORTED_BY_ENGINE for one in view.notices)
    return Reason.UNSUPPORTED_BY_ENGINE if older else Reason.DISABLED


def _lack(reason: Reason) -> Reason:
    """The reason shown for a lack of evidence: Starting, Collecting, or Holding for all others, which change from
    window to window."""
    return reason if reason in (Reason.STARTING, Reason.COLLECTING) else Reason.HOLDING


def _keep(kind: ConditionType, before: KnownCondition, reason: Reason, message: str) -> Condition:
    """Keeps the condition of before until something contradicts it; Unknown with `reason` where there was none."""
    known = before.as_condition(kind)
    if known is not None and known.status is not Truth.UNKNOWN:
        return known
    return Condition(kind, Truth.UNKNOWN, reason, message)


def _repeat(kind: ConditionType, before: KnownCondition, reason: Reason, message: str) -> Condition:
    """The condition of before, Unknown included, where there is no new observation: most reconciles bring none, and a
    condition that changed with each of them would be written with each of them."""
    known = before.as_condition(kind)
    if known is not None and known.status is Truth.UNKNOWN and known.reason is not Reason.NO_PODS:
        return known
    return _keep(kind, before, reason, message)
