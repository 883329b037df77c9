"""What a process node is told: one JSON file, read once at start by ``__main__``.

Only the ``images`` part is read again while running (``images.ImageStore``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]

# Nothing enforces requests here, and manifests for accelerator nodes ask for a lot: the fake node is that large.
DEFAULT_CAPACITY = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "4Ti", "pods": "250"}


class ConfigError(ValueError):
    """A node configuration that cannot be used; the text names the key, the value and the remedy."""


@dataclass(frozen=True)
class NodeConfig:
    """Everything a node needs to know. Seconds for durations, addresses as text, paths absolute."""

    name: str
    kubeconfig: Path
    address: str
    pod_cidr: IPv4Network
    service_cidr: IPv4Network
    state_dir: Path
    server: str | None = None
    kubelet_port: int = 10250
    accelerators: Mapping[str, int] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_CAPACITY))
    labels: Mapping[str, str] = field(default_factory=dict)
    visible: tuple[Path, ...] = ()
    tls: tuple[Path, Path] | None = None
    sync_seconds: float = 60.0
    crash_backoff_seconds: float = 10.0
    source: Path = Path("node.json")

    @property
    def run_dir(self) -> Path:
        """Memory-backed directory for what must vanish with the enclosure: secrets, tokens, container specs."""
        return self.state_dir / "run"

    @property
    def resources(self) -> dict[str, str]:
        """Capacity and allocatable of the Node object."""
        return {**self.capacity, **{name: str(count) for name, count in self.accelerators.items()}}


def load(path: Path) -> NodeConfig:
    """Read and check a configuration file. Raises ConfigError."""
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"node configuration {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"node configuration {path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"node configuration {path}: want a JSON object, got {type(data).__name__}")
    return parse(data, path)


def parse(data: Mapping[str, Any], source: Path = Path("node.json")) -> NodeConfig:
    """Turn the JSON object into a NodeConfig. Raises ConfigError on unknown, missing or unusable keys."""
    unknown = sorted(set(data) - _KEYS)
    if unknown:
        raise ConfigError(f"{unknown[0]}: unknown key; known keys are {', '.join(sorted(_KEYS))}")
    network = _network(data, "podCIDR")
    visible = (Path(sys.prefix), Path(sys.base_prefix), REPOSITORY, *(Path(p) for p in data.get("visible", ())))
    tls = data.get("tls")
    return NodeConfig(
        name=_text(data, "name"),
        server=data.get("server"),
        kubeconfig=Path(_text(data, "kubeconfig")),
        address=_address(data),
        pod_cidr=network,
        service_cidr=_network(data, "serviceCIDR"),
        state_dir=Path(_text(data, "stateDir")).resolve(),
        kubelet_port=int(_number(data, "kubeletPort", 10250)),
        accelerators={str(k): int(v) for k, v in data.get("accelerators", {}).items()},
        capacity={**DEFAULT_CAPACITY, **data.get("capacity", {})},
        labels=dict(data.get("labels", {})),
        visible=visible,
        tls=(Path(tls["cert"]), Path(tls["key"])) if tls else None,
        sync_seconds=_number(data, "syncSeconds", 60.0),
        crash_backoff_seconds=_number(data, "crashBackoffSeconds", 10.0),
        source=source,
    )


_KEYS = frozenset(
    {
        *("name", "server", "kubeconfig", "address", "podCIDR", "serviceCIDR", "accelerators", "capacity", "labels"),
        *("images", "stateDir", "kubeletPort", "visible", "tls", "syncSeconds", "crashBackoffSeconds"),
    }
)


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{key}: want a non-empty string, got {value!r}")
    return value


def _number(data: Mapping[str, Any], key: str, default: float) -> float:
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ConfigError(f"{key}: want a number above 0, got {value!r}")
    return float(value)


def _address(data: Mapping[str, Any]) -> str:
    text = _text(data, "address")
    try:
        address = IPv4Address(text)
    except AddressValueError as error:
        raise ConfigError(f"address: {text!r} is not an IPv4 address") from error
    if address.is_loopback:
        raise ConfigError(
            f"address: {text} is a loopback address, which endpoints may not use; take one of 10.88.0.0/16"
        )
    return text


def _network(data: Mapping[str, Any], key: str) -> IPv4Network:
    text = _text(data, key)
    try:
        return IPv4Network(text)
    except (AddressValueError, NetmaskValueError, ValueError) as error:
        raise ConfigError(f"{key}: {text!r} is not an IPv4 network such as 10.88.1.0/24") from error
