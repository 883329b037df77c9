"""The check of `doctor` on accelerators: how many are free, by node, of the kinds that objects ask for."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from speculative_operator.cli.cluster import Object
from speculative_operator.cli.looks import GOOD, Found, Look, full_name
from speculative_operator.reconcile.formats import quantity
from speculative_operator.reconcile.room import request_of


def accelerators(look: Look) -> Iterator[Found]:
    """Yield the free accelerators of each kind, and a fault where pods wait and no node has enough."""
    asked = {resource for body in look.objects for pod in look.pods_of(body) for resource, _ in _scarce(pod)}
    free = {resource: _free(look, resource) for resource in sorted(asked)}
    for resource, nodes in free.items():
        spare = ", ".join(f"{left} of {every} on {name}" for name, (left, every) in nodes.items() if left > 0)
        yield Found(f"{resource} free: {spare or 'none'}", "", GOOD)
    for body in look.objects:
        waiting = [pod for pod in look.pods_of(body) if not pod["spec"].get("nodeName")]
        for resource, count in {one for pod in waiting for one in _scarce(pod)}:
            if all(left < count for left, _ in free[resource].values()):
                message = (
                    f"{full_name(body)}: {len(waiting)} pods wait for {count} {resource} each; no node has as many free"
                )
                yield Found(message, "free some, or add a node: kubectl get pods -A -o wide")


def _scarce(pod: Object) -> list[tuple[str, Decimal]]:
    """The resources other than the node's own that a pod asks for, with their amounts."""
    return [(name, count) for name, count in (request_of(pod) or {}).items() if "/" in name and count > 0]


def _free(look: Look, resource: str) -> dict[str, tuple[Decimal, Decimal]]:
    """Node -> the free and the whole amount of a resource, for nodes that have any and take pods."""
    taken: dict[str, Decimal] = {}
    for pod in look.pods:
        node = pod["spec"].get("nodeName") or ""
        taken[node] = taken.get(node, Decimal(0)) + (request_of(pod) or {}).get(resource, Decimal(0))
    found = {}
    for node in look.at.nodes():
        name, every = (
            node["metadata"]["name"],
            quantity(((node.get("status") or {}).get("allocatable") or {}).get(resource)),
        )
        if every and not node["spec"].get("unschedulable"):
            found[name] = (every - taken.get(name, Decimal(0)), every)
    return found
