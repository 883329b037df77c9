"""The platform around the pods: the route of a Gateway, objects of KServe, makers of accelerators, pods' privileges.

Routes and KServe's settings are parts of `spec`, and so is the vendor, by which engines and render tell images and
resources. The settings allow privileges, reconcile refuses templates that ask for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Promotion(StrEnum):
    """Who promotes a canary that has passed its last step."""

    AUTOMATIC = "Automatic"
    APPROVE = "Approve"


@dataclass(frozen=True, slots=True)
class Analysis:
    """How the operator decides about a canary."""

    steps: tuple[int, ...]
    """Percent of the requests in each step, ascending."""
    step_seconds: int
    deadline_seconds: int
    worse_by_percent: int
    ttft_worse_by_percent: int
    least_acceptance_percent: int
    promotion: Promotion = Promotion.AUTOMATIC


@dataclass(frozen=True, slots=True)
class Measuring:
    """How rows of the catalogue are measured beside the speculator that serves."""

    deadline_seconds: int = 1800
    """Seconds for which a candidate is compared at most."""
    priority_class_name: str = ""
    """PriorityClass of a candidate's pod; empty: the cluster's default."""


@dataclass(frozen=True, slots=True)
class Canary:
    """Another object of the namespace that gets a share of the requests."""

    name: str
    weight: int
    """Percent; with `analysis`, what `reconcile` puts there for the present step."""
    analysis: Analysis | None = None


@dataclass(frozen=True, slots=True)
class CanarySeen:
    """Present state of the object that a canary names."""

    served_name: str = ""
    """Model name that the canary's spec serves; empty where that spec is refused."""
    service: bool = False
    """True where the operator made a Service for the canary."""
    answering: int = 0
    """Ready pods of the canary that answer for the model of the object that names it."""
    made_of: str = ""
    """Hash of its uid and of its spec, without what an edit may change in the middle of an analysis: replicas and
    route. Empty where that spec is refused."""
    restarts: int = 0
    """Restarts of the containers of its pods, added up."""
    outputs_differ: bool = False
    """True where its condition OutputsVerified is False."""


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


class Vendor(StrEnum):
    """Makers of accelerators, as far as engines treat them differently."""

    NVIDIA = "NVIDIA"
    AMD = "AMD"
    GAUDI = "Gaudi"
    INTEL_GPU = "IntelGPU"
    NEURON = "Neuron"
    TPU = "TPU"
    CPU = "CPU"
    OTHER = "Other"
    """An unknown resource: the operator assumes nothing about it."""


_PREFIXES = (
    ("nvidia.com/", Vendor.NVIDIA),
    ("amd.com/", Vendor.AMD),
    ("habana.ai/", Vendor.GAUDI),
    ("gpu.intel.com/", Vendor.INTEL_GPU),
    ("aws.amazon.com/neuron", Vendor.NEURON),
    ("google.com/tpu", Vendor.TPU),
    ("gpu.nvidia.com/", Vendor.NVIDIA),
    ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", Vendor.NVIDIA),
    ("deviceclass.resource.kubernetes.io/mig.nvidia.com", Vendor.NVIDIA),
)


def vendor_of(resource: str, per_replica: int) -> Vendor:
    """The vendor of an extended resource such as `nvidia.com/gpu`; CPU where none is asked for."""
    if per_replica == 0:
        return Vendor.CPU
    return next((vendor for prefix, vendor in _PREFIXES if resource.startswith(prefix)), Vendor.OTHER)


class Privilege(StrEnum):
    """Privileges by the field that asks for them: those that Pod Security's level baseline refuses, identities,
    and what the operator keeps for itself."""

    HOST_NETWORK = "hostNetwork"
    HOST_PID = "hostPID"
    HOST_IPC = "hostIPC"
    HOST_PATH = "hostPath"
    HOST_PORT = "hostPort"
    HOST_PROCESS = "hostProcess"
    PROBED_HOST = "host"
    """A probe or hook that the kubelet sends elsewhere than to the pod."""
    PRIVILEGED = "privileged"
    CAPABILITIES = "capabilities"
    PROC_MOUNT = "procMount"
    SECCOMP = "seccompProfile"
    APP_ARMOR = "appArmorProfile"
    SE_LINUX = "seLinuxOptions"
    SYSCTLS = "sysctls"
    SERVICE_ACCOUNT = "serviceAccountName"
    TOKEN = "serviceAccountToken"  # noqa: S105  (the name of a kind of volume)
    """A token of the pod's ServiceAccount, mounted by itself or by a projected volume."""
    OPERATOR_VOLUMES = "operatorVolumes"
    """Writing to volumes that the operator renders, which other objects may read."""


EVERY = "*"
"""Stands for all names in a list of names."""
