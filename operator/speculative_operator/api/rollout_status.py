"""The parts of the status that tell of rollouts which nobody asked for, and of a canary's analysis. Parts of
`status`."""

from __future__ import annotations

from pydantic import Field

from speculative_operator.api.scalars import Count, Line, Long, Rows, Sentence, Time
from speculative_operator.api.wire import Wire


class RolloutProposal(Wire):
    """A rollout that is expected to pay, but would reduce serving capacity while it lasts."""

    accept: Line
    """Value of the annotation serving.speculative.dev/accept that accepts exactly this rollout, once."""
    table: Rows
    """Table that pods would get; with speculatorRemoved the table for the return of the speculator."""
    speculator_removed: bool | None = Field(default=None, strict=True)
    """True: pods would run without the speculator."""
    table_version: Long
    """Version of the active table at the time of the proposal."""
    reason: Line
    """Reason of the decision, of docs/reasons.md."""
    message: Sentence
    """The decision in one sentence."""
    time: Time
    """Time of the proposal."""


class OwnRollout(Wire):
    """The last rollout that the tuner started, or took back, and the state before it."""

    table_version: Long
    """Version of the table that it introduced."""
    generation: Long
    """Generation of the spec at that time."""
    time: Time
    """Time of the decision."""
    table: Rows
    """Table before the rollout."""
    speculator_removed: bool | None = Field(default=None, strict=True)
    """True if pods ran without the speculator before it."""
    keeps_capacity: bool | None = Field(default=None, strict=True)
    """True unless a user accepted it: no pod stops before another serves, unless rollout.tuning allows that."""
    rate: Line | None = None
    """Output tokens per second of one request before the rollout."""
    requests: Line | None = None
    """Requests scheduled per step and replica at that rate."""


class RolloutStatus(Wire):
    """Rollouts that the tuner wants or has started."""

    proposal: RolloutProposal | None = None
    """The rollout that waits for your approval; the warning RolloutNeedsApproval has the command."""
    last: OwnRollout | None = None
    """The rollout that the operator watches, and undoes if it finds no node, stalls or its pods are slower."""
    held_until: Time | None = None
    """Time before which the tuner starts no rollout, because the last one was undone."""


class CanaryStatus(Wire):
    """How far the analysis of spec.route.canary is."""

    name: Line
    """The other object."""
    of: Line
    """Hash of the canary as it is made and of the analysis; with another one the analysis begins anew."""
    phase: Line
    """Waiting (the canary cannot answer yet), Progressing, NeedsApproval, Promoted or TakenBack."""
    step: Count | None = None
    """Number of the present step, or of the last one; 0 before the first."""
    weight: Count | None = None
    """Percent of the requests that the canary gets while a pod of it is ready."""
    since: Time | None = None
    """Begin of the step."""
    restarts: Count | None = None
    """Restarts of the canary's containers at the begin of the analysis."""
    reason: Line
    """Reason of docs/reasons.md."""
    message: Sentence
    """What was decided, and why."""
    comparison: Sentence | None = None
    """Verdict on the canary, and ratios of its figures over those of this object at equal load, with intervals."""
    accept: Line | None = None
    """Phase NeedsApproval: value of the annotation serving.speculative.dev/accept that promotes this canary."""
