"""The active table, its version, and whether pods run a speculator at all: told by the status, by the cluster where
that is ahead, else by the prior.

Called by `tick`. A change is applied before the status is written, so an operator that is killed between the two finds
the newer one in the cluster. It believes only what itself has rendered: a hand-edited table is put back, not adopted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import Actuator, KTable, Trial
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.table import tables
from speculative_operator.render.metadata import pair_hash
from speculative_operator.render.values import table_digest
from speculative_operator.tuner import initial_table, initial_trials
from speculative_operator.tuner.allowed import fit, fit_trials

SUSPENDED_VERSION = 0
"""Of the table of K = 0 while drafts are suspended: no active table has it, so nobody takes it for one."""
NO_TABLE = "none"
"""Stands in place of a table where pods run without speculation."""


@dataclass(frozen=True, slots=True)
class ActiveTable:
    """The active table, which pods run or are about to run.

    Its version grows by one with every change, over restarts too: with a new table, with the speculator's removal and
    with its return.
    """

    table: KTable | None
    """None without speculation. While `removed`, the table that waits for the pods' return."""
    version: int
    before: KTable | None = None
    """The table that it replaces in this reconcile; None where pods ran without a speculator."""
    why: Reason | None = None
    """The reason, when the spec has changed the table in this reconcile, or when only its trials changed; else None."""
    fresh: bool = False
    """True when the evidence gathered so far belongs to another pair."""
    removed: bool = False
    """True when the tuner has pods run without a speculator."""
    trials: tuple[Trial, ...] = ()
    """The trials that pods may run while the table is active."""
    rows_version: int = 0
    """Version that brought the table, where later versions have changed only the trials; else 0."""
    suspended_until: float = 0.0
    """Unix time until which pods that re-read their table have K = 0 in its place; 0: they have the table."""

    @property
    def text(self) -> str:
        """The table that pods run, for people."""
        return NO_TABLE if self.table is None or self.removed else str(self.table)

    @property
    def least_version(self) -> int:
        """The oldest version with this table: pods with an older one run another table."""
        return self.rows_version or self.version

    def with_trials(self, trials: tuple[Trial, ...]) -> ActiveTable:
        """The next version: the same table, with other trials."""
        return replace(
            self, version=self.version + 1, rows_version=self.least_version, trials=trials, before=self.table,
            why=Reason.TRIES_CHANGED,
        )  # fmt: skip


def active_table(world: Snapshot, spec: ResolvedSpec, policy: Policy, same: Collection[str] = ()) -> ActiveTable:
    """The table of the last reconcile, made to fit the spec as it is now.

    A new pair, and a table that the engine can no longer express, start from the prior again; in mode Static the spec
    says the table. Everything else keeps the table, cut or stretched to the new sizes and with each K lowered to one
    that may occur: never to more drafts than before. Pods stay without a speculator only while the spec leaves that to
    the tuner, for the pair that it was found for. While the object is paused nothing changes, whatever the spec says.
    `same`: other hashes that stand for this pair, such as before its versions were pinned.
    """
    own = {tables.label_of(spec), *same}
    last = _last(world, spec, policy, own)
    table, version = last.table, last.version
    if spec.paused:
        return ActiveTable(table, version, removed=last.removed)
    old_pair = world.status.pair.hash
    fresh = bool(old_pair) and old_pair != pair_hash(spec) and old_pair not in same
    before = None if last.removed else table
    if not spec.speculates or policy.knobs.actuator is Actuator.NONE:
        return ActiveTable(
            None, version, before=before, why=Reason.DISABLED if table is not None else None, fresh=fresh
        )
    removed = last.removed and not fresh and may_remove(policy)
    leaving = world.status.leaving if not removed and policy.knobs.actuator is Actuator.LIVE else ()
    left = next((one for one in leaving if one.pair in own), None)
    if left is not None:
        # Pods of this pair were leaving until now, and read a table of their own: they go on with that one.
        table, version = left.table, max(version, left.version)
    wanted = _wanted_table(table, policy, fresh and left is None)
    if left is None and (wanted, removed) == (table, last.removed):
        found = replace(last, fresh=fresh)
        trials = fit_trials(initial_trials(policy) if fresh else last.trials, wanted, policy)
        return found if trials == last.trials else found.with_trials(trials)
    why = None if table is None and version == 0 else Reason.SPEC_CHANGED
    begins = left is None and (table is None or fresh) and not removed
    trials = fit_trials(initial_trials(policy), wanted, policy) if begins else ()
    return ActiveTable(wanted, version + 1, before=before, why=why, fresh=fresh, removed=removed, trials=trials)


def may_remove(policy: Policy) -> bool:
    """True when the spec leaves it to the tuner to remove the speculator from the pods."""
    return policy.mode is Mode.AUTO and policy.off_policy is OffPolicy.REMOVE


def _wanted_table(table: KTable | None, policy: Policy, fresh: bool) -> KTable:
    if table is None or fresh or policy.mode is Mode.STATIC:
        return initial_table(policy)
    fitted = fit(table, policy)
    if policy.knobs.actuator is Actuator.RESTART and len(fitted.ks) > 1:
        return initial_table(policy)
    return fitted


def _last(world: Snapshot, spec: ResolvedSpec, policy: Policy, own: Collection[str]) -> ActiveTable:
    """The table that the last change has brought to the cluster."""
    told = world.status.speculation
    removed = told.removed and told.table is not None
    last = ActiveTable(told.table, told.version, removed=removed, rows_version=told.rows_version)
    last = _from_config(world, spec, last, own)
    return _from_deployment(world, last.version, policy) or last


def _from_config(world: Snapshot, spec: ResolvedSpec, last: ActiveTable, own: Collection[str]) -> ActiveTable:
    """`last`, or the table in the ConfigMap that pods of this pair read, if it is newer and exactly as it was rendered;
    with its trials. Where pods are of another pair, their ConfigMap says nothing of the table of this one."""
    if world.workload.exists and world.workload.pair not in own:
        # Without a drafter, and without a pod left that has one: then it can only be there for their return.
        off = world.workload.pair == tables.label_of(spec.without_speculator())
        if not off or any(pod.pair in own and not pod.terminating for pod in world.pods):
            return last
    config = tables.config_name(world, spec, own)
    claim = tables.claim_in(world, config, last.version)
    if claim is None:
        trials = tables.trials_in(world, config, last.version, last.table) if last.table and not last.removed else ()
        return replace(last, trials=trials)
    same = claim.table == last.table and not last.removed
    rows_version = (last.rows_version or last.version) if same else 0
    return ActiveTable(claim.table, claim.version, trials=claim.trials, rows_version=rows_version)


def _from_deployment(world: Snapshot, known: int, policy: Policy) -> ActiveTable | None:
    """The change that the Deployment says its pod template was rendered for, if it is newer than version `known`, bears
    the digest that we gave it, and is one that a template holds: a table that pods re-read stands elsewhere."""
    written = world.workload.table
    claim = tables.claim_of(written, known)
    if claim is None or claim.table is None or (policy.knobs.actuator is Actuator.LIVE and not written.removed):
        return None
    ours = table_digest(world.spec.uid, claim.table, claim.version, removed=written.removed)
    return ActiveTable(claim.table, claim.version, removed=written.removed) if written.digest == ours else None
