"""What an InferenceService is told beside its pods: a part of `spec`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InferenceServiceSettings:
    """What an InferenceService is told beside its pods. Empty: not told."""

    display_name: str = ""
    description: str = ""
    exposed: bool = False
    authenticated: bool = False
    connection: str = ""
    hardware_profile: str = ""
    hardware_profile_namespace: str = ""
    queue: str = ""
