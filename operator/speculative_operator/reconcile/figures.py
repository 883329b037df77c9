"""`status.speculation`: the table in force and the figures at the load seen. Called by `status`.

A figure that is not known is left out. Without a new look the old figures stand, unless no pod is ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain.decision import Estimate, State
from speculative_operator.domain.observation import Observation, PodWindow
from speculative_operator.domain.spec import DeploymentSpec, Mode
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile import formats
from speculative_operator.reconcile.conditions import timestamp
from speculative_operator.reconcile.reading import mapping
from speculative_operator.reconcile.view import View

FIGURES = (
    "k", "acceptanceRate", "acceptanceLength", "concurrency", "tpot", "tpotOff", "tokensPerSecond", "gain",
    "gainPercent", "proposedTable", "proposedGain", "costPer1kTokens", "reason", "message", "observedAt", "state",
)  # fmt: skip
"""Fields that move with the load: rate-limited by `status.should_write`."""


def speculation_status(view: View, old: Mapping[str, Any]) -> dict[str, Any]:
    """The block, without figures that are unknown."""
    before = mapping(old, "speculation")
    table, speculator = view.in_force.table, view.spec.speculator
    block: dict[str, Any] = {
        "method": speculator.method.value if speculator and view.spec.speculates else None,
        "actuator": view.actuator.value,
        "table": table.rows() if table is not None else None,
        "tableVersion": view.in_force.version or None,
        "tableText": str(table) if table is not None else None,
    }
    moving = _moving(view, before)
    return {key: value for key, value in (block | moving).items() if value not in (None, "")}


def _moving(view: View, before: Mapping[str, Any]) -> dict[str, Any]:
    if view.observation is None:
        kept = {key: before[key] for key in FIGURES if key in before} if any(pod.ready for pod in view.pods) else {}
        return {"state": _resting(view), "k": _k(view.in_force.table, None)} | kept | _forced(view)
    estimate = _estimate(view)
    blind = view.observation.gap is not None or not view.observation.windows
    return {
        "state": view.decision.state.value if view.decision is not None else _resting(view),
        "k": "" if blind and not _constant(view.in_force.table) else _k(view.in_force.table, estimate.concurrency),
        "reason": view.decision.reason.value if view.decision is not None else "",
        "message": view.decision.message[:1000] if view.decision is not None else "",
        "observedAt": timestamp(view.observation.time),
        "proposedTable": view.proposed.rows() if view.proposed is not None else None,
        "gainPercent": formats.whole_percent(estimate.gain_percent),
        **numbers(estimate),
        "costPer1kTokens": formats.money(_cost(view.spec, estimate, view.rollout.ready)),
    }


def numbers(estimate: Estimate) -> dict[str, str]:
    """Figures of an estimate, those unknown as empty strings."""
    proposed = estimate.proposed_gain_percent
    return {
        "acceptanceRate": formats.share(estimate.acceptance_rate),
        "acceptanceLength": formats.number(estimate.acceptance_length, 2),
        "concurrency": formats.number(estimate.concurrency),
        "tpot": formats.milliseconds(estimate.tpot_seconds),
        "tpotOff": formats.milliseconds(estimate.tpot_off_seconds),
        "tokensPerSecond": formats.number(estimate.tokens_per_second, 0),
        "gain": formats.signed(estimate.gain_percent.mid if estimate.gain_percent is not None else None),
        "proposedGain": formats.signed(proposed.mid if proposed is not None else None),
    }


def _forced(view: View) -> dict[str, Any]:
    """Figures that follow from the table alone, where the spec has just changed it."""
    if view.in_force.before is None or view.in_force.table is None:
        return {}
    return {"k": _k(view.in_force.table, None), "state": _resting(view)}


def _resting(view: View) -> str:
    """The state while the tuner has said nothing."""
    table = view.in_force.table
    if table is None:
        return State.HARD_OFF.value
    if view.spec.speculation.mode is Mode.STATIC:
        return (State.ON if table.max_k > 0 else State.SOFT_OFF).value
    return State.HOLDING.value


def _k(table: KTable | None, concurrency: float | None) -> str:
    """K at the load; at one request while none is known, which is what the next request would get."""
    load = formats.known(concurrency)
    return str(table.k_at(max(1.0, load or 1.0))) if table is not None else ""


def _constant(table: KTable | None) -> bool:
    return table is None or len(table.ks) == 1


def _estimate(view: View) -> Estimate:
    if view.decision is not None and view.in_force.table is not None:
        return view.decision.estimate
    return _measured(view.observation) if view.observation is not None else Estimate()


def _measured(observation: Observation) -> Estimate:
    """What the windows say by themselves, where no tuner runs: sums over pods."""
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
    )


def _sum(windows: list[PodWindow], name: str) -> float:
    return float(sum(getattr(window, name) for window in windows))


def _cost(spec: DeploymentSpec, estimate: Estimate, ready: int) -> float | None:
    """Cost of a thousand output tokens: accelerators in use x hourly cost / tokens an hour x 1000."""
    hourly, rate = spec.accelerator.hourly_cost, formats.known(estimate.tokens_per_second)
    if hourly is None or not rate or rate <= 0:
        return None
    return hourly * spec.accelerator.per_replica * ready / (rate * 3600.0) * 1000.0
