"""`status.rollout`: rollouts that no user asked for. `table.own_rollouts` decides about them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain import formats
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.reading import at, items, mapping, seconds_of, text, whole
from speculative_operator.domain.reasons import Reason, reason_of
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.snapshot.tables import table_of
from speculative_operator.render.metadata import digest
from speculative_operator.tuner.request_time import ENOUGH, Speed


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rollout that waits for a user's approval."""

    table: KTable
    removed: bool
    version: int
    """Version of the active table for which it was proposed. With another version the proposal of a table is void; that
    of the speculator's removal or return is not: it takes the table that is active then."""
    reason: Reason
    message: str
    time: float

    @property
    def accept(self) -> str:
        """Value of the annotation `accept` that approves this rollout and no other."""
        return digest([self.table.rows(), self.removed, self.version], 8)


@dataclass(frozen=True, slots=True)
class Last:
    """The last such rollout, or the way back from it, while its table is active, with the table to go back to."""

    version: int
    generation: int
    time: float
    table: KTable
    removed: bool
    speed: Speed = field(default_factory=Speed)
    """Speed of the pods before the rollout."""
    keeps_capacity: bool = False
    """True where no user accepted it: then no old pod ends before a new one serves, except where the spec allows that
    at the time."""


@dataclass(frozen=True, slots=True)
class OwnRollouts:
    """`status.rollout`."""

    proposal: Proposal | None = None
    last: Last | None = None
    held_until: float | None = None


def read(block: Mapping[str, Any]) -> OwnRollouts:
    """The own rollouts in the block; garbled parts count as absent."""
    held_until = seconds_of(text(block, "heldUntil"))
    return OwnRollouts(_proposal(mapping(block, "proposal")), _last(mapping(block, "last")), held_until)


def to_status(known: OwnRollouts) -> dict[str, Any]:
    """`status.rollout`; empty where there is nothing to say."""
    block: dict[str, Any] = {}
    if known.proposal is not None:
        one = known.proposal
        block["proposal"] = {
            "accept": one.accept, "table": one.table.rows(), "speculatorRemoved": one.removed,
            "tableVersion": one.version, "reason": one.reason.value, "message": one.message,
            "time": timestamp(one.time),
        }  # fmt: skip
    if known.last is not None:
        last, speed = known.last, known.last.speed
        block["last"] = {
            "tableVersion": last.version, "generation": last.generation, "time": timestamp(last.time),
            "table": last.table.rows(), "speculatorRemoved": last.removed, "keepsCapacity": last.keeps_capacity,
        }  # fmt: skip
        if speed.windows >= ENOUGH:
            figures = {"rate": formats.number(speed.rate, 3), "requests": formats.number(speed.requests, 3)}
            block["last"] |= figures
    if known.held_until is not None:
        block["heldUntil"] = timestamp(known.held_until)
    return block


def _proposal(one: Mapping[str, Any]) -> Proposal | None:
    table, time = table_of(items(one, "table")), seconds_of(text(one, "time"))
    reason = reason_of(text(one, "reason"))
    if table is None or time is None or reason is None:
        return None
    found = Proposal(
        table, at(one, "speculatorRemoved") is True, whole(one, "tableVersion"), reason, text(one, "message"), time
    )
    return found if found.accept == text(one, "accept") else None


def _last(one: Mapping[str, Any]) -> Last | None:
    table, time = table_of(items(one, "table")), seconds_of(text(one, "time"))
    if table is None or time is None:
        return None
    rate, requests = (_figure(text(one, name)) for name in ("rate", "requests"))
    speed = Speed(ENOUGH, rate, requests) if rate > 0 and requests > 0 else Speed()
    return Last(
        whole(one, "tableVersion"), whole(one, "generation"), time, table, at(one, "speculatorRemoved") is True, speed,
        at(one, "keepsCapacity") is True,
    )  # fmt: skip


def _figure(figure: str) -> float:
    try:
        return float(figure) if math.isfinite(float(figure)) else 0.0
    except ValueError:
        return 0.0
