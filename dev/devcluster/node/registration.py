"""The Node object and its Lease: how the control plane knows that this node lives. Kept by ``agent``."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from .api import MERGE, STRATEGIC, Api, ApiError
from .config import NodeConfig
from .status import timestamp

_log = logging.getLogger(__name__)

_RENEW_SECONDS = 10.0
_LEASE_SECONDS = 40
_STATUS_SECONDS = 300.0
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
KUBELET_VERSION = "v1.36.3"


def labels(config: NodeConfig) -> dict[str, str]:
    """Labels of the Node: the well-known ones and the configured ones."""
    return {
        "kubernetes.io/hostname": config.name,
        "kubernetes.io/arch": _architecture(),
        "kubernetes.io/os": "linux",
        **config.labels,
    }


def _architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def status(config: NodeConfig, boot_id: str, now: float) -> dict[str, Any]:
    """The Node's status: what it offers, that it is well, and where its kubelet API is."""
    well = [("Ready", "True", "KubeletReady", "the process node is ready")]
    well += [
        (f"{what}Pressure", "False", f"KubeletHasNo{what}Pressure", "not measured")
        for what in ("Memory", "Disk", "PID")
    ]
    stamp = timestamp(now)
    return {
        "capacity": config.resources,
        "allocatable": config.resources,
        "addresses": [{"type": "InternalIP", "address": config.address}, {"type": "Hostname", "address": config.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": config.kubelet_port}},
        "conditions": [
            {"type": t, "status": s, "reason": r, "message": m, "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
            for t, s, r, m in well
        ],
        "nodeInfo": {
            "machineID": boot_id,
            "systemUUID": boot_id,
            "bootID": boot_id,
            "kernelVersion": platform.release(),
            "osImage": "processes of the host",
            "containerRuntimeVersion": "process://1",
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": _architecture(),
        },
    }


class Registration:
    """Registers the node and keeps it registered."""

    def __init__(self, api: Api, config: NodeConfig) -> None:
        self._api = api
        self._config = config
        self._boot_id = uuid.uuid4().hex
        self._uid = ""

    async def register(self) -> None:
        """Create or adopt the Node and report its status. Raises ApiError."""
        meta = {"name": self._config.name, "labels": labels(self._config)}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"podCIDR": str(self._config.pod_cidr)}}
        try:
            node = await self._api.post("/api/v1/nodes", body)
        except ApiError as error:
            if error.status != 409:
                raise
            node = await self._api.patch(
                f"/api/v1/nodes/{self._config.name}", {"metadata": {"labels": meta["labels"]}}, MERGE
            )
        self._uid = node["metadata"]["uid"]
        await self._report()
        await self._renew()

    async def run(self) -> None:
        """Renew the Lease every 10 s and the status every 5 min until cancelled; one late renewal harms nobody."""
        reported = time.monotonic()
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                await self._renew()
                if time.monotonic() - reported > _STATUS_SECONDS:
                    await self._report()
                    reported = time.monotonic()
            except ApiError as error:
                _log.warning("node %s: %s", self._config.name, error)

    async def _report(self) -> None:
        body = {"status": status(self._config, self._boot_id, time.time())}
        await self._api.patch(f"/api/v1/nodes/{self._config.name}/status", body, STRATEGIC)

    async def _renew(self) -> None:
        name = self._config.name
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        try:
            await self._api.patch(f"{path}/{name}", {"spec": spec}, MERGE)
        except ApiError as error:
            if error.status != 404:
                raise
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": self._uid}
            meta = {"name": name, "ownerReferences": [owner]}
            await self._api.post(
                path, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
            )
