"""What share of an accelerator a pod gets: a slice with memory of its own (MIG), or a part whose size no name tells
(time slices, partitions, claims of dynamic resource allocation).

`share_of` is the one reading of it. Called by `physics.catalog` for memory and rates, by `render` for requests, and by
the command line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from speculative_operator.domain.reading import items, mapping
from speculative_operator.domain.spec import DeploymentSpec

_SLICE = re.compile(r"(?:mig-)(?:\d+c\.)?(\d+)g\.(\d+)gb", re.IGNORECASE)
"""A MIG slice as device plug-ins and node labels name it: `mig-3g.40gb`, `-MIG-1g.10gb`, `mig-1g.10gb.me`."""
_PARTITION = re.compile(r"amd\.com/(?!spx_nps1)[sdtqc]px_nps\d", re.IGNORECASE)
_SHARED = re.compile(r"[.-]shared$", re.IGNORECASE)
_PARTITION_SIZE = "cloud.google.com/gke-gpu-partition-size"
_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
_CLAIM_OF_SLICES = "deviceclass.resource.kubernetes.io/mig."


@dataclass(frozen=True, slots=True)
class Share:
    """A part of an accelerator."""

    name: str
    product: str
    """The whole accelerator's name, as far as the spec has it."""
    parts: int = 0
    """Parts of the processors, of the seven (A30: four) that the whole one has; 0: unknown."""
    gigabytes: int = 0
    """Memory of its own; 0: unknown."""


def share_of(spec: DeploymentSpec) -> Share | None:
    """The share that a pod of `spec` gets of each accelerator; None where it gets whole ones, as far as names tell."""
    asked, pod = spec.accelerator, mapping(spec.template, "spec")
    selected = mapping(pod, "nodeSelector")
    product = re.sub(r"[- ]mig-.*|[.-]shared$", "", asked.product, flags=re.IGNORECASE)
    size = f"mig-{selected[_PARTITION_SIZE]}" if selected.get(_PARTITION_SIZE) else ""
    if any(map(_SHARED.search, (asked.resource, asked.product))) or selected.get(_SHARING):
        return Share("a time slice", product)
    for name in (asked.resource, asked.product, size):
        if found := _SLICE.search(name):
            return Share(f"MIG {found[1]}g.{found[2]}gb", product, int(found[1]), int(found[2]))
    if _PARTITION.match(asked.resource):
        return Share(f"the partition {asked.resource}", product)
    claims = asked.per_replica == 0 and items(pod, "resourceClaims")  # else they may be of network cards
    if asked.resource.startswith(_CLAIM_OF_SLICES) or claims:
        return Share("what the pod's resource claims name", product)
    return None
