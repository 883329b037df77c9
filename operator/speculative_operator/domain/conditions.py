"""A condition as the API conventions want it. Made by reconcile, written by shell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from speculative_operator.domain.credentials import without_credentials
from speculative_operator.domain.reasons import ConditionType, Reason


class Truth(StrEnum):
    """Value of a condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    """One entry of `status.conditions`, without its transition time (the writer keeps that)."""

    type: ConditionType
    status: Truth
    reason: Reason
    message: str
    about: tuple[str, str] | None = None
    """Kind and name of the child that the condition is about; None: no single child."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", without_credentials(self.message))
