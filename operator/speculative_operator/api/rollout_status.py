"""The parts of the status that tell of rollouts which nobody asked for, and of a canary's analysis. Parts of
`status`."""

from __future__ import annotations

from typing import Annotated

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


class CatalogueRow(Wire):
    """A speculator of the catalogue."""

    speculator: Annotated[str, Field(max_length=1024)] | None = None
    """Address of the speculator's weights. Left out if they are part of the verifier."""
    method: Line
    """Method of drafting."""
    parallel_drafting: bool | None = Field(default=None, strict=True)
    """True: the speculator drafts all tokens in one pass."""
    k: Count | None = None
    """K that its source recommends."""


class MeasuredRow(CatalogueRow):
    """One row of the catalogue that was measured."""

    verdict: Line
    """Better (it was picked), Worse, Equivalent, Undecided (nothing was certain by the deadline) or Failed (it did not
    start, restarted, or its outputs differ)."""
    against: Line
    """The speculator that served then."""
    why: Sentence
    """The figures, or what failed."""
    acceptance_length: Line | None = None
    """Measured tokens per verification, the verifier's own token included."""
    acceptance_k: Count | None = None
    """Draft tokens of a verification at that length, in the mean."""
    time: Time
    """Time of the verdict."""


class CandidateStatus(CatalogueRow):
    """The candidate that serves beside the pods."""

    phase: Line
    """Starting (no pod of it is ready), Warming (its K finds its level) or Comparing."""
    began: Time
    """Time at which it was asked for."""
    since: Time
    """Begin of the phase."""
    restarts: Count | None = None
    """Restarts of its engine when the comparison began."""


class MeasuredStatus(Wire):
    """What speculator.measure has found."""

    of: Line
    """Hash of verifier, engine and accelerator; with another one all rows are measured anew."""
    reason: Line
    """Reason of docs/reasons.md."""
    message: Sentence
    """What is measured now, or why nothing is."""
    candidate: CandidateStatus | None = None
    """The candidate, the object NAME-candidate. Left out if there is to be none."""
    comparison: Sentence | None = None
    """Verdict on the candidate so far, and ratios of its figures over those of this object at equal load."""
    verdicts: Annotated[tuple[MeasuredRow, ...], Field(max_length=16)] = ()
    """Rows that were measured, the latest last. `speculative pairs --measured` prints them as rows of a catalogue."""
    paused_until: Time | None = None
    """Time before which no candidate is started."""
    generation: Long | None = None
    """Generation of the spec for which a measured row was picked last."""


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
