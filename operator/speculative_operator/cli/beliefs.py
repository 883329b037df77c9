"""What each K is believed to give at one load, by the tuner's own model.

Used by `plan` before anything is measured, and by `explain` with what the tuner has measured since.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from speculative_operator.api.convert import SpecError, to_domain
from speculative_operator.cli.subject import Subject
from speculative_operator.domain.decision import Interval
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.pair.verdicts import tuner_facts
from speculative_operator.reconcile.snapshot import picked
from speculative_operator.reconcile.table.deciding import policy_of
from speculative_operator.tuner.grid import nearest
from speculative_operator.tuner.outlook import QUANTILE, Outlook, outlook
from speculative_operator.tuner.persistence import from_status


@dataclass(frozen=True, slots=True)
class Belief:
    """The expected gain and TPOT of one K at one load."""

    k: int
    gain: Interval
    """Gain in tokens per second over pods without a speculator, in percent, with its 80 % interval."""
    tpot_ms: float
    """Expected time per output token in milliseconds."""


def beliefs_at(view: Outlook, load: float) -> list[Belief]:
    """The belief in every K that a table may hold, ascending; `load` is the number of requests in one step of a pod."""
    row, off = nearest(load, view.policy.knobs.max_batch), view.at(load, None)
    found = []
    for column, k in enumerate(view.ks):
        speed = view.at(load, k)
        found.append(
            Belief(k, _percent(speed - off, *view.span_from_off(row, column)), 1e3 * math.exp(min(-speed, 20.0)))
        )
    return found


def beside(view: Outlook, load: float, k: int) -> dict[int, Interval]:
    """Speed of a request at each K over that at `k`, in percent with its 80 % interval, as the tuner compares K with
    one another: an error that both share does not change their order. Empty for a `k` that the tuner does not choose
    from."""
    if k not in view.ks:
        return {}
    held, row = view.ks.index(k), nearest(load, view.policy.knobs.max_batch)
    apart = view.against(np.full(len(view.points), held))
    mean, wide = apart.mean[row], QUANTILE * np.where(view.columns == k, 0.0, apart.deviation[row])
    return {one: _percent(float(mean[n]), float(wide[n]), float(wide[n])) for n, one in enumerate(view.ks)}


def _percent(log_ratio: float, below: float, above: float) -> Interval:
    """The interval of a ratio given as logarithm, in percent, from `below` it to `above` it in log."""
    low, mid, high = (100.0 * math.expm1(min(max(log_ratio + side, -20.0), 20.0)) for side in (-below, 0.0, above))
    return Interval(low, mid, high)


def subject_of(body: Any) -> Subject | None:
    """An object with its pick, as the operator tunes it; None where its spec cannot be read."""
    try:
        spec, pick = to_domain(dict(body)), picked.read((body.get("status") or {}).get("picked") or {})
        if spec.auto_speculator and pick is not None:
            spec = pick.fill(spec)
        engine = engine_for(spec)
        return Subject(spec, engine, policy_of(spec, knobs=engine.knobs(spec), facts=tuner_facts(spec, None)))
    except (SpecError, ValueError, KeyError, TypeError):
        return None


def outlook_of(body: Any) -> Outlook | None:
    """The operator's model of an object, restored from its status as after a restart of the operator. None where the
    status has no memory of the tuner, or that of another release."""
    stored, found = (body.get("status") or {}).get("memory"), subject_of(body)
    if not isinstance(stored, dict) or not stored or found is None:
        return None
    try:
        memory = from_status(stored, found.policy)
    except (ValueError, KeyError, TypeError):
        return None
    cells = memory.cells
    return outlook(found.policy, memory.costs, memory.acceptance, memory.traffic, cells=cells, compares=bool(cells))
