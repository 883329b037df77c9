"""What the containers of one pod share: its network, names, volumes, directories; and the launcher spec of each.

Made by ``pod`` before the first container starts, used by ``container`` for every start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.options import Image

from .context import Node
from .env import Scope, hostname, referenced
from .hosts import DOMAIN
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
        meta, spec = self.pod["metadata"], self.pod["spec"]
        name = hostname(self.pod)
        full = f"{name}.{spec['subdomain']}.{meta['namespace']}.svc.{DOMAIN}\t{name}" if spec.get("subdomain") else name
        own = [f"{self.address}\t{full}"]
        own += ["\t".join([alias["ip"], *alias.get("hostnames", ())]) for alias in spec.get("hostAliases") or ()]
        self.node.hosts.add(meta["uid"], self.memory_dir / "hosts", meta["namespace"], own)

    async def scope(self, container: Mapping[str, Any]) -> Scope:
        """What the environment of a container may refer to. Raises ApiError."""
        namespace = self.pod["metadata"]["namespace"]
        links = self.pod["spec"].get("enableServiceLinks", True)
        return Scope(
            pod=self.pod,
            address=self.address,
            node_address=self.node.config.address,
            allocatable=self.node.config.resources,
            objects=await self.node.objects.get_all(namespace, referenced(container)),
            services=self.node.services_of(namespace) if links else (),
            api_service=self.node.api_service,
        )

    def message_file(self, name: str) -> Path:
        return self.memory_dir / f"message-{name}"

    def read_message(self, container: Mapping[str, Any], exit_code: int, log: Path) -> str:
        """What the container left as its last words (terminationMessagePath and -Policy)."""
        path = self.message_file(container["name"])
        text = path.read_bytes()[:_MESSAGE_BYTES] if path.exists() else b""
        if (
            not text
            and exit_code
            and container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
            and log.exists()
        ):
            with log.open("rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - 2048, 0))
                text = file.read()
        return text.decode(errors="replace")

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
            {"target": container.get("terminationMessagePath") or _MESSAGE_PATH, "source": str(message)},
            *self.volumes.mounts(container, env),
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
