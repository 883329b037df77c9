"""What is remembered between ticks of one object about writing its children. Used by `writes`, kept by `reconciler`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf

from speculative_operator.domain.conditions import Condition
from speculative_operator.shell import contest
from speculative_operator.shell.cache import Body

Slot = tuple[str, str]
"""(kind, name) of a child."""
PATIENCE = 3
"""Equal applies in a row before they are spaced out, because somebody keeps changing the child back. Failures in a row
before they are shown as a condition."""
QUIET = 600.0
"""seconds without an apply after which a child counts as undisturbed again."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a child could not be written as wanted."""

    condition: Condition
    digest: str
    generation: int
    retry_at: float


@dataclass(slots=True)
class Ledger:
    """What is remembered between ticks of one SpeculativeDeployment about writing its children."""

    problems: dict[Slot, Problem] = field(default_factory=dict)
    foreign: dict[Slot, tuple[Body, float]] = field(default_factory=dict)
    applied: dict[Slot, tuple[str, int, float]] = field(default_factory=dict)
    """Digest of the manifest last applied, how often in a row, and when."""
    failures: dict[Slot, int] = field(default_factory=dict)
    """Number of applies in a row that failed in a way that may pass by itself."""
    made: dict[Slot, Body] = field(default_factory=dict)
    """The children as the API server stored them: what it normalises is no drift."""

    def conditions(self) -> tuple[Condition, ...]:
        return tuple(problem.condition for _, problem in sorted(self.problems.items()))

    def strangers(self, now: float) -> dict[Slot, Body]:
        """Objects of others that bear the names of our children, as long as they are remembered."""
        self.foreign = {slot: held for slot, held in self.foreign.items() if held[1] > now}
        return {slot: body for slot, (body, _) in self.foreign.items()}

    def may_apply(self, slot: Slot, digest: str, generation: int, now: float) -> bool:
        """False while the same manifest was refused, or was applied again and again without lasting effect."""
        problem = self.problems.get(slot)
        if problem is not None and (problem.digest, problem.generation) == (digest, generation):
            return now >= problem.retry_at
        last, times, at = self.applied.get(slot, ("", 0, -inf))
        if last != digest or times < PATIENCE:
            return True
        return not 0 <= now - at < min(5.0 * 2.0 ** min(times - PATIENCE, 16), 300.0)

    def forget(self, wanted: Collection[Slot]) -> bool:
        """Drop the problems of children that are not in `wanted`; True where there were any: an edit was taken back, a
        child is as wanted by now, or a Deployment waits for its next pair."""
        past = self.problems.keys() - set(wanted)
        for slot in past:
            del self.problems[slot]
        return bool(past)

    def note_failed(self, slot: Slot) -> int:
        """Count an apply that brought no answer, or none of use; returns how many came in a row."""
        self.failures[slot] = self.failures.get(slot, 0) + 1
        return self.failures[slot]

    def is_repeated(self, slot: Slot, digest: str, now: float) -> bool:
        """True where the same manifest was lately applied MOST_REPAIRS times in a row."""
        last, times, at = self.applied.get(slot, ("", 0, -inf))
        return last == digest and times >= contest.MOST_REPAIRS and now - at < QUIET

    def note_applied(self, slot: Slot, digest: str, now: float) -> int:
        """Count an apply; returns how many equal ones came in a row."""
        last, times, at = self.applied.get(slot, ("", 0, -inf))
        times = times + 1 if last == digest and now - at < QUIET else 1
        self.applied[slot] = (digest, times, now)
        self.problems.pop(slot, None)
        self.failures.pop(slot, None)
        return times
