"""How a Gateway leads requests to the Service: a part of `spec`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """How a Gateway leads requests to the Service. Empty: not told."""

    gateway: str
    gateway_namespace: str = ""
    listener: str = ""
    hostnames: tuple[str, ...] = ()
    path: str = "/"
