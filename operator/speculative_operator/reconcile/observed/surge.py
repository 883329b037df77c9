"""A rollout whose new pod finds no node, as the scheduler itself says of that pod. Used by `tick` and what it calls.

A new pod that waits takes nothing from anybody. It is the end of an old pod that costs serving, so here is decided, at
the moment at which it would happen, whether one may end for a new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import at, mapping, mappings, seconds_of, text
from speculative_operator.domain.spec import DeploymentSpec, RolloutStrategy
from speculative_operator.reconcile.observed import startup
from speculative_operator.reconcile.observed.formats import quantity
from speculative_operator.reconcile.world import World

WAIT_SECONDS = 60.0
"""Seconds for which a new pod waits for a node before anything is done about it: pods of others end, nodes come."""

Amounts = Mapping[str, Decimal]
"""Name of a resource -> its amount."""
_TEMPLATES = ("pod-template-hash", "leaderworkerset.sigs.k8s.io/template-revision-hash")
"""Labels by which controllers tell pods of one template from those of another."""
_RESTARTED = "kubectl.kubernetes.io/restartedAt"
_PLACEMENT = (
    "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName", "runtimeClassName",
    "resourceClaims", "hostNetwork", "priority",
)  # fmt: skip
"""Fields of a pod's spec that decide on which nodes it may run."""
_LACKING = re.compile(r"\bInsufficient ([^\s,]*[^\s,.])")
_CORDONED = "were unschedulable"
"""What the scheduler says of cordoned nodes."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """The new pod of a rollout for which the scheduler has found no node for a while."""

    pod: str
    replaceable: bool
    """True where the end of an old pod makes room for it: it may run where old ones run, and asks for no more of what
    the scheduler says is lacking."""
    restarted: bool = False
    """True where somebody restarted the pods with kubectl."""
    idle: bool = False
    """True where fewer pods are ready than asked for, and the engine of an old one has never come up."""
    unasked: bool = False
    """True where no user asked for the rollout."""
    why_not: str = ""
    """Why no old pod may end for it; empty where one may."""

    @property
    def goes_back(self) -> bool:
        """True where the rollout is to be undone: nobody asked for it, and it cannot go on."""
        return self.unasked and bool(self.why_not) and not self.restarted


def find_stuck(world: World, now: float, *, short: bool) -> Stuck | None:
    """The pod that waits for a node in vain beside pods of another template; None without one. `short`: fewer pods are
    ready than asked for."""
    for pod in world.pods:
        template, reason = _template_of(pod), _unschedulable(pod, now)
        others = [one for one in world.pods if _holds_a_place(one) and _template_of(one) not in ("", template)]
        if not reason or not template or not others:
            continue
        return Stuck(
            text(pod, "metadata", "name"),
            replaceable=_CORDONED not in reason and all(_may_follow(pod, one, reason) for one in others),
            restarted=any(_restarted(one) != _restarted(pod) for one in others),
            idle=short and any(_never_served(world, one) for one in others),
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


def request_of(pod: Mapping[str, Any]) -> Amounts | None:
    """What the scheduler counts for a pod: its containers together with the init containers that stay, or the largest
    other init container with those, whichever is more, and the overhead. None where a quantity is none."""
    spec = mapping(pod, "spec")
    init = tuple(mappings(spec, "initContainers"))
    staying = [_of(one) for one in init if text(one, "restartPolicy") == "Always"]
    passing = [_of(one) for one in init if text(one, "restartPolicy") != "Always"]
    running = [_of(one) for one in mappings(spec, "containers")]
    overhead = _amounts(mapping(spec, "overhead"))
    if any(one is None for one in (*staying, *passing, *running, overhead)):
        return None
    known = [one for one in staying if one is not None]
    steady = _sum((*known, *(one for one in running if one is not None)))
    starts = [_sum((*known, one)) for one in passing if one is not None]
    every = {name for part in (steady, *starts) for name in part}
    most = {name: max(each.get(name, Decimal(0)) for each in (steady, *starts)) for name in every}
    return _sum((most, overhead or {}))


def _unschedulable(pod: Mapping[str, Any], now: float) -> str:
    """What the scheduler says of a pod that it has found no node for; empty for others, and for a while."""
    for one in mappings(pod, "status", "conditions"):
        if (text(one, "type"), text(one, "status"), text(one, "reason")) == ("PodScheduled", "False", "Unschedulable"):
            since = seconds_of(text(one, "lastTransitionTime"))
            waits = since is not None and now - since >= WAIT_SECONDS and not _is_ending(pod)
            return text(one, "message") or "Unschedulable" if waits else ""
    return ""


def _holds_a_place(pod: Mapping[str, Any]) -> bool:
    over = text(pod, "status", "phase") in ("Succeeded", "Failed")
    return bool(text(pod, "spec", "nodeName")) and not over and not _is_ending(pod)


def _is_ending(pod: Mapping[str, Any]) -> bool:
    return bool(text(pod, "metadata", "deletionTimestamp"))


def _template_of(pod: Mapping[str, Any]) -> str:
    return next((found for label in _TEMPLATES if (found := text(pod, "metadata", "labels", label))), "")


def _may_follow(pod: Mapping[str, Any], old: Mapping[str, Any], reason: str) -> bool:
    """True where `pod` finds a place once `old` has ended, by what the scheduler says."""
    lacking, asked, freed = set(_LACKING.findall(reason)), request_of(pod), request_of(old)
    if not lacking or asked is None or freed is None or not _claims(pod) <= _claims(old):
        return False
    alike = all(at(pod, "spec", field) == at(old, "spec", field) for field in _PLACEMENT)
    return alike and all(0 < asked.get(name, Decimal(0)) <= freed.get(name, Decimal(0)) for name in lacking)


def _claims(pod: Mapping[str, Any]) -> set[str]:
    return {text(one, "persistentVolumeClaim", "claimName") for one in mappings(pod, "spec", "volumes")} - {""}


def _restarted(pod: Mapping[str, Any]) -> str:
    return text(pod, "metadata", "annotations", _RESTARTED)


def _never_served(world: World, pod: Mapping[str, Any]) -> bool:
    """True for a pod whose engine has not come up, and that no measured start is known of."""
    engines = [one for one in mappings(pod, "status", "containerStatuses") if text(one, "name") == names.CONTAINER]
    known = {one.pod for one in startup.starts(world.status)}
    return any(at(one, "started") is False for one in engines) and text(pod, "metadata", "name") not in known


def _of(container: Mapping[str, Any]) -> Amounts | None:
    """Requests of one container; where there is only a limit, that is the request."""
    limits, requests = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
    return _amounts({**limits, **requests})


def _amounts(given: Mapping[str, Any]) -> Amounts | None:
    found = {str(name): quantity(value) for name, value in given.items()}
    known = {name: value for name, value in found.items() if value is not None and value >= 0}
    return known if len(known) == len(found) else None


def _sum(parts: Iterable[Amounts]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Decimal(0)) + amount
    return total
