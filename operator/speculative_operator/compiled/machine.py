"""What compiled code depends on that no manifest tells: processor, driver and accelerators of the node.

Called by `__main__`. Code compiled for one processor ends a process on another one, so nodes of different kinds never
share a folder. Files of /proc and /sys are the same in every container of a node; what cannot be read tells nothing.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from pathlib import Path

_CPU = ("model name", "flags", "Features", "CPU implementer", "CPU part", "processor version")


def machine(root: Path = Path("/")) -> str:
    """Eight hexadecimal digits that are the same on nodes of one kind."""
    told = [platform.machine(), *_processor(root), *_accelerators(root)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:8]


def _processor(root: Path) -> Iterator[str]:
    """Yield the lines of the first processor that say what code it runs."""
    for line in _lines(root / "proc/cpuinfo"):
        if not line.strip():
            return
        name, _, value = line.partition(":")
        if name.strip() in _CPU:
            yield f"{name.strip()}: {' '.join(sorted(value.split()))}"


def _accelerators(root: Path) -> Iterator[str]:
    nvidia = root / "proc/driver/nvidia"
    yield from _lines(nvidia / "version")[:1]
    found = {line for file in nvidia.glob("gpus/*/information") for line in _lines(file) if line.startswith("Model:")}
    amd = (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    found |= {line for file in amd for line in _lines(file) if line.startswith("gfx_target_version")}
    yield from sorted(found)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
