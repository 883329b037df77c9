"""How many more pods fit on a node beside all running ones, as the scheduler would see it. Asked by `shell.room`.

Only certain room counts: a resource without a readable figure, a pod that waits and could take the same place, or a
constraint that the template alone does not answer mean no room. A doubt costs a proposal in place of a rollout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from speculative_operator.domain.reading import at, items, mapping, mappings, text
from speculative_operator.reconcile.formats import quantity

Amounts = Mapping[str, Decimal]
"""Name of a resource -> its amount."""
_PODS = "pods"
_UNJUDGED = (
    ("affinity", "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
    ("affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
    ("topologySpreadConstraints",),
    ("resourceClaims",),
    ("hostNetwork",),
    ("schedulingGates",),
)
"""Parts of a pod's spec with which the template alone does not tell where the pod may run."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
DEFAULT_SCHEDULER = "default-scheduler"


class Room(Enum):
    """What is known of a place for one more pod."""

    FREE = "free"
    """One more pod fits beside all running ones."""
    TAKEN = "taken"
    """One more pod would fit once one of the object's own pods has ended, and not before."""
    NOWHERE = "nowhere"
    """One more pod would not fit even then: no node could run it, or pods of others take the place."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one more pod asks of a node."""

    amounts: Amounts
    pod: Mapping[str, Any]
    """Spec of the pod."""

    @property
    def selector(self) -> str:
        """Label selector of the nodes that the pod may run on, for a LIST."""
        return ",".join(f"{key}={value}" for key, value in sorted(mapping(self.pod, "nodeSelector").items()))


def need_of(template: Mapping[str, Any]) -> Need | None:
    """What a pod of `template` asks for; None where that cannot be judged."""
    pod = mapping(template, "spec")
    amounts = request_of(template)
    if amounts is None or any(at(pod, *path) for path in _UNJUDGED):
        return None
    if text(pod, "schedulerName") not in ("", DEFAULT_SCHEDULER):
        return None
    ports = (port for one in mappings(pod, "containers") for port in mappings(one, "ports"))
    return None if any(at(port, "hostPort") for port in ports) else Need(amounts, pod)


def request_of(pod: Mapping[str, Any]) -> Amounts | None:
    """What the scheduler counts for a pod: its containers together with the init containers that stay, or the largest
    other init container with those, whichever is more, and the overhead. None where a quantity is none."""
    spec = mapping(pod, "spec")
    init = tuple(mappings(spec, "initContainers"))
    staying = [_of(one) for one in init if text(one, "restartPolicy") == "Always"]
    passing = [_of(one) for one in init if text(one, "restartPolicy") != "Always"]
    running = [_of(one) for one in mappings(spec, "containers")]
    overhead = _amounts(mapping(spec, "overhead"))
    every = (*staying, *passing, *running, overhead)
    if any(one is None for one in every):
        return None
    known = [one for one in staying if one is not None]
    steady = _sum((*known, *(one for one in running if one is not None)))
    starts = [_sum((*known, one)) for one in passing if one is not None]
    most = {name: max(each.get(name, Decimal(0)) for each in (steady, *starts)) for name in _names(steady, *starts)}
    return {**_sum((most, overhead or {})), _PODS: Decimal(1)}


def may_run_on(need: Need, node: Mapping[str, Any]) -> bool:
    """True where nothing but resources keeps the pod from the node."""
    if at(node, "spec", "unschedulable") is True or text(node, "metadata", "deletionTimestamp"):
        return False
    ready = {text(one, "status") for one in mappings(node, "status", "conditions") if text(one, "type") == "Ready"}
    labels, name = mapping(node, "metadata", "labels"), text(node, "metadata", "name")
    named = text(need.pod, "nodeName")
    return (
        ready == {"True"}
        and named in ("", name)
        and all(labels.get(key) == value for key, value in mapping(need.pod, "nodeSelector").items())
        and _in_affinity(need.pod, labels, name)
        and all(_is_tolerated(taint, need.pod) for taint in mappings(node, "spec", "taints"))
    )


def fits(
    need: Need, node: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], waiting: Iterable[Mapping[str, Any]]
) -> bool:
    """True where the node has room for one more pod beside `pods`, which are all pods of the node, and beside those of
    `waiting` that may be put there first. Pods that are being deleted still hold their resources."""
    free = _amounts(mapping(node, "status", "allocatable"))
    taken = [request_of(pod) for pod in pods if text(pod, "status", "phase") not in ("Succeeded", "Failed")]
    if free is None or any(one is None for one in taken):
        return False
    used = _sum(one for one in taken if one is not None)
    left = {name: amount - used.get(name, Decimal(0)) for name, amount in free.items()}
    asked = [request_of(pod) for pod in waiting if _may_be_put_on(pod, node)]
    if any(one is None for one in asked):
        return False
    first = _sum(one for one in asked if one is not None and _within(one, left))
    return _within(_sum((need.amounts, first)), left)


def places(
    need: Need,
    node: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]],
    waiting: Iterable[Mapping[str, Any]],
    wanted: int,
) -> int:
    """The number of further pods that the node has room for, up to `wanted`; otherwise like `fits`."""
    pods, waiting, found = tuple(pods), tuple(waiting), 0
    while found < wanted and fits(_times(need, found + 1), node, pods, waiting):
        found += 1
    return found


def _times(need: Need, count: int) -> Need:
    return Need({name: amount * count for name, amount in need.amounts.items()}, need.pod)


def _may_be_put_on(pod: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """False where node selector, affinity or taints keep the waiting pod away; True where that cannot be judged."""
    need = need_of(pod)
    return need is None or may_run_on(need, node)


def most(node: Mapping[str, Any], need: Need) -> Decimal:
    """The node's amount of the scarcest resources of `need`, such as accelerators, else of CPU: nodes with most come
    first."""
    scarce = [name for name in need.amounts if "/" in name] or ["cpu"]
    free = _amounts(mapping(node, "status", "allocatable")) or {}
    return sum((free.get(name, Decimal(0)) for name in scarce), Decimal(0))


def is_large_enough(need: Need, node: Mapping[str, Any]) -> bool:
    """True where the node would have room for the pod if it were empty."""
    free = _amounts(mapping(node, "status", "allocatable"))
    return free is not None and _within(need.amounts, free)


def _within(asked: Amounts, left: Amounts) -> bool:
    return all(amount <= left.get(name, Decimal(0)) for name, amount in asked.items() if amount > 0)


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


def _names(*parts: Amounts) -> set[str]:
    return {name for part in parts for name in part}


def _is_tolerated(taint: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    if text(taint, "effect") not in _KEEPS_AWAY:
        return True
    return any(_tolerates(one, taint) for one in mappings(pod, "tolerations"))


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if text(toleration, "effect") not in ("", text(taint, "effect")) or at(toleration, "tolerationSeconds") is not None:
        return False
    if text(toleration, "key") not in ("", text(taint, "key")):
        return False
    if text(toleration, "operator") == "Exists":
        return True
    return text(toleration, "key") != "" and text(toleration, "value") == text(taint, "value")


def _in_affinity(pod: Mapping[str, Any], labels: Mapping[str, Any], name: str) -> bool:
    required = mapping(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(
        all(_matches(one, labels) for one in mappings(term, "matchExpressions"))
        and all(_matches(one, {"metadata.name": name}) for one in mappings(term, "matchFields"))
        for term in mappings(required, "nodeSelectorTerms")
        if items(term, "matchExpressions") or items(term, "matchFields")
    )


def _matches(requirement: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, values = text(requirement, "key"), items(requirement, "values")
    match text(requirement, "operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt" as way:
            return _compares(way, labels.get(key), values)
    return False


def _compares(way: str, value: Any, values: Any) -> bool:
    try:
        held, bound = int(value), int(values[0])
    except (TypeError, ValueError, IndexError):
        return False
    return held > bound if way == "Gt" else held < bound
