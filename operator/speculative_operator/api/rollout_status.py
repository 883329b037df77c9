"""The part of the status that tells of rollouts which nobody asked for. A part of `status`."""

from __future__ import annotations

from pydantic import Field

from speculative_operator.api.status_scalars import Line, Long, Rows, Sentence, Time
from speculative_operator.api.wire import Wire


class RolloutProposal(Wire):
    """A rollout that would pay, but not without a loss of serving capacity while it lasts."""

    accept: Line
    """Value of the annotation serving.speculative.dev/accept that has exactly this rollout made, once."""
    table: Rows
    """Table that pods would get; with hardOff the one that would wait."""
    hard_off: bool | None = Field(default=None, strict=True)
    """True: pods would run without the speculator."""
    table_version: Long
    """Version of the table in force, which it was proposed for."""
    reason: Line
    """Reason of the decision, of docs/reasons.md."""
    message: Sentence
    """The decision in a sentence."""
    time: Time
    """When it was proposed."""


class OwnRollout(Wire):
    """The last rollout that the operator made for reasons of its own, and what to go back to."""

    table_version: Long
    """Version of the table that it brought."""
    generation: Long
    """Generation of the spec then."""
    time: Time
    """When it was decided."""
    table: Rows
    """Table before it."""
    hard_off: bool | None = Field(default=None, strict=True)
    """True where pods ran without the speculator before it."""
    keeps_capacity: bool | None = Field(default=None, strict=True)
    """True where it was made because a new pod was proven to fit beside the old ones."""
    rate: Line | None = None
    """Output tokens per second of one request before it."""
    requests: Line | None = None
    """Requests scheduled per step and replica at that rate."""


class RolloutStatus(Wire):
    """Rollouts that nobody asked for: those that the tuner wants."""

    proposal: RolloutProposal | None = None
    """What waits for your word: see the warning RolloutNeedsApproval for the command."""
    last: OwnRollout | None = None
    """What is watched: it goes back by itself where it stalls or its pods are slower."""
    held_until: Time | None = None
    """None is made before, because the last one went back."""
