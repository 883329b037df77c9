"""Which speculator is best, by measurement (`speculator.measure`): rows of the catalogue, one at a time, serve as a
candidate beside the pods and are compared with them at equal load. Called by `tick`.

    nothing runs -> Starting -> Warming -> Comparing -> a verdict -> the next row, until none is left

The candidate is another SpeculativeDeployment of one replica, made and owned by this one. Its pod bears the labels by
which this object's Service chooses pods, so it gets a replica's share of the requests while it is ready, with or
without the operator. Each look asks again whether there is reason to go on; missing figures decide nothing, and what
serves stays unless a candidate was surely better. A candidate goes only while a pod of the object itself is ready.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from speculative_operator.comparing.verdict import Comparison, Limits, Verdict
from speculative_operator.domain import names
from speculative_operator.domain.actions import Truth
from speculative_operator.domain.formats import duration
from speculative_operator.domain.platform import Measuring
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.reconcile.children.candidate import (
    START_SECONDS,
    WARM_SECONDS,
    hindrances,
    is_settling,
    name_conflict,
    reason_to_end,
    subject_of,
)
from speculative_operator.reconcile.observed.canary import compared
from speculative_operator.reconcile.observed.surge import WAIT_SECONDS
from speculative_operator.reconcile.pair.picking import Picking, next_entry
from speculative_operator.reconcile.snapshot.candidates import (
    MOST_VERDICTS,
    Candidate,
    Measured,
    Phase,
    Result,
    Running,
)
from speculative_operator.reconcile.snapshot.candidates import Verdict as Told
from speculative_operator.reconcile.snapshot.picked import Basis, Row
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.world import Evidence, Record

PAUSE_SECONDS = 600.0
"""Seconds without a candidate after one that went without a verdict."""
ROOM_SECONDS = 3600.0
"""The same after one for which there was no room."""
MOST_RESTARTS = 3
"""Ends of an engine before its first answer after which its candidate has failed."""
LIMITS = Limits()
"""By how much a candidate may be worse in one measure, as by default for a canary."""


def follow(
    world: Snapshot, picking: Picking | None, suspended: bool, now: float
) -> tuple[Measured | None, Picking | None]:
    """What is measured after this reconcile, and the pick; None where the spec asks for no measuring. `suspended`:
    drafts are suspended. `now` in unix seconds."""
    asked, before = world.spec.measure, world.status.measured
    if picking is None or asked is None:
        if picking is None or before is None:
            return None, picking
        message = "speculator.measure is not set"
        return replace(before, reason=Reason.MEASURE_WAITS, message=message, running=None, comparison=""), picking
    known, why_not = _standing(world), next(hindrances(world, picking, asked, suspended), "")
    if known.running is None:
        return _begin(world, known, picking, why_not, now), picking
    if is_settling(world):
        return known, picking
    found = _Look(world, known, known.running, asked, picking, now).after(why_not)
    better = found.running is None and found.reason is Reason.CANDIDATE_BETTER
    return found, _picked(picking, known.running.row, found, now) if better else picking


def _standing(world: Snapshot) -> Measured:
    """What the status has of this verifier, engine and accelerator."""
    known, of = world.status.measured, subject_of(world)
    fresh = Measured(of, Reason.MEASURE_WAITS, "nothing was measured yet")
    return known if known is not None and known.of == of else fresh


def _begin(world: Snapshot, known: Measured, picking: Picking, why: str, now: float) -> Measured:
    """The next candidate, or why there is none now."""
    if known.paused_until is not None and now < known.paused_until <= now + ROOM_SECONDS:
        return known
    pick, entry = picking.pick, None
    if not why and pick is not None and pick.key is not None and len(known.verdicts) < MOST_VERDICTS:
        entry = next_entry(picking, frozenset((pick.key, *(one.row.key for one in known.verdicts))))
    if why or (entry is not None and (why := _not_now(world))):
        return replace(known, reason=Reason.MEASURE_WAITS, message=f"no candidate is started: {why}", comparison="")
    if entry is None:
        message = f"{len(known.verdicts)} rows were measured, and no other is left; {_serving(picking)} serves"
        return replace(known, reason=Reason.ALL_MEASURED, message=message, comparison="")
    row = Row.from_entry(entry)
    message = f"the candidate {names.candidate(world.spec.name)} measures {row.title} against {_serving(picking)}"
    running = Running(row, Phase.STARTING, float(now), float(now))
    return replace(known, reason=Reason.CANDIDATE_MEASURED, message=message, running=running, comparison="")


def _not_now(world: Snapshot) -> str:
    if world.candidate is not None:
        return "the last candidate is still there" if world.candidate.owned else name_conflict(world)
    if world.status.condition(ConditionType.READY).status != Truth.TRUE:
        return "the object is not Ready"
    idle = world.status.speculation.reason == Reason.IDLE
    unseen = world.status.condition(ConditionType.METRICS_AVAILABLE).status != Truth.TRUE
    return "there are no requests to compare" if idle or unseen else ""


def _serving(picking: Picking) -> str:
    return picking.pick.title if picking.pick is not None else ""


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at the candidate that runs."""

    world: Snapshot
    known: Measured
    running: Running
    asked: Measuring
    picking: Picking
    now: float

    def after(self, why_not: str) -> Measured:
        """What is known after it. `why_not`: why there may be no candidate now; empty where there may be one."""
        seen = self.world.candidate
        if why := why_not or reason_to_end(self.world, self.running, self.asked, self.now):
            return self._without_verdict(why, PAUSE_SECONDS)
        if self.running.phase is Phase.COMPARING:
            return self._compare(seen, self.world.evidence)
        return self.known if seen is None else self._start(seen)

    def _start(self, seen: Candidate) -> Measured:
        """The phase until it is compared."""
        age = self.now - self.running.since
        if self.running.phase is Phase.WARMING:
            return self._next(Phase.COMPARING, seen.restarts) if seen.answers and age >= WARM_SECONDS else self.known
        if seen.refused or seen.restarts >= MOST_RESTARTS:
            why = f"it did not start: {seen.refused or f'its engine ended {seen.restarts} times'}"
            return self._judged(Result.FAILED, why)
        for pod in seen.pods:
            if pod.unschedulable and self.now - (pod.unschedulable_since or self.now) >= WAIT_SECONDS:
                why = f"no node has room for its pod {pod.name}: {pod.unschedulable}"
                return self._without_verdict(why, ROOM_SECONDS)
        if not seen.answers and age >= START_SECONDS:
            trouble = next((pod.trouble for pod in seen.pods if pod.trouble), "no pod of it was ready")
            return self._judged(Result.FAILED, f"it did not start within {duration(START_SECONDS)}: {trouble}")
        return self._next(Phase.WARMING) if seen.answers else self.known

    def _next(self, phase: Phase, restarts: int = 0) -> Measured:
        running = replace(self.running, phase=phase, since=float(self.now), restarts=restarts)
        return replace(self.known, running=running)

    def _compare(self, seen: Candidate | None, evidence: Evidence | None) -> Measured:
        if seen is not None and seen.restarts > self.running.restarts:
            return self._judged(Result.FAILED, f"its engine restarted {seen.restarts - self.running.restarts} times")
        if seen is not None and seen.outputs_differ:
            return self._judged(Result.FAILED, "its condition OutputsVerified is False")
        late = self.now - self.running.since >= self.asked.deadline_seconds
        if evidence is None or not (evidence.stable.samples and evidence.canary.samples):
            missing = "no figures of both could be read" + (f": {evidence.gap}" if evidence and evidence.gap else "")
            return self._without_verdict(missing, ROOM_SECONDS) if late else self.known
        found = compared(self.world, evidence, LIMITS)
        result, why = _result(found)
        if result is not Result.UNDECIDED:
            return self._judged(result, why, evidence.canary)
        why = f"nothing was certain after {duration(self.asked.deadline_seconds)}: {evidence.gap or why}"
        return self._judged(result, why, evidence.canary) if late else replace(self.known, comparison=str(found))

    def _without_verdict(self, why: str, seconds: float) -> Measured:
        """The end of a candidate that could not be measured; its row is measured later."""
        message, until = f"the candidate goes without a verdict: {why}", float(self.now) + seconds
        reason = Reason.CANDIDATE_REMOVED
        return replace(self.known, running=None, paused_until=until, comparison="", reason=reason, message=message)

    def _judged(self, result: Result, why: str, record: Record | None = None) -> Measured:
        """The verdict on a row. Each row has one; what served before a better row is then worse than it."""
        row, serving, pick = self.running.row, _serving(self.picking), self.picking.pick
        told = [Told(row, result, serving, why, float(self.now), *_acceptance(record))]
        generation = self.known.generation
        reason, message = Reason.CANDIDATE_NOT_BETTER, f"{serving} stays: {row.title} is {result}: {why}"
        if result is Result.FAILED:
            reason, message = Reason.CANDIDATE_FAILED, f"{serving} stays: {row.title} failed: {why}"
        elif result is Result.BETTER:
            reason, message = Reason.CANDIDATE_BETTER, f"{row.title} is picked in place of {serving}: {why}"
            generation = self.picking.asked.spec.generation
            if pick is not None and pick.row is not None:
                told.insert(0, Told(pick.row, Result.WORSE, row.title, f"{row.title} is {why}", float(self.now)))
        kept = {one.row.key: one for one in (*self.known.verdicts, *told)}
        return replace(
            self.known, running=None, paused_until=None, generation=generation, comparison="", reason=reason,
            message=message, verdicts=tuple(kept.values())[-MOST_VERDICTS:],
        )  # fmt: skip


def _result(found: Comparison) -> tuple[Result, str]:
    """Better where a measure of the pace is, none is worse, and the rest is within what is allowed."""
    told = f"at {found.basis}: {', '.join(str(one) for one in found.with_figures)}"
    if worse := found.losses(LIMITS):
        return Result.WORSE, f"worse at {worse}"
    if Verdict.BETTER in found.pace and Verdict.WORSE not in found.pace:
        return Result.BETTER, f"better {told}"
    if found.pace == {Verdict.EQUIVALENT}:
        return Result.EQUIVALENT, f"no different {told}"
    return Result.UNDECIDED, found.why


def _acceptance(record: Record | None) -> tuple[float | None, int | None]:
    """Acceptance length in whole hundredths, and the drafts of a verification; None where too little was drafted."""
    k, gained = (record.acceptance if record is not None else None) or (0, 0.0)
    return (round(100.0 * (1.0 + gained)) / 100.0, k) if k > 0 and gained <= k else (None, None)


def _picked(picking: Picking, row: Row, found: Measured, now: float) -> Picking:
    """The pick of the row that was better; no pods are made with it yet."""
    if picking.pick is None:
        return picking
    pick = replace(
        picking.pick, reason=found.message, row=row, source="measured here", basis=Basis.CARD, at=float(now),
        generation=0,
    )  # fmt: skip
    return replace(picking, pick=pick)
