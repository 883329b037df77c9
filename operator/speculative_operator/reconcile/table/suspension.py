"""Whether drafts are suspended for a while, because an annotation of the object asks for it. Called by `tick`.

`speculative verify` asks, to compare the output with drafts and without in one pod. The table of K = 0 has a version
that no table of ours has, so nobody takes it for the active one; and the pods end it themselves, whoever has died.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from speculative_operator.domain import names
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.table.active_table import SUSPENDED_VERSION, ActiveTable

LONGEST_SECONDS = 900.0
"""So far ahead a suspension may end: drafts that pay are missed for as long."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """What the annotation comes to."""

    until: float = 0.0
    """Unix time until which K is 0; 0: drafts are not suspended."""
    notices: tuple[Notice, ...] = ()


def suspension_of(world: Snapshot, policy: Policy, active: ActiveTable, now: float) -> Suspension:
    """The suspension that is in force; none where none is asked for, where it is over, or where it cannot be."""
    until = world.suspended_until
    if not world.spec.suspend or (until is not None and now >= until):
        return Suspension()
    asked = f"the annotation {names.ANNOTATION_SUSPEND}"
    if (why := next(_hindrances(until, policy, active, now), "")) or until is None:
        message = f"{asked} is {world.spec.suspend[:40]!r} and ignored: {why}; remove it"
        return Suspension(notices=(Notice(Reason.SUSPENSION_IGNORED, message),))
    return Suspension(until, (Notice(Reason.DRAFTS_SUSPENDED, f"{asked} keeps K at 0 until {timestamp(until)}"),))


def resumed(world: Snapshot, active: ActiveTable, config: str) -> ActiveTable:
    """`active`; in its next version where pods still read K = 0 in its place, so that they get their time to follow."""
    found = world.children.get(("ConfigMap", config))
    zero = found is not None and found.table.table is not None and found.table.version == SUSPENDED_VERSION
    return active.with_trials(active.trials) if zero and active.why is None and active.version else active


def _hindrances(until: float | None, policy: Policy, active: ActiveTable, now: float) -> Iterator[str]:
    if until is None:
        yield "it must be a time such as 2026-11-28T08:00:00Z"
    elif until - now > LONGEST_SECONDS:
        yield f"it may be {LONGEST_SECONDS / 60.0:.0f} minutes ahead at most"
    if active.table is None or active.removed:
        yield "the pods run without a speculator"
    if policy.knobs.actuator is not Actuator.LIVE:
        yield "K of these pods changes only by a rollout"
    if 0 not in policy.knobs.ks:
        yield "K = 0 was not prepared when the pods started (offPolicy Never, or a schedule without 0)"
