"""Conditions and actions of one reconcile: made by `reconcile`, written and carried out by `shell`.

Conditions are as the API conventions want them. Each resource has one writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from speculative_operator.domain.reasons import ConditionType, Reason, without_credentials


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


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """Server-side apply of one child with its whole manifest."""

    manifest: Mapping[str, Any]
    reason: Reason
    why: str
    """Name of the first difference or of the missing child: the text of the event."""


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Delete a child that is no longer wanted, only if its uid still is `uid`."""

    kind: str
    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class PokePod:
    """Patch an annotation on a pod so that its kubelet delivers the changed table at once."""

    pod: str
    table_version: int

    @property
    def value(self) -> str:
        """Value of the annotation."""
        return str(self.table_version)


Action = ApplyChild | DeleteChild | PokePod
