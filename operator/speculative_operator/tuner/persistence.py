"""Writes the tuner's memory as a small JSON object and reads it back. Called by reconcile and by the command line.

Numbers travel as text: an API object that holds floats would differ from itself after a round trip. Of step costs it
keeps the mean, the joint precision of the five factors and the marginal precision of each correction; the other
correlations are learned again within minutes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields, replace
from typing import Any

import numpy as np

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.table import KTable, TableError
from speculative_operator.tuner.acceptance import AcceptanceEvidence
from speculative_operator.tuner.allowed import fit
from speculative_operator.tuner.comparisons import Cell
from speculative_operator.tuner.costs import FORM_LIMIT, THETA_LIMIT, CostEvidence
from speculative_operator.tuner.judge import initial_table
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.pace import SAVED, Pace
from speculative_operator.tuner.prior import K_SD, KNOT_SD, TERMS, Array, Basis, basis_of
from speculative_operator.tuner.tail import Bounds
from speculative_operator.tuner.targets import OutOfReach, Targets
from speculative_operator.tuner.traffic import Traffic

FORMAT = 2
_POSITIONS = 16
"""Draft positions kept over a restart."""
_LARGEST_K = 1000
_CELLS = 12
"""Number of comparisons kept over a restart: those with most blocks."""
_LARGEST = 1e12


def to_status(memory: Memory) -> dict[str, Any]:
    """`memory` as a JSON object of strings, whole numbers and rows, below 4 KiB, without parts that a restart makes
    worthless, such as the windows seen."""
    evidence, traffic = memory.acceptance, memory.traffic
    times = (memory.changed_at, memory.removed_at, memory.doomed_since)
    return {
        "format": FORMAT,
        "table": memory.table.rows(),
        "times": _text([moment or 0.0 for moment in times], 13),
        "mean": _text(memory.costs.mean.tolist(), 4),
        "precision": _text(_pack_costs(memory.costs), 4),
        "reached": _text(evidence.reached[:_POSITIONS]),
        "accepted": _text(evidence.accepted[:_POSITIONS]),
        "drafts": _text([evidence.drafts, evidence.mean_k]),
        "traffic": _text(
            [traffic.context, traffic.prompt_ratio, traffic.draft_share, traffic.pressed, traffic.generated]
        ),
        "load": _text(traffic.load, 3),
        "history": _text(traffic.history, 3),
        "pace": _text([memory.pace.left], 3),
        "speculatorRemoved": memory.removed,
        "cells": [_text(astuple(cell), 4) for cell in sorted(memory.cells, key=lambda one: -one.blocks)[:_CELLS]],
        "targets": _targets_text(memory.targets),
    } | ({} if memory.before_outage is None else {"beforeOutage": memory.before_outage.rows()})


def from_status(data: Mapping[str, Any], policy: Policy) -> Memory:
    """The memory in the object that `to_status` wrote; one damaged part drops all evidence, but never the table.

    Evidence survives, but the tuner decides nothing from it before it has seen a full window again.
    """
    return Memory(table=_table_of(data, policy), since=0.0, **_restore(data, policy)).fit_to(policy)


def _table_of(data: Mapping[str, Any], policy: Policy) -> KTable:
    """The table in `data`, fitted to `policy`; the initial table where `data` holds no readable one."""
    try:
        return fit(KTable.from_rows(data["table"]), policy)
    except (KeyError, TypeError, ValueError, TableError, AttributeError):
        return initial_table(policy)


def _restore(data: Mapping[str, Any], policy: Policy) -> dict[str, Any]:
    """Fields of `Memory` besides its table; only `removed` where any part of `data` cannot be read."""
    off = {"removed": isinstance(data, Mapping) and data.get("speculatorRemoved") is True}
    try:
        return off | _fields(data, policy)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, np.linalg.LinAlgError):
        return off


def _fields(data: Mapping[str, Any], policy: Policy) -> dict[str, Any]:
    if data["format"] != FORMAT:
        return {}
    context, ratio, share, pressed, generated = _counts(data["traffic"])
    drafts, mean_k = _counts(data["drafts"])
    left = _numbers(data["pace"], 1)[0]
    traffic = Traffic(max(context, 1.0), ratio, generated, min(max(share, 0.01), 1.0))
    traffic = replace(
        traffic,
        pressed=min(pressed, 1.0),
        load=tuple(_counts(data["load"])),
        history=tuple(_counts(data["history"])),
    )
    moments = ("changed_at", "removed_at", "doomed_since")
    times = zip(moments, _numbers(data["times"], len(moments)), strict=True)
    before = data.get("beforeOutage")
    return {name: moment or None for name, moment in times} | {
        "costs": _costs(_numbers(data["mean"]), _numbers(data["precision"]), basis_of(policy.knobs)),
        "acceptance": AcceptanceEvidence(
            reached=tuple(_counts(data["reached"])),
            accepted=tuple(_counts(data["accepted"])),
            drafts=drafts,
            mean_k=min(mean_k, float(max(policy.knobs.ks, default=0))),
        ),
        "traffic": traffic,
        "pace": Pace(min(left, SAVED)),
        "before_outage": None if before is None else fit(KTable.from_rows(before), policy),
        "cells": tuple(_cell(text) for text in data.get("cells", [])),
        "targets": _targets(data.get("targets")),
    }


def _cell(text: str) -> Cell:
    numbers = _numbers(text, len(fields(Cell)))
    if min(numbers[4:6]) < 0 or min(numbers[3], numbers[7]) <= 0 or max(map(abs, numbers[:3])) > _LARGEST_K:
        raise ValueError("a comparison of nothing")
    return Cell(int(numbers[0]), int(numbers[1]), int(numbers[2]), *numbers[3:])


def _targets_text(targets: Targets) -> dict[str, Any]:
    """`targets` as a JSON object; a step under judgement is left out, since a restart loses its basis of comparison."""
    if targets.asked == (None, None):
        return {}
    failed, settled = targets.failed, targets.limit is not None and targets.step is None
    past = () if failed is None else (failed.target, failed.at, failed.load, failed.best.low, failed.k)
    return {
        "asked": _text([seconds or 0.0 for seconds in targets.asked], 13),
        "limited": _text([targets.limited_at, targets.limited_load, targets.spent], 13),
        "failed": _text(past, 13),
    } | ({"limit": targets.limit.rows()} if targets.limit is not None and settled else {})


def _targets(data: Any) -> Targets:
    if not data:
        return Targets()
    tpot, ttft = _counts(data["asked"])
    at, load, spent = _counts(data["limited"])
    past, limit = _counts(data["failed"]), data.get("limit")
    failed = None
    if past:
        target, when, where, low, k = past
        failed = OutOfReach(min(int(target), 1), when, where, Bounds(low), int(k))
    return Targets(
        asked=(tpot or None, ttft or None),
        limit=None if limit is None else KTable.from_rows(limit),
        limited_at=at,
        limited_load=load,
        spent=spent,
        failed=failed,
    )


def _pack_costs(costs: CostEvidence) -> list[float]:
    """Upper half of the factors' precision (corrections integrated out), then the precision of each correction."""
    if not len(costs.mean):
        return []
    first = len(TERMS)
    form = np.diag(np.r_[np.full(first, 1e-6), _form_prior(len(costs.mean))])
    covariance = np.linalg.inv(costs.precision + form)
    factors = np.linalg.inv(covariance[:first, :first])
    rest = 1.0 / np.diag(covariance)[first:] - _form_prior(len(costs.mean))
    return [*factors[np.triu_indices(first)].tolist(), *np.maximum(rest, 0.0).tolist()]


def _form_prior(size: int) -> Array:
    """Prior precision of the corrections for `size` columns: the same (larger) precision for knots and single K."""
    return np.full(size - len(TERMS), min(KNOT_SD, K_SD) ** -2)


def _costs(mean: Sequence[float], kept: Sequence[float], basis: Basis) -> CostEvidence:
    first = len(TERMS)
    half = first * (first + 1) // 2
    if len(mean) != basis.size or len(kept) != half + basis.size - first:
        return CostEvidence()
    upper = np.zeros((first, first))
    upper[np.triu_indices(first)] = kept[:half]
    values, vectors = np.linalg.eigh(upper, UPLO="U")
    precision = np.diag(np.r_[np.zeros(first), np.maximum(kept[half:], 0.0)])
    precision[:first, :first] = (vectors * np.maximum(values, 0.0)) @ vectors.T
    limits = np.r_[np.full(first, THETA_LIMIT), np.full(basis.size - first, FORM_LIMIT)]
    return CostEvidence(np.clip(np.array(mean), -limits, limits), (precision + precision.T) / 2.0)


def _text(values: Sequence[float], digits: int = 5) -> str:
    return " ".join(f"{value:.{digits}g}" for value in values)


def _numbers(text: str, count: int | None = None) -> list[float]:
    values = [float(part) for part in text.split()]
    if count is not None and len(values) != count:
        raise ValueError(f"{len(values)} numbers where {count} belong")
    if not all(math.isfinite(value) and abs(value) <= _LARGEST for value in values):
        raise ValueError("a number is not finite or too large")
    return values


def _counts(text: str) -> list[float]:
    values = _numbers(text)
    if any(value < 0 for value in values):
        raise ValueError("a count is negative")
    return values
