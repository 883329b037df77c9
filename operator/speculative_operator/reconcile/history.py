"""`status.decisions`: the last changes of the table, newest first. Called by `status`.

Only decisions that changed the table, or would have in mode Recommend, are recorded; windows that confirm the table are
not, nor are other trials with the same table: they change nothing that stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain.reading import mappings, text
from speculative_operator.domain.reasons import EXPLANATIONS, Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile import formats
from speculative_operator.reconcile.active_table import NO_TABLE, ActiveTable
from speculative_operator.reconcile.figures import numbers
from speculative_operator.reconcile.formats import moment
from speculative_operator.reconcile.view import View

KEPT = 10


def decisions(view: View, old: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    """The history with the change of this reconcile, if there was one. Only the newest entry has figures: those of ten
    entries would make the status longer than anybody reads."""
    before = [dict(entry) for entry in mappings(old, "decisions")]
    entry = _entry(view, before, now)
    if entry is None:
        return before[:KEPT]
    return [entry, *({key: one[key] for key in one if key != "numbers"} for one in before[: KEPT - 1])]


def newest(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last recorded change, or an empty map."""
    return next(mappings(status, "decisions"), {})


def _entry(view: View, before: list[dict[str, Any]], now: float) -> dict[str, Any] | None:
    active, decision = view.active, view.decision
    if view.changed and decision is not None:
        tables = (_show(active.before), active.text)
        return _record(now, *tables, decision.reason, decision.message) | _version(view) | _numbers(view)
    if active.why not in (None, Reason.TRIES_CHANGED) and not active.hard_off:
        tables = (_show(active.before), active.text)
        return _record(now, *tables, active.why, _of_the_spec(active, active.why)) | _version(view)
    if _newly_proposed(view, before) and decision is not None:
        return _record(now, str(active.table), str(view.proposed), decision.reason, decision.message) | _numbers(view)
    return None


def _of_the_spec(active: ActiveTable, why: Reason) -> str:
    if active.before is None or active.before != active.table:
        return EXPLANATIONS[why]
    return f"the same table, {'now' if active.per_request else 'no longer'} with caps by request"


def _show(table: KTable | None) -> str:
    return NO_TABLE if table is None else str(table)


def _newly_proposed(view: View, before: list[dict[str, Any]]) -> bool:
    if view.spec.speculation.mode is not Mode.RECOMMEND or view.proposed is None:
        return False
    last = before[0] if before else {}
    return text(last, "reason") != Reason.RECOMMENDED.value or text(last, "to") != str(view.proposed)


def _record(now: float, before: str, after: str, reason: Reason, message: str) -> dict[str, Any]:
    return {
        "time": moment(now),
        "from": before[:4096],
        "to": after[:4096],
        "reason": reason.value,
        "message": message[:1000],
    }


def _version(view: View) -> dict[str, Any]:
    return {"tableVersion": view.active.version} if view.active.table is not None else {}


def _numbers(view: View) -> dict[str, Any]:
    if view.decision is None:
        return {}
    estimate = view.decision.estimate
    every = numbers(estimate) | {"k": formats.number(estimate.k)}
    found = {key: value for key, value in every.items() if value}
    return {"numbers": found} if found else {}
