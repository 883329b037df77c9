"""A request as the engine core sees it, from submission to its end. Shared by `core`, `driver`, `metrics`, `http`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class FinishReason(StrEnum):
    """Values of the label `finished_reason` (and, for stop and length, of the response)."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class Listener(Protocol):
    """Whoever waits for a request's tokens."""

    def progress(self, generated: int) -> None:
        """`generated` tokens exist so far (streams only)."""

    def finish(self, request: Request, reason: FinishReason) -> None:
        """The request ended; its fields are final."""


@dataclass(slots=True, eq=False)
class Request:
    """One sequence to generate. Times are engine-clock seconds, lengths are tokens."""

    identity: str
    prompt_tokens: int
    target: int
    """Tokens after which it ends; known in advance because texts do not depend on K."""
    reason: FinishReason
    """Why it ends there."""
    max_tokens: int
    arrival: float
    workload: int
    """Row of the acceptance table."""
    tendency: int
    """Bin of its random effect in the acceptance table."""
    streams: bool = False
    listener: Listener | None = None
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    generated: int = 0
    steps: int = 0
    """Steps in which it decoded."""
    preemptions: int = 0
    done: bool = False
    drafts: list[tuple[int, int]] = field(default_factory=list)
    """Drafted and accepted tokens of each step that verified some; kept only where the engine tells them by request."""


@dataclass(frozen=True, slots=True)
class Finished:
    request: Request
    reason: FinishReason
