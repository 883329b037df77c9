"""How pods are replaced when their template changes, chosen by looking at free accelerators. Used by `desired`.

A new pod that waits for the accelerator of the pod it replaces waits for ever (kserve#4618). So, for `Auto`:

- known to be free for one more replica: the new pod comes first, serving never dips;
- would not fit even without the old one: likewise, for the old pod's end would help nobody;
- else with several replicas: one goes first, the others serve on;
- else: the only pod goes first. Serving pauses for one start, which no choice could avoid without a spare accelerator.
"""

from __future__ import annotations

from typing import Any

from speculative_operator.domain.spec import DeploymentSpec, RolloutStrategy
from speculative_operator.reconcile.room import Room

RECREATE: dict[str, Any] = {"type": "Recreate"}
NEW_FIRST: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
OLD_FIRST: dict[str, Any] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
EVERY = (RECREATE, NEW_FIRST, OLD_FIRST)


def choose(spec: DeploymentSpec, room: Room | None, *, owns_replicas: bool = True) -> dict[str, Any]:
    """The Deployment's `spec.strategy`. `room`: for one more pod; None when unknown.

    An explicit RollingUpdate starts the new pod first, unless it is known that this would wait for ever. Where others
    set the Deployment's replicas (`owns_replicas` False), the spec's say nothing: there may be many, and all at once
    would go. A single one is replaced as by Recreate, and the strategy does not change with each step of theirs.
    """
    if spec.rollout_strategy is RolloutStrategy.RECREATE:
        return RECREATE
    if spec.rollout_strategy is RolloutStrategy.ROLLING_UPDATE:
        return OLD_FIRST if room is Room.TAKEN else NEW_FIRST
    if room in (Room.FREE, Room.NOWHERE):
        return NEW_FIRST
    return OLD_FIRST if spec.replicas > 1 or not owns_replicas else RECREATE


def possible(spec: DeploymentSpec) -> tuple[dict[str, Any], ...]:
    """Every strategy that `choose` may have chosen for `spec`, in whatever state the cluster was then."""
    if spec.rollout_strategy is RolloutStrategy.RECREATE:
        return (RECREATE,)
    return EVERY if spec.rollout_strategy is RolloutStrategy.AUTO else (NEW_FIRST, OLD_FIRST)
