"""A decision as the JSON object that `tune` and `replay` print. docs/cli.md names every field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from speculative_operator.domain.decision import Decision, Estimate, Interval
from speculative_operator.domain.table import BLOCK_STEPS, Trial

_DIGITS = 6


def answer(time: float, decision: Decision, tries: Sequence[Trial] = ()) -> dict[str, Any]:
    """The JSON object of a decision. Every field is always there; an unknown figure is null, and so is `tries` without
    a trial."""
    return {
        "time": time,
        "state": decision.state.value,
        "table": decision.table.rows(),
        "reason": decision.reason.value,
        "message": decision.message,
        "valid": decision.valid,
        "changed": decision.changed,
        "tries": _tries(tries),
        "hardOff": decision.hard_off,
        "estimate": _estimate(decision.estimate),
    }


def _tries(tries: Sequence[Trial]) -> dict[str, Any] | None:
    """The trials in the form of the key `try` of the table's file; None without a trial."""
    rows = [[one.first, one.last, list(one.ks), one.share] for one in tries]
    return {"steps": BLOCK_STEPS, "rows": rows} if rows else None


def _estimate(figures: Estimate) -> dict[str, Any]:
    return {
        "gainPercent": _interval(figures.gain_percent),
        "proposedGainPercent": _interval(figures.proposed_gain_percent),
        "hardOffGainPercent": _interval(figures.hard_off_gain_percent),
        "acceptanceLength": _figure(figures.acceptance_length),
        "acceptanceRate": _figure(figures.acceptance_rate),
        "concurrency": _figure(figures.concurrency),
        "k": _figure(figures.k),
        "tpotMs": _figure(figures.tpot_seconds, 1e3),
        "tpotOffMs": _figure(figures.tpot_off_seconds, 1e3),
        "tokensPerSecond": _figure(figures.tokens_per_second),
        "costPerThousandTokens": _figure(figures.cost_per_thousand_tokens),
    }


def _interval(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [_figure(interval.low), _figure(interval.mid), _figure(interval.high)]


def _figure(value: float | None, unit: float = 1.0) -> float | None:
    """The figure in `unit` with six digits; None where it is unknown or not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{unit * value:.{_DIGITS}g}")
