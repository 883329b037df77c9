"""Parts of `spec` about the platform beside the pods: the route of a Gateway, and the objects of KServe."""

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


@dataclass(frozen=True, slots=True)
class InferenceServiceSettings:
    """Settings of an InferenceService or LLMInferenceService besides its pods. Empty: not set."""

    display_name: str = ""
    description: str = ""
    exposed: bool = False
    authenticated: bool = False
    anonymous: bool = False
    """Clients need no token, where the platform would ask for one by default (LLMInferenceService)."""
    connection: str = ""
    hardware_profile: str = ""
    hardware_profile_namespace: str = ""
    queue: str = ""
    tls: bool = False
    """The engine answers by HTTPS, with the certificate that KServe mounts."""

    @property
    def scheme(self) -> str:
        """Scheme of the engine's URLs."""
        return "https" if self.tls else "http"
