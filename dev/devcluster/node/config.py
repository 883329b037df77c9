"""What a process node is told: one JSON file, which `startup` writes and ``__main__`` reads once."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from devcluster.options import Image

from .images import normalize

REPOSITORY = Path(__file__).resolve().parents[3]

# Nothing enforces requests here, and manifests for accelerator nodes ask for a lot: the fake node is that large.
DEFAULT_CAPACITY = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "4Ti", "pods": "250"}
_REQUIRED = frozenset({"name", "server", "kubeconfig", "address", "podCIDR", "serviceCIDR", "stateDir", "kubeletPort",
                       "certificate", "key", "accelerators", "labels", "images"})  # fmt: skip
_SETTINGS = frozenset({"capacity", "visible", "syncSeconds", "crashBackoffSeconds"})
"""Keys that `ClusterOptions.node_settings` may add."""


class ConfigError(ValueError):
    """A node configuration that cannot be used; the text names the key, the value and the remedy."""


@dataclass(frozen=True)
class NodeConfig:
    """Everything a node needs to know. Seconds for durations, addresses as text, paths absolute."""

    name: str
    server: str
    kubeconfig: Path
    address: str
    pod_cidr: IPv4Network
    service_cidr: IPv4Network
    state_dir: Path
    kubelet_port: int
    certificate: Path
    """Serving certificate of the kubelet API, and its key."""
    key: Path
    accelerators: Mapping[str, int] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_CAPACITY))
    labels: Mapping[str, str] = field(default_factory=dict)
    visible: tuple[Path, ...] = ()
    sync_seconds: float = 60.0
    crash_backoff_seconds: float = 10.0
    images: Mapping[str, Image] = field(default_factory=dict)
    """By normalized name."""

    @property
    def run_dir(self) -> Path:
        """Memory-backed directory for what must vanish with the enclosure: secrets, tokens, container specs."""
        return self.state_dir / "run"

    @property
    def resources(self) -> dict[str, str]:
        """Capacity and allocatable of the Node object."""
        return {**self.capacity, **{name: str(count) for name, count in self.accelerators.items()}}


def load(path: Path) -> NodeConfig:
    """The configuration of a file. Raises ConfigError for keys that are unknown or missing."""
    data = json.loads(path.read_text())
    odd = (data.keys() - _REQUIRED - _SETTINGS) | (_REQUIRED - data.keys())
    if odd:
        raise ConfigError(f"{path}: {', '.join(sorted(odd))}: want {sorted(_REQUIRED)}; may have {sorted(_SETTINGS)}")
    return NodeConfig(
        name=data["name"],
        server=data["server"],
        kubeconfig=Path(data["kubeconfig"]),
        address=data["address"],
        pod_cidr=IPv4Network(data["podCIDR"]),
        service_cidr=IPv4Network(data["serviceCIDR"]),
        state_dir=Path(data["stateDir"]).resolve(),
        kubelet_port=data["kubeletPort"],
        certificate=Path(data["certificate"]),
        key=Path(data["key"]),
        accelerators=data["accelerators"],
        capacity={**DEFAULT_CAPACITY, **data.get("capacity", {})},
        labels=data["labels"],
        visible=(Path(sys.prefix), Path(sys.base_prefix), REPOSITORY, *map(Path, data.get("visible", ()))),
        sync_seconds=data.get("syncSeconds", 60.0),
        crash_backoff_seconds=data.get("crashBackoffSeconds", 10.0),
        images={
            normalize(name): Image(tuple(image["entrypoint"]), image["env"]) for name, image in data["images"].items()
        },
    )
