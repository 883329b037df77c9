"""Why a Gateway does not lead requests to the Service of `spec.route`, and whether its canary gets some. Used by
`tick`; `render` makes the HTTPRoute."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain import names
from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.snapshot.canaries import Phase
from speculative_operator.reconcile.snapshot.take import Snapshot

KIND = "HTTPRoute"
_LONGEST = 400
"""Most characters of a Gateway's message."""


def problems(world: Snapshot) -> tuple[Condition, ...]:
    """The condition that says why there is no route where the spec asks for one; else empty. All else goes on."""
    if world.spec.route is None or world.capabilities.http_route:
        return ()
    message = (
        "spec.route is set, but this cluster does not serve the kind HTTPRoute (gateway.networking.k8s.io/v1); install "
        "the Gateway API with a Gateway, or remove spec.route. The model is served without"
    )
    return (Condition(ConditionType.READY, Truth.FALSE, Reason.ROUTE_UNSUPPORTED, message),)


def canary(world: Snapshot) -> str:
    """Name of the Service that gets the share of `spec.route.canary` now; empty where none does: requests that are led
    to a Service without a ready pod fail."""
    asked = world.spec.route.canary if world.spec.route is not None else None
    return names.child(asked.name) if asked is not None and asked.weight and not left_out(world) else ""


def notices(world: Snapshot) -> Iterator[Notice]:
    """Notices that say why the canary gets no requests, and why the Gateway does not take the route as it is now."""
    asked = world.spec.route.canary if world.spec.route is not None else None
    why = left_out(world)
    if asked is not None and (asked.weight or _is_awaited(world)) and why and world.capabilities.http_route:
        message = f"spec.route.canary {asked.name} gets no requests, and this object all of them: {why}"
        yield Notice(Reason.CANARY_LEFT_OUT, message)
    found = world.children.get((KIND, names.child(world.spec.name)))
    if world.spec.route is not None and found is not None and found.owned and found.refusal:
        said = found.refusal[:_LONGEST]
        message = f"Gateway {world.spec.route.gateway} does not take HTTPRoute {world.spec.name}: {said}"
        yield Notice(Reason.ROUTE_NOT_ACCEPTED, message)


def _is_awaited(world: Snapshot) -> bool:
    """True while an analysis waits for its canary."""
    return world.status.canary is not None and world.status.canary.phase is Phase.WAITING


def left_out(world: Snapshot) -> str:
    """Why the object that the canary names cannot answer for this one; empty where it can."""
    seen, model = world.canary, world.spec.verifier.served_name
    if seen is None:
        return "no SpeculativeDeployment of that name is in the namespace; create it, or remove canary"
    if not seen.served_name:
        return "its spec is refused, as its condition Ready says"
    if seen.served_name != model:
        return f"it answers for the model {seen.served_name}, not for {model}; set its verifier.servedName: {model}"
    if not seen.service:
        return "the operator has made no Service for it, and never does for targets of KServe"
    return "" if seen.answering else f"no pod of it that answers for {model} is ready"
