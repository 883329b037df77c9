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
    """Present state of the object that a canary names."""

    served_name: str = ""
    """Model name that the canary's spec serves; empty where that spec is refused."""
    service: bool = False
    """True where the operator made a Service for the canary."""
    answering: int = 0
    """Ready pods of the canary that answer for the model of the object that names it."""


@dataclass(frozen=True, slots=True)
class Route:
    """How a Gateway leads requests to the Service. Empty fields are not set."""

    gateway: str
    gateway_namespace: str = ""
    listener: str = ""
    hostnames: tuple[str, ...] = ()
    path: str = "/"
    canary: Canary | None = None
