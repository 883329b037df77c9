"""What an object of KServe is told beside its pods: a part of `spec`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InferenceServiceSettings:
    """What an InferenceService or LLMInferenceService is told beside its pods. Empty: not told."""

    display_name: str = ""
    description: str = ""
    exposed: bool = False
    authenticated: bool = False
    anonymous: bool = False
    """Nobody is to be asked for a token, where the platform would ask by itself: an LLMInferenceService."""
    connection: str = ""
    hardware_profile: str = ""
    hardware_profile_namespace: str = ""
    queue: str = ""
    tls: bool = False
    """The engine answers by HTTPS, with the certificate that KServe mounts."""

    @property
    def scheme(self) -> str:
        """Of the engine's URLs."""
        return "https" if self.tls else "http"
