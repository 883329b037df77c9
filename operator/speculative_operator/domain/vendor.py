"""The vendor of the accelerators, told by the requested extended resource. Used by engines and render."""

from __future__ import annotations

from enum import StrEnum


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
)


def vendor_of(resource: str, per_replica: int) -> Vendor:
    """The vendor of an extended resource such as `nvidia.com/gpu`; CPU where none is asked for."""
    if per_replica == 0:
        return Vendor.CPU
    return next((vendor for prefix, vendor in _PREFIXES if resource.startswith(prefix)), Vendor.OTHER)
