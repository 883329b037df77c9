"""Resource requests of the engine's container beside accelerators. Called by `values`; docs/operations.md has it.

A container that asks for nothing is the first that a node under pressure ends, and the last that gets processor time.
One that asks for more than nodes have for each of their accelerators is never scheduled. So each figure lies between:
what an engine cannot do without, and what the smallest usual nodes of one accelerator (4 processors, 15 GiB) can give.
There are no limits: an engine that is throttled or ended at one serves nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.reading import mapping, mappings
from speculative_operator.domain.shares import share_of
from speculative_operator.domain.spec import Scheme
from speculative_operator.engines.images import accelerators_of_pod
from speculative_operator.render.inputs import RenderInput
from speculative_operator.render.podspec import SHARED_MEMORY_GIB, engine_of

_GIB = 1024**3
FIRST_PROCESS_GIB = 4
"""API server and engine process with their libraries and the driver's context; unmeasured, on the low side."""
FURTHER_PROCESS_GIB = 2
"""GiB for the worker process of each further accelerator."""
SHARE_OF_WEIGHTS = 4
"""A quarter of the weights: they pass through the page cache, which the kernel takes back. All of them would not fit
nodes such as g2-standard-4 or g5.xlarge, whose memory is two thirds of their accelerator's."""
DISK_GIB = 1
"""GiB of disk for logs and for what the engine compiles."""
DOWNLOAD_PERCENT, DOWNLOAD_GIB = 105, 2
"""Percent of the weights, and GiB beside them: indices and what is written before it is renamed."""
_FOLDERS = frozenset({"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"})
"""Variables by which a user has the engine download elsewhere."""


def requests(inp: RenderInput) -> dict[str, str]:
    """Resource requests of the engine's container. What a limit is named for asks for as much as the limit."""
    limited = {*inp.container.limits, *mapping(_engine_of_user(inp), "resources", "limits")}
    asked = {"cpu": str(_processors(inp)), "memory": _gib(_memory(inp)), "ephemeral-storage": _gib(_disk(inp))}
    return {name: quantity for name, quantity in asked.items() if name not in limited}


def _processors(inp: RenderInput) -> int:
    """One for the engine's busy loop, and one for each worker. vLLM asks for 2 + N cores (docs/configuration/
    optimization.md), which nodes of four processors and one accelerator do not have: the API server takes what idles.
    """
    count = accelerators_of_pod(inp.spec)
    return count if _is_share(inp) else 1 + count


def _memory(inp: RenderInput) -> int:
    """Bytes of memory to request: the processes of the engine, shared memory and a share of the weights."""
    further = 0 if _is_share(inp) else max(accelerators_of_pod(inp.spec) - 1, 0)
    shared = SHARED_MEMORY_GIB if inp.container.shared_memory else 0
    fixed = (FIRST_PROCESS_GIB + FURTHER_PROCESS_GIB * further + shared) * _GIB
    # Without an accelerator the weights stay in the node's memory.
    on_node = inp.spec.accelerator.vendor is Vendor.CPU
    return fixed + inp.spec.weights.bytes // inp.spec.nodes // (1 if on_node else SHARE_OF_WEIGHTS)


def _disk(inp: RenderInput) -> int:
    """Bytes of the node's disk to request: more where the engine downloads its weights."""
    if not _downloads(inp):
        return DISK_GIB * _GIB
    return inp.spec.weights.bytes * DOWNLOAD_PERCENT // 100 + DOWNLOAD_GIB * _GIB


def _is_share(inp: RenderInput) -> bool:
    """True for slices and shares of an accelerator: a node of twelve processors may have seven of them."""
    return inp.spec.accelerator.vendor is Vendor.OTHER or share_of(inp.spec) is not None


def _downloads(inp: RenderInput) -> bool:
    """True where the engine downloads the verifier to the pod's own part of the node's disk."""
    engine, pod = _engine_of_user(inp), mapping(inp.spec.template, "spec")
    variables = {one.get("name") for one in (*inp.spec.engine.env, *mappings(engine, "env"))}
    moved = (
        any(volume.get("name") == "cache" for volume in mappings(pod, "volumes"))
        or any(
            str(mount.get("mountPath", "")).startswith(names.CACHE_MOUNT) for mount in mappings(engine, "volumeMounts")
        )
        or bool(variables & _FOLDERS)
        or any(argument.startswith("--download-dir") for argument in inp.container.args)
    )
    return inp.spec.verifier.source.scheme is Scheme.HF and not moved


def _engine_of_user(inp: RenderInput) -> Mapping[str, Any]:
    """The part of `spec.template` that the user lays over the engine's container."""
    return engine_of(mapping(inp.spec.template, "spec")) or {}


def _gib(size: int) -> str:
    """At least `size` bytes, written as the API server does."""
    whole = -(-size // _GIB)
    return f"{whole}Gi" if whole % 1024 else f"{whole // 1024}Ti"
