"""How requests from outside of the cluster reach the Service: `spec.route`. A part of `v1alpha1`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from speculative_operator.api.scalars import ObjectName
from speculative_operator.api.wire import Rule, Text, Wire
from speculative_operator.domain.spec import Target

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_REMEDY = f"remove route, or set target: {Target.DEPLOYMENT}"
ROUTE_OF_KSERVE = f"KServe makes the routes of its objects: {_REMEDY}"
CANARY_OF_ITSELF = "which is this object: name another one of the namespace, or remove canary"
ROUTE_RULES = (
    Rule(
        "route-of-kserve",
        f"!has(self.route) || !self.target.endsWith('{Target.INFERENCE_SERVICE}')",
        f"route is set but target is {{self.target}}, and {ROUTE_OF_KSERVE}",
        "route",
        "FieldValueForbidden",
    ),
)
ROUTE_ROOT_RULES = (
    Rule(
        "canary-of-another",
        "!has(self.spec.route) || !has(self.spec.route.canary) || self.spec.route.canary.name != self.metadata.name",
        f"spec.route.canary.name is {{self.metadata.name}}, {CANARY_OF_ITSELF}",
        "spec.route.canary.name",
    ),
)

_Hostname = Annotated[
    str,
    Text(rf"(\*\.)?({_LABEL}\.)*[a-z]([-a-z0-9]*[a-z0-9])?", "write a host, such as qwen.example.com", 253),
]
_Path = Annotated[
    str,
    Text(r"/|(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+", "write an absolute path without / at its end, such as /qwen", 256),
]


class Gateway(Wire):
    """A Gateway of the Gateway API."""

    name: ObjectName
    """Name of the Gateway."""
    namespace: ObjectName | None = None
    """Namespace of the Gateway. Default: the object's own."""
    listener: ObjectName | None = None
    """Listener of the Gateway. Default: all that take the route."""


class Canary(Wire):
    """Another object of the namespace, which gets a share of the requests: a model, speculator or release to try."""

    name: ObjectName
    """Name of the other SpeculativeDeployment. It must serve the same model name (verifier.servedName)."""
    weight: Annotated[int, Field(ge=0, le=100)]
    """Percent of the requests that it gets while a pod of it is ready; else all go to this object."""


class Route(Wire):
    """An HTTPRoute from a Gateway to the object's Service. The cluster must have the kind HTTPRoute
    (gateway.networking.k8s.io/v1); without it the model is served, and Ready is False with RouteUnsupported."""

    gateway: Gateway
    """The Gateway. It must take routes from the object's namespace."""
    hostnames: Annotated[tuple[_Hostname, ...], Field(min_length=1, max_length=16)] | None = None
    """Hosts of the requests, such as qwen.example.com or *.example.com. Default: all of the listener."""
    path: _Path = "/"
    """Requests whose path begins with it go to the Service, without it: with path /qwen, /qwen/v1/models arrives as
    /v1/models."""
    canary: Canary | None = None
    """Another object that gets a share of the requests. Default: none."""
