"""`status.canary`: how far the analysis of a canary is. `observed.canary` decides about it; the shell reads since when
both objects are compared.

The route follows what the status says, never what was only decided: so an operator that ends in between finds the same
weight again, and decides again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from speculative_operator.domain.formats import LONGEST_MESSAGE, timestamp
from speculative_operator.domain.reading import seconds_of, text, whole
from speculative_operator.domain.reasons import Reason, reason_of
from speculative_operator.render.metadata import digest


class Phase(StrEnum):
    """Where an analysis stands."""

    WAITING = "Waiting"
    """The canary cannot answer yet."""
    PROGRESSING = "Progressing"
    NEEDS_APPROVAL = "NeedsApproval"
    """All steps are passed; the weight of the last one stays."""
    PROMOTED = "Promoted"
    TAKEN_BACK = "TakenBack"


COMPARED = (Phase.PROGRESSING, Phase.NEEDS_APPROVAL)
"""Phases in which both objects are compared."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the analysis of one canary is."""

    name: str
    of: str
    """Hash of what is analysed: the canary as it is made, and the analysis. With another one it begins anew."""
    phase: Phase
    reason: Reason
    message: str
    step: int = 0
    """Number of the present step, from 1; 0 before the first."""
    weight: int = 0
    """Percent of the requests."""
    since: float | None = None
    """Begin of the step, unix seconds."""
    restarts: int = 0
    """Restarts of the canary's containers at the begin of the analysis."""
    comparison: str = ""
    """The last comparison, for people."""

    @property
    def compared(self) -> tuple[str, float] | None:
        """What is compared, and since when in unix seconds; None where nothing is."""
        return (f"{self.of} {self.step}", self.since) if self.phase in COMPARED and self.since is not None else None

    @property
    def accept(self) -> str:
        """Value of the annotation `accept` that approves this canary and no other; empty where none is asked for."""
        return digest(["canary", self.of], 8) if self.phase is Phase.NEEDS_APPROVAL else ""

    def to_status(self) -> dict[str, Any]:
        """The block, without empty fields."""
        block = {
            "name": self.name, "of": self.of, "phase": self.phase.value, "step": self.step, "weight": self.weight,
            "since": timestamp(self.since) if self.since is not None else "", "restarts": self.restarts,
            "reason": self.reason.value, "message": self.message[:LONGEST_MESSAGE], "comparison": self.comparison,
            "accept": self.accept,
        }  # fmt: skip
        return {key: value for key, value in block.items() if value != ""}


def read(block: Mapping[str, Any]) -> Progress | None:
    """The analysis in the block; None where there is none, or it is garbled: then it begins anew."""
    reason, phase, weight = reason_of(text(block, "reason")), text(block, "phase"), whole(block, "weight")
    since = seconds_of(text(block, "since"))
    if reason is None or phase not in set(Phase) or not 0 <= weight <= 100 or not text(block, "of"):
        return None
    found = Progress(
        text(block, "name"), text(block, "of"), Phase(phase), reason, text(block, "message"),
        max(whole(block, "step"), 0), weight, since, max(whole(block, "restarts"), 0), text(block, "comparison"),
    )  # fmt: skip
    return found if since is not None or found.phase not in COMPARED else None
