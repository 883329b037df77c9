"""Volumes for claims: directories below the node's state directory, given out by StorageClass ``standard``.

Kept by the agent of every node: names come from the claim's uid, so two nodes that answer the same claim do no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .api import Api, ApiError
from .informer import Informer

_log = logging.getLogger(__name__)

CLASS = "standard"
PROVISIONER = "devcluster.local/directory"
_BY = "pv.kubernetes.io/provisioned-by"


def storage_class() -> dict[str, Any]:
    """The default StorageClass."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def wanted(claim: Mapping[str, Any]) -> bool:
    """Is this claim waiting for a volume of ours?"""
    spec, status = claim["spec"], claim.get("status") or {}
    waiting = status.get("phase", "Pending") == "Pending" and not spec.get("volumeName")
    return waiting and spec.get("storageClassName") == CLASS and not claim["metadata"].get("deletionTimestamp")


def volume_for(claim: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """The PersistentVolume that answers a claim."""
    meta, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{meta['uid']}"
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": CLASS,
            "claimRef": {**reference, "namespace": meta["namespace"], "name": meta["name"]},
            "hostPath": {"path": str(directory / name), "type": "DirectoryOrCreate"},
        },
    }


def released(volume: Mapping[str, Any]) -> bool:
    """Is this volume of ours free to be deleted?"""
    ours = (volume["metadata"].get("annotations") or {}).get(_BY) == PROVISIONER
    return (
        ours
        and (volume.get("status") or {}).get("phase") == "Released"
        and not volume["metadata"].get("deletionTimestamp")
    )


class Provisioner:
    """Watches claims and volumes and acts on them."""

    def __init__(self, api: Api, directory: Path) -> None:
        self._api = api
        self._directory = directory
        self._claims = Informer(api, "/api/v1/persistentvolumeclaims", self._claim)
        self._volumes = Informer(api, "/api/v1/persistentvolumes", self._volume)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Create the class, then serve claims until cancelled."""
        with contextlib.suppress(ApiError):  # 409: another node was first
            await self._api.post("/apis/storage.k8s.io/v1/storageclasses", storage_class())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claims.run())
            group.create_task(self._volumes.run())

    def _claim(self, event: str, claim: Mapping[str, Any]) -> None:
        if event != "DELETED" and wanted(claim):
            self._spawn(self._provide(claim))

    def _volume(self, event: str, volume: Mapping[str, Any]) -> None:
        if event != "DELETED" and released(volume):
            self._spawn(self._reclaim(volume))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _provide(self, claim: Mapping[str, Any]) -> None:
        volume = volume_for(claim, self._directory)
        path = Path(volume["spec"]["hostPath"]["path"])
        await asyncio.to_thread(path.mkdir, parents=True, exist_ok=True, mode=0o777)
        await asyncio.to_thread(path.chmod, 0o777)
        try:
            await self._api.post("/api/v1/persistentvolumes", volume)
        except ApiError as error:
            if error.status != 409:
                _log.warning("volume for claim %s: %s", claim["metadata"]["name"], error)

    async def _reclaim(self, volume: Mapping[str, Any]) -> None:
        path = Path(volume["spec"]["hostPath"]["path"])
        if path.is_relative_to(self._directory):
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
        try:
            await self._api.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")
        except ApiError as error:
            if error.status != 404:
                _log.warning("volume %s: %s", volume["metadata"]["name"], error)
