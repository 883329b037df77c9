"""What the tuner remembers of one deployment between ticks, and its form in status.

Called by decide(), reconcile (which keeps it, and writes `to_status()` into the object) and, after a restart of the
operator, `from_status`. A few hundred numbers at most, whatever was seen. Numbers travel as text: an API object that
holds floats would differ from itself after a round trip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.table import KTable, TableError
from speculative_operator.tuner.acceptance import AcceptanceEvidence
from speculative_operator.tuner.costs import CostEvidence
from speculative_operator.tuner.grid import grid
from speculative_operator.tuner.prior import TERMS
from speculative_operator.tuner.start import fit, initial_table
from speculative_operator.tuner.traffic import Traffic

FORMAT = 1
FIRST_RETRY_SECONDS = 1800.0
LONGEST_RETRY_SECONDS = 28_800.0
_POSITIONS = 16
"""Draft positions kept over a restart."""
_LARGEST = 1e12


@dataclass(frozen=True, slots=True)
class Memory:
    """`table` is in force, or was last asked for; the rest is evidence and timing."""

    table: KTable
    since: float
    """When this memory began to look: creation, or restart of the operator."""
    changed_at: float | None = None
    previous: KTable | None = None
    """The table before the last change, while pods may still run it."""
    proposal: KTable | None = None
    """Last table proposed in Recommend."""
    costs: CostEvidence = field(default_factory=CostEvidence)
    acceptance: AcceptanceEvidence = field(default_factory=AcceptanceEvidence)
    traffic: Traffic = field(default_factory=Traffic)
    windows: int = 0
    """Observations believed since `since`."""
    updated_at: float | None = None
    seen: tuple[tuple[str, float, float], ...] = ()
    """Per pod: end of the last window learned from, and its batch size."""
    slow_windows: int = 0
    """Consecutive observations in which drafts lost against none."""
    drafted_at: float | None = None
    """When drafts were last seen, or speculation last retried."""
    retry_seconds: float = FIRST_RETRY_SECONDS

    @classmethod
    def fresh(cls, table: KTable, now: float) -> Memory:
        """Nothing seen yet, `table` in force."""
        return cls(table=table, since=now)

    def fitted(self, policy: Policy) -> Memory:
        """With a table that the policy allows: cut or stretched to `max_batch`, each K lowered to one that exists."""
        table = fit(self.table, policy)
        load = self.traffic.load if len(self.traffic.load) == len(grid(policy.knobs.max_batch)) else ()
        if table == self.table and load == self.traffic.load:
            return self
        return replace(self, table=table, previous=None, proposal=None, traffic=replace(self.traffic, load=load))

    def to_status(self) -> dict[str, Any]:
        """A small JSON object of strings, whole numbers and rows; below 4 KiB."""
        size = len(TERMS)
        half = [self.costs.precision[row * size + column] for row in range(size) for column in range(row, size)]
        return {
            "format": FORMAT,
            "table": self.table.rows(),
            "changedAt": _text([self.changed_at or 0.0], 13),
            "precision": _text(half),
            "information": _text(self.costs.information),
            "perK": [[k, _text([total, weight])] for k, total, weight in self.costs.per_k[: 2 * _POSITIONS]],
            "reached": _text(self.acceptance.reached[:_POSITIONS]),
            "accepted": _text(self.acceptance.accepted[:_POSITIONS]),
            "drafts": _text([self.acceptance.drafts]),
            "traffic": _text([self.traffic.context, self.traffic.prompt_ratio, self.traffic.draft_share]),
            "load": _text(self.traffic.load, 3),
            "retrySeconds": int(self.retry_seconds),
        }

    @classmethod
    def from_status(cls, data: Mapping[str, Any], policy: Policy) -> Memory:
        """Memory as written by `to_status`; whatever is odd is dropped, at worst all but the table.

        Evidence survives, but nothing is decided from it before a full window was seen again.
        """
        table = _table(data, policy)
        bare = cls(table=table, since=0.0)
        try:
            return _restored(bare, data, policy)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError):
            return bare


def _table(data: Mapping[str, Any], policy: Policy) -> KTable:
    try:
        return fit(KTable.from_rows(data["table"]), policy)
    except (KeyError, TypeError, ValueError, TableError, AttributeError):
        return initial_table(policy)


def _restored(bare: Memory, data: Mapping[str, Any], policy: Policy) -> Memory:
    if data["format"] != FORMAT:
        return bare
    size = len(TERMS)
    context, ratio, share = _numbers(data["traffic"], 3)
    load = tuple(_counts(data["load"]))
    changed = _numbers(data["changedAt"], 1)[0]
    return replace(
        bare,
        changed_at=changed or None,
        costs=CostEvidence(
            precision=_precision(_numbers(data["precision"], size * (size + 1) // 2), size),
            information=tuple(_numbers(data["information"], size)),
            per_k=tuple(_per_k(entry) for entry in data["perK"]),
        ),
        acceptance=AcceptanceEvidence(
            reached=tuple(_counts(data["reached"])),
            accepted=tuple(_counts(data["accepted"])),
            drafts=_counts(data["drafts"])[0],
        ),
        traffic=Traffic(max(context, 1.0), max(ratio, 0.0), min(max(share, 0.01), 1.0), load),
        retry_seconds=min(max(float(data["retrySeconds"]), FIRST_RETRY_SECONDS), LONGEST_RETRY_SECONDS),
    ).fitted(policy)


def _precision(half: Sequence[float], size: int) -> tuple[float, ...]:
    """The symmetric matrix of its upper half; what rounding made negative is set to no information."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = half
    values, vectors = np.linalg.eigh(matrix, UPLO="U")
    whole = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return tuple(((whole + whole.T) / 2.0).ravel().tolist())


def _per_k(entry: Sequence[Any]) -> tuple[int, float, float]:
    total, weight = _numbers(entry[1], 2)
    return int(entry[0]), total, max(weight, 0.0)


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
