"""Settings of a KServe object besides its pods: a part of `spec`."""

from __future__ import annotations

from dataclasses import dataclass


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
