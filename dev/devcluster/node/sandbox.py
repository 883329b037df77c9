"""What the containers of one pod share: its network, names, volumes, directories; and the launcher spec of each.

Made by ``pod`` before the first container starts, used by ``container`` for every start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.options import Image

from .context import Node
from .env import Scope, hostname, referenced
from .network import PodNetwork
from .volumes import PodVolumes

_MESSAGE_PATH = "/dev/termination-log"
_MESSAGE_BYTES = 4096


@dataclass
class Sandbox:
    """A pod's shared surroundings. `pod` is the newest object seen."""

    node: Node
    pod: Mapping[str, Any]
    network: PodNetwork | None
    address: str
    volumes: PodVolumes
    start_time: float

    @property
    def memory_dir(self) -> Path:
        return self.node.memory_dir(self.pod["metadata"]["uid"])

    def write_names(self) -> None:
        """Start the pod's hosts file; from then on services come and go in it."""
        self.memory_dir.mkdir(parents=True, exist_ok=True)
        meta = self.pod["metadata"]
        own = [f"{self.address}\t{hostname(self.pod)}"]
        self.node.hosts.add(meta["uid"], self.memory_dir / "hosts", meta["namespace"], own)

    async def scope(self, container: Mapping[str, Any]) -> Scope:
        """What the environment of a container may refer to. Raises ApiError."""
        namespace = self.pod["metadata"]["namespace"]
        return Scope(
            pod=self.pod,
            address=self.address,
            node_address=self.node.config.address,
            objects=await self.node.objects.get_all(namespace, referenced(container)),
            api_host=self.node.api_host,
        )

    def message_file(self, name: str) -> Path:
        return self.memory_dir / f"message-{name}"

    def read_message(self, container: str) -> str:
        """What the container left as its last words."""
        path = self.message_file(container)
        return path.read_bytes()[:_MESSAGE_BYTES].decode(errors="replace") if path.exists() else ""

    def launcher_spec(
        self, container: Mapping[str, Any], image: Image, argv: list[str], env: Mapping[str, str]
    ) -> dict[str, Any]:
        """The launcher's instructions for one container. Raises VolumeError."""
        config = self.node.config
        message = self.message_file(container["name"])
        message.write_bytes(b"")
        message.chmod(0o666)
        mounts: list[dict[str, Any]] = [
            {"target": "/etc/hosts", "source": str(self.memory_dir / "hosts")},
            {"target": "/etc/resolv.conf", "source": str(config.run_dir / "resolv.conf"), "read_only": True},
            {"target": _MESSAGE_PATH, "source": str(message)},
            *self.volumes.mounts(container),
        ]
        programs = [part for part in image.entrypoint if part.startswith("/") and Path(part).exists()]
        return {
            "argv": argv,
            "env": dict(env),
            "cwd": container.get("workingDir") or "/",
            "hostname": hostname(self.pod),
            "scratch": str(config.run_dir / "root"),
            "mounts": mounts,
            "visible": [*(str(path) for path in config.visible), *programs],
            "hidden": [str(config.state_dir)],
            "read_only_root": bool((container.get("securityContext") or {}).get("readOnlyRootFilesystem")),
        }
