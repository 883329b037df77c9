"""Which ConfigMap holds the table of which pods, and which table pods of a former pair read while they serve on.

A table belongs to a pair: while a new one comes up, and for as long as its rollout lasts or stalls, pods of the old one
read their own table, which is watched by their own figures. Used by `active_table`, `desired` and `tick`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from speculative_operator.domain import names
from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.spec import DeploymentSpec, OffPolicy
from speculative_operator.domain.table import Actuator, KnobSpace, KTable, Trial
from speculative_operator.reconcile.snapshot.pods import Pod
from speculative_operator.reconcile.snapshot.tables import LARGEST_VERSION, Leaving, Written
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.snapshot.template import pair_in
from speculative_operator.reconcile.snapshot.workload import Workload
from speculative_operator.render import table_config
from speculative_operator.render.metadata import pair_hash
from speculative_operator.render.podspec import TABLE_VOLUME, table_name

LONGEST_JUMP = 64
"""Versions by which the cluster may be ahead of status: an operator that is killed loses one or two."""
MOST_LEAVING = 4
"""Former pairs whose pods are watched: with more edits than that under way the oldest keep their tables."""


def label_of(spec: DeploymentSpec) -> str:
    """Label of the pair that pods made of `spec` bear; a template of the user's may set another."""
    return pair_in(spec.template) or pair_hash(spec)


def config_name(world: Snapshot, spec: DeploymentSpec, own: Collection[str]) -> str:
    """Name of the ConfigMap with the table of `spec`, for pods whose label is one of `own`: the one that the running
    template mounts, where it is of this pair, for its versions may have been pinned since."""
    return _config_of(world, own) or table_name(spec)


def _config_of(world: Snapshot, own: Collection[str]) -> str:
    """Name of the ConfigMap that the running template mounts, where it is of the pairs `own`; else the one that pods of
    these pairs mount which serve on after an edit was taken back. Empty where none mounts a table."""
    if world.workload.pair in own:
        return world.workload.configs.get(TABLE_VOLUME, "")
    serving = (one for one in world.pods if one.pair in own and not one.terminating)
    return next((name for one in serving if (name := one.configs.get(TABLE_VOLUME))), "")


def claim_in(world: Snapshot, config: str, known: int) -> Written | None:
    """The table in a ConfigMap of ours, if it is newer than version `known` and exactly as it was rendered."""
    found = world.children.get(("ConfigMap", config))
    claim = claim_of(found.table, known) if found is not None else None
    if found is None or claim is None or claim.table is None:
        return None
    rendered = table_config(world.spec, config, claim.table, claim.version, trials=claim.trials)
    same = found.hash == rendered["metadata"]["annotations"][names.ANNOTATION_HASH]
    return claim if same and found.data == rendered["data"] else None


def claim_of(written: Written, known: int) -> Written | None:
    """The table that was written, if there is one and its version can follow on version `known` (0: none is known)."""
    most = min(known + LONGEST_JUMP, LARGEST_VERSION) if known else LARGEST_VERSION
    return written if written.table is not None and known < written.version <= most else None


def trials_in(world: Snapshot, config: str, version: int, table: KTable) -> tuple[Trial, ...]:
    """The trials that the ConfigMap names for this very table; none where it is not as we have rendered it."""
    claim = claim_in(world, config, version - 1) if version > 0 else None
    return claim.trials if claim is not None and (claim.version, claim.table) == (version, table) else ()


def read_leaving(world: Snapshot, own: Collection[str]) -> tuple[Leaving, ...]:
    """The tables of pods that serve, or are about to, and belong to none of the pairs `own`. Pods that read
    the table of `own` under another label have none to themselves: two tuners would take turns at it."""
    shared = _config_of(world, own)
    labels = sorted({pod.pair for pod in world.pods if not pod.terminating} - {"", *own})
    known = {one.pair: one for one in world.status.leaving}
    found = (_leaving(world, label, known.get(label)) for label in labels)
    return tuple(one for one in found if one is not None and (not shared or one.config != shared))[:MOST_LEAVING]


def _leaving(world: Snapshot, label: str, known: Leaving | None) -> Leaving | None:
    config = known.config if known is not None else _config_read_by(world, label)
    claim = claim_in(world, config, known.version if known is not None else 0)
    table = claim.table if claim is not None else None
    if claim is None or table is None:
        return known
    version = claim.version + bool(claim.trials)  # the same table, and nothing is tried any more
    ks = tuple(sorted({0, *table.ks, *(known.ks if known is not None else ())}))
    why = known.reason if known is not None else ""
    return Leaving(label, config, table, version, ks, why)


def _config_read_by(world: Snapshot, label: str) -> str:
    """Name of the ConfigMap that pods of a pair read: the one that they or the running template mount, else the name
    that we give it."""
    bearers: tuple[Pod | Workload, ...] = (*world.pods, world.workload)
    told = (one.configs.get(TABLE_VOLUME) for one in bearers if one.pair == label)
    return next((one for one in told if one), names.child(world.spec.name, f"table-{label}"))


def of_pods(observation: Observation | None, pods: Iterable[Pod], pairs: Collection[str]) -> Observation | None:
    """The observation without pods that are known to be of other pairs than `pairs`; None where no pod is left."""
    if observation is None or observation.gap is not None:
        return observation
    wanted = {pod.name for pod in pods if pod.pair in pairs}
    others = {pod.name for pod in pods} - wanted
    seen = {name: one for name, one in observation.pods.items() if name not in others}
    return replace(observation, pods=seen) if seen or not observation.pods else None


def policy_for(leaving: Leaving, policy: Policy) -> Policy:
    """The tuner's policy for pods of a former pair: it may use any K that they have prepared, at once, and nothing
    else. Of their models and costs it knows only what the pods show."""
    knobs = KnobSpace(Actuator.LIVE, leaving.ks, leaving.table.max_batch)
    free = replace(policy, schedule=None, start_k=None, off_policy=OffPolicy.KEEP_RUNNING, trials=False)
    return replace(free, knobs=knobs, facts=PairFacts())


def with_decision(leaving: Leaving, table: KTable, version: int, decision: Decision | None) -> Leaving:
    """`leaving` with the table that the tuner has decided for."""
    if decision is None or version == leaving.version:
        return leaving
    return replace(leaving, table=table, version=version, reason=decision.reason.value)
