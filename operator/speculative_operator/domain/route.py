"""How a Gateway leads requests to the Service: a part of `spec`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Canary:
    """Another object of the namespace that gets a share of the requests."""

    name: str
    weight: int
    """Percent."""


@dataclass(frozen=True, slots=True)
class CanarySeen:
    """What the cluster says now of the object that a canary names."""

    served_name: str = ""
    """Model that its spec names; empty where that is refused."""
    service: bool = False
    """The operator made a Service for it."""
    answering: int = 0
    """Pods of it that are ready and answer for the model of the object that names it."""


@dataclass(frozen=True, slots=True)
class Route:
    """How a Gateway leads requests to the Service. Empty: not told."""

    gateway: str
    gateway_namespace: str = ""
    listener: str = ""
    hostnames: tuple[str, ...] = ()
    path: str = "/"
    canary: Canary | None = None
