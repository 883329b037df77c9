"""`status.speculation`, the active table and the figures at the current load, and `status.decisions`, its last changes.
Called by `status`.

Unknown figures are left out. Without a new observation the old figures stay, unless no pod is ready. Only decisions
that changed the table, or would have in mode Recommend, are recorded; windows that confirm the table are not, nor are
other trials with the same table: they change nothing that stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speculative_operator.domain import formats
from speculative_operator.domain.decision import Basis, Estimate, Interval, State
from speculative_operator.domain.formats import moment, timestamp
from speculative_operator.domain.observation import Observation, PodWindow
from speculative_operator.domain.reasons import EXPLANATIONS, Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import Trial
from speculative_operator.reconcile.report.engine_report import table_since
from speculative_operator.reconcile.report.view import View
from speculative_operator.reconcile.snapshot.status import DECISIONS_KEPT, Change, Status
from speculative_operator.reconcile.table.active_table import NO_TABLE

LONGEST_TRIES = 1000


def speculation_status(view: View, old: Status, now: float) -> dict[str, Any]:
    """The block `status.speculation`, without unknown figures."""
    table, speculator = view.active.table, view.spec.speculator
    block: dict[str, Any] = {
        "method": speculator.method.value if speculator and view.spec.speculates else None,
        "actuator": view.actuator.value,
        "table": table.rows() if table is not None else None,
        "tableVersion": view.active.version or None,
        "tableText": view.active.text if table is not None else None,
        "tableSince": timestamp(table_since(view, old, now)) if table is not None else None,
        "speculatorRemoved": view.active.removed or None,
        "skips": view.skips or None,
        "rowsVersion": view.active.rows_version or None,
        "tries": _trials_text(view.active.trials),
    }
    moving = _moving(view, old.speculation.figures)
    return {key: value for key, value in (block | moving).items() if value not in (None, "")}


def _trials_text(trials: tuple[Trial, ...]) -> str:
    """The trials in few words: neighbouring loads with the same K become one trial, with the larger share."""
    joined: list[Trial] = []
    for one in trials:
        last = joined[-1] if joined else None
        if last is not None and (last.last + 1, last.ks) == (one.first, one.ks):
            joined[-1] = replace(last, last=one.last, share=max(last.share, one.share))
        else:
            joined.append(one)
    return ", ".join(map(str, joined))[:LONGEST_TRIES]


def _moving(view: View, before: Mapping[str, Any]) -> dict[str, Any]:
    if view.observation is None:
        kept = before if any(pod.ready for pod in view.pods) else {}
        return {"state": _resting(view), "k": _k(view, None)} | {**kept} | _table_figures(view)
    estimate = estimate_of(view, view.observation)
    return {
        "state": _state(view),
        "k": "" if _blind(view) and not _constant(view) else _k(view, estimate.concurrency),
        "reason": view.decision.reason.value if view.decision is not None else "",
        "message": view.decision.message[:1000] if view.decision is not None else "",
        "observedAt": timestamp(view.observation.time),
        "proposedTable": view.proposed.rows() if view.proposed is not None else None,
        "gainPercent": formats.whole_percent(estimate.gain_percent),
        "removalGainPercent": formats.whole_percent(estimate.removal_gain_percent),
        **numbers(estimate),
        "costPer1kTokens": formats.money(estimate.cost_per_thousand_tokens),
    }


def numbers(estimate: Estimate) -> dict[str, str]:
    """The figures of an estimate as texts; an unknown figure is an empty string."""
    return {
        "acceptanceRate": formats.share(estimate.acceptance_rate),
        "acceptanceLength": formats.number(estimate.acceptance_length, 2),
        "concurrency": formats.number(estimate.concurrency),
        "tpot": formats.milliseconds(estimate.tpot_seconds),
        "tpotOff": formats.milliseconds(estimate.tpot_off_seconds),
        "tokensPerSecond": formats.number(estimate.tokens_per_second, 0),
        "gainBasis": estimate.gain_basis.value if estimate.gain_basis is not None else "",
        **_interval("gain", estimate.gain_percent, _mark(estimate)),
        **_interval("proposedGain", estimate.proposed_gain_percent, "~"),
        **_interval("removalGain", estimate.removal_gain_percent, "~"),
    }


def _mark(estimate: Estimate) -> str:
    """What stands before a gain that nobody measured."""
    return "" if estimate.gain_basis is Basis.MEASURED else "~"


def _interval(name: str, percent: Interval | None, mark: str = "") -> dict[str, str]:
    """A gain, and the interval that it lies in, as texts."""
    middle = formats.signed_percent(percent.mid if percent is not None else None)
    return {name: middle and mark + middle, f"{name}Range": formats.between(percent)}


def _table_figures(view: View) -> dict[str, Any]:
    """Figures that follow from the table alone, where the spec has just changed it; else empty."""
    if view.active.why in (None, Reason.TRIES_CHANGED) or view.active.table is None:
        return {}
    return {"k": _k(view, None), "state": _resting(view)}


def _state(view: View) -> str:
    """The state of speculation as the tuner has it; but whether pods have a speculator follows from what they are made
    of."""
    if view.decision is None or view.active.removed:
        return _resting(view)
    state = view.decision.state
    return (State.HOLDING if state is State.REMOVED and view.active.table is not None else state).value


def _resting(view: View) -> str:
    """The state of speculation while there is no decision of the tuner."""
    table = view.active.table
    if table is None or view.active.removed:
        return State.REMOVED.value
    if view.active.suspended_until:
        return State.OFF.value
    if view.spec.speculation.mode is Mode.STATIC:
        return (State.ON if table.max_k > 0 else State.OFF).value
    return State.HOLDING.value


def _k(view: View, concurrency: float | None) -> str:
    """K of the active table at the load `concurrency`; at one request while the load is unknown. `0` for removal
    and while drafts are suspended, empty without a table."""
    table, load = view.active.table, formats.showable(concurrency)
    if view.active.removed or view.active.suspended_until:
        return "0"
    return str(table.k_at(max(1.0, load or 1.0))) if table is not None else ""


def _blind(view: View) -> bool:
    return view.observation is None or view.observation.gap is not None or not view.observation.windows


def _constant(view: View) -> bool:
    table = view.active.table
    return table is None or view.active.removed or len(table.ks) == 1


def estimate_of(view: View, observation: Observation) -> Estimate:
    """The tuner's figures, with the cost; where the tuner was not asked, the figures that the windows give by
    themselves."""
    asked = view.decision is not None and view.active.table is not None
    estimate = view.decision.estimate if view.decision is not None and asked else _measure(observation)
    return replace(estimate, cost_per_thousand_tokens=_cost(view.spec.accelerator.replica_cost, estimate))


def _measure(observation: Observation) -> Estimate:
    """The estimate from the windows alone, summed over pods, where no tuner runs."""
    windows = list(observation.windows.values())
    steps, requests = _sum(windows, "steps"), _sum(windows, "decode_request_steps")
    generated, first = _sum(windows, "generated_tokens"), _sum(windows, "first_tokens")
    decoded = generated - first
    if not (steps > 0 and requests > 0 and decoded > 0):
        return Estimate()
    rate = sum(window.generated_tokens / window.seconds for window in windows if window.seconds > 0)
    return Estimate(
        concurrency=(requests + first) / steps,
        tpot_seconds=_sum(windows, "step_seconds") / decoded,
        tokens_per_second=rate,
        replicas=len(windows),
    )


def _sum(windows: list[PodWindow], name: str) -> float:
    return float(sum(getattr(window, name) for window in windows))


def _cost(hourly: float | None, estimate: Estimate) -> float | None:
    """Cost of a thousand output tokens: replicas x `hourly`, the cost of each / tokens an hour x 1000."""
    rate = formats.showable(estimate.tokens_per_second)
    return hourly * estimate.replicas / (rate * 3.6) if hourly is not None and rate and rate > 0 else None


def decisions(view: View, old: Status, now: float) -> list[dict[str, Any]]:
    """The history with the change of this reconcile, if there was one."""
    entry = _entry(view, old.last, now)
    return [*((entry,) if entry is not None else ()), *map(dict, old.decisions)][:DECISIONS_KEPT]


def _entry(view: View, last: Change, now: float) -> dict[str, Any] | None:
    active, decision = view.active, view.decision
    if view.changed and decision is not None:
        reason, message = decision.reason, decision.message
    elif active.why not in (None, Reason.TRIES_CHANGED) and not active.removed:
        reason, message = active.why, EXPLANATIONS[active.why]
    elif decision is not None and _newly_proposed(view, last):
        return _record(now, str(active.table), str(view.proposed), decision.reason, decision.message)
    else:
        return None
    version = {"tableVersion": active.version} if active.table is not None else {}
    return _record(now, str(active.before or NO_TABLE), active.text, reason, message) | version


def _newly_proposed(view: View, last: Change) -> bool:
    if view.spec.speculation.mode is not Mode.RECOMMEND or view.proposed is None:
        return False
    return (last.reason, last.after) != (Reason.RECOMMENDED.value, str(view.proposed))


def _record(now: float, before: str, after: str, reason: Reason, message: str) -> dict[str, Any]:
    return {
        "time": moment(now),
        "from": before[:4096],
        "to": after[:4096],
        "reason": reason.value,
        "message": message[:1000],
    }
