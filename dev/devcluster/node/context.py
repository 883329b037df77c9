"""What every part of a running node shares; made once by ``agent`` and handed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from .api import Api
from .config import NodeConfig
from .events import Events
from .hosts import Hosts
from .network import BridgeNetwork
from .objects import Objects


@dataclass(frozen=True)
class Node:
    """The node's configuration and its connections to the world."""

    config: NodeConfig
    api: Api
    network: BridgeNetwork
    objects: Objects
    hosts: Hosts
    events: Events
    http: aiohttp.ClientSession
    api_host: str
    """Address of the Service `kubernetes`: the first of the service range, as every cluster has it."""

    def memory_dir(self, uid: str) -> Path:
        """A pod's files that live in memory only: secrets, tokens, container specs."""
        return self.config.run_dir / "pods" / uid

    def disk_dir(self, uid: str) -> Path:
        """A pod's emptyDirs."""
        return self.config.state_dir / "pods" / uid

    def log_dir(self, pod: Mapping[str, Any]) -> Path:
        """The logs of a pod; they outlive it, so that what went wrong can be read afterwards."""
        meta = pod["metadata"]
        return self.config.state_dir / "logs" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
