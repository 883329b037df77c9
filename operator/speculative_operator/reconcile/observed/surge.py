"""A rollout whose new pod finds no node, as the scheduler itself says of that pod. Used by `tick` and what it calls.

A new pod that waits takes nothing from anybody. It is the end of an old pod that costs serving, so here is decided, at
the moment at which it would happen, whether one may end for a new one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal

from speculative_operator.domain.spec import DeploymentSpec, RolloutStrategy
from speculative_operator.reconcile.snapshot.pods import Pod
from speculative_operator.reconcile.snapshot.workload import Stuck

WAIT_SECONDS = 60.0
"""Seconds for which a new pod waits for a node before anything is done about it: pods of others end, nodes come."""

_LACKING = re.compile(r"\bInsufficient ([^\s,]*[^\s,.])")
_CORDONED = "were unschedulable"
"""What the scheduler says of cordoned nodes."""


def find_stuck(pods: tuple[Pod, ...], served: Collection[str], now: float, *, short: bool) -> Stuck | None:
    """The pod that waits for a node in vain beside pods of another template; None without one. `served`: names of pods
    that were ready once; `short`: fewer pods are ready than asked for."""
    for pod in pods:
        others = [one for one in pods if _holds_a_place(one) and one.template not in ("", pod.template)]
        if not _waits(pod, now) or not pod.template or not others:
            continue
        return Stuck(
            pod.name,
            replaceable=_CORDONED not in pod.unschedulable and all(_may_follow(pod, one) for one in others),
            restarted=any(one.restarted != pod.restarted for one in others),
            idle=short and any(one.engine.started is False and one.name not in served for one in others),
        )
    return None


def judge(spec: DeploymentSpec, stuck: Stuck, *, unasked: bool, interrupts: bool, only: bool) -> Stuck:
    """`stuck` with why no old pod may end for it. `unasked`: no user asked for the rollout; `interrupts`: the spec
    allows such a one to interrupt serving now; `only`: one replica is asked for."""
    why_not = ""
    if not stuck.replaceable:
        why_not = "the end of an old pod would not make the room that the new one needs"
    elif stuck.idle:
        pass
    elif spec.rollout_strategy is not RolloutStrategy.AUTO:
        why_not = f"spec.rollout.strategy is {spec.rollout_strategy.value}"
    elif unasked and not interrupts:
        why_not = "no user asked for the rollout"
    elif stuck.restarted and only:
        why_not = "a restart does not end the only pod"
    return replace(stuck, unasked=unasked, why_not=why_not)


def explain(stuck: Stuck) -> str:
    """What happens to the rollout, and what a user can do."""
    waits = f"the scheduler has found no node for the new pod {stuck.pod} for {WAIT_SECONDS:g} s"
    if not stuck.why_not:
        return f"{waits}; an old pod ends to make room for it"
    return (
        f"{waits}, and old pods serve on: {stuck.why_not}. Free what the pod needs or add a node; or set "
        "spec.rollout.strategy: Recreate, by which old pods end first, whether or not new ones find a node"
    )


def _waits(pod: Pod, now: float) -> bool:
    since = pod.unschedulable_since
    return bool(pod.unschedulable) and since is not None and now - since >= WAIT_SECONDS and not pod.terminating


def _holds_a_place(pod: Pod) -> bool:
    return bool(pod.node) and not pod.over and not pod.terminating


def _may_follow(pod: Pod, old: Pod) -> bool:
    """True where `pod` finds a place once `old` has ended, by what the scheduler says."""
    lacking, asked, freed = set(_LACKING.findall(pod.unschedulable)), pod.requests, old.requests
    if not lacking or asked is None or freed is None or not pod.claims <= old.claims:
        return False
    alike = pod.placement == old.placement
    return alike and all(0 < asked.get(name, Decimal(0)) <= freed.get(name, Decimal(0)) for name in lacking)
