"""A pod's volumes: made when it starts, kept up to date while it runs, removed when it is gone.

``pod`` prepares and refreshes them; ``container`` asks for the mounts of one container.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import atomic, payloads, syscalls
from .api import ApiError
from .context import Node
from .fields import FieldError
from .payloads import PayloadError, TokenWish
from .quantity import parse

_log = logging.getLogger(__name__)


class VolumeError(RuntimeError):
    """A volume is not usable (yet); the text is for the pod's event."""


class PodVolumes:
    """The volumes of one pod, by name."""

    def __init__(self, node: Node, pod: Mapping[str, Any], address: str) -> None:
        self._node = node
        self._uid = pod["metadata"]["uid"]
        self._address = address
        self._paths: dict[str, Path] = {}
        self._projected: set[str] = set()
        self._mounted: list[Path] = []
        self._tokens: dict[TokenWish, tuple[str, float, float]] = {}

    async def prepare(self, pod: Mapping[str, Any]) -> None:
        """Make every volume. Raises VolumeError where something is missing; may be called again."""
        for volume in pod["spec"].get("volumes") or ():
            if payloads.is_projected(volume):
                self._projected.add(volume["name"])
                self._paths[volume["name"]] = self._node.memory_dir(self._uid) / "volumes" / volume["name"]
            elif volume["name"] not in self._paths:
                self._paths[volume["name"]] = await self._make(volume, pod)
        await self._project(pod)

    async def refresh(self, pod: Mapping[str, Any]) -> None:
        """Bring projected volumes up to date; what cannot be read now stays as it is."""
        try:
            await self._project(pod)
        except VolumeError as error:
            _log.warning("%s: volumes not refreshed: %s", pod["metadata"]["name"], error)

    async def _project(self, pod: Mapping[str, Any]) -> None:
        volumes = [v for v in pod["spec"].get("volumes") or () if v["name"] in self._projected]
        if not volumes:
            return
        wanted, wishes = payloads.needed(volumes)
        try:
            objects = await self._node.objects.get_all(pod["metadata"]["namespace"], wanted)
            tokens = {wish: await self._token(pod, wish) for wish in wishes}
            inputs = payloads.Inputs(pod, self._address, self._node.config.address, objects, tokens)
            for volume in volumes:
                self._fill(self._paths[volume["name"]], payloads.files(volume, inputs))
        except (ApiError, PayloadError, FieldError, OSError) as error:
            raise VolumeError(str(error)) from error

    def _fill(self, path: Path, files: Mapping[str, atomic.File]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        atomic.write(path, files, time.time())

    async def _token(self, pod: Mapping[str, Any], wish: TokenWish) -> str:
        """The token at hand while it is good, else a new one. Raises ApiError."""
        known = self._tokens.get(wish)
        now = time.time()
        if known is not None:
            token, issued, expires = known
            if payloads.still_good(issued, expires, now):
                return token
        token, expires = await self._node.objects.token(pod, wish)
        self._tokens[wish] = (token, now, expires)
        return token

    async def _make(self, volume: Mapping[str, Any], pod: Mapping[str, Any]) -> Path:
        if "emptyDir" in volume:
            return self._empty_dir(volume)
        if "hostPath" in volume:
            return _host_path(volume["hostPath"])
        if "persistentVolumeClaim" in volume:
            return await self._claim(volume["persistentVolumeClaim"]["claimName"], pod)
        kind = next((key for key in volume if key != "name"), "of no kind")
        raise VolumeError(f"volume {volume['name']}: {kind} is not supported by the process node")

    def _empty_dir(self, volume: Mapping[str, Any]) -> Path:
        source = volume["emptyDir"] or {}
        in_memory = source.get("medium") == "Memory"
        base = self._node.memory_dir(self._uid) if in_memory else self._node.disk_dir(self._uid)
        path: Path = base / "volumes" / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        if in_memory:
            size = f",size={int(parse(str(source['sizeLimit'])))}" if source.get("sizeLimit") else ""
            syscalls.mount("tmpfs", str(path), "tmpfs", syscalls.MS_NODEV, f"mode=777{size}")
            self._mounted.append(path)
        path.chmod(0o777)
        return path

    async def _claim(self, name: str, pod: Mapping[str, Any]) -> Path:
        try:
            claim = await self._node.objects.get("PersistentVolumeClaim", pod["metadata"]["namespace"], name)
            if claim is None:
                raise VolumeError(f'persistentvolumeclaim "{name}" not found')
            if claim.get("status", {}).get("phase") != "Bound":
                raise VolumeError(f'persistentvolumeclaim "{name}" is not bound')
            spec = (await self._node.objects.volume(claim["spec"]["volumeName"]))["spec"]
        except ApiError as error:
            raise VolumeError(str(error)) from error
        if "hostPath" not in spec:
            raise VolumeError(f'persistentvolumeclaim "{name}": only hostPath volumes exist on the process node')
        return _host_path({"path": spec["hostPath"]["path"], "type": "DirectoryOrCreate"})

    def mounts(self, container: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The mounts of a container, in the launcher's terms. Raises VolumeError."""
        return [self._mount(mount) for mount in container.get("volumeMounts") or ()]

    def _mount(self, mount: Mapping[str, Any]) -> dict[str, Any]:
        name = mount["name"]
        source = self._paths[name]
        if "subPathExpr" in mount:
            raise VolumeError(f"subPathExpr of volume {name} is not supported by the process node")
        part = mount.get("subPath", "")
        if part:
            # Resolved now, once: this is why a subPath mount of a ConfigMap never changes.
            base, source = source.resolve(), (source / part).resolve()
            if not source.is_relative_to(base):
                raise VolumeError(f"subPath {part!r} of volume {name} leaves the volume")
            if not source.exists():
                if name in self._projected:
                    raise VolumeError(f"subPath {part!r} does not exist in volume {name}")
                source.mkdir(parents=True, mode=0o777)
        read_only = bool(mount.get("readOnly")) or name in self._projected
        return {"target": mount["mountPath"], "source": str(source), "read_only": read_only}

    async def remove(self) -> None:
        """Remove everything that belongs to the pod alone."""
        for path in self._mounted:
            with contextlib.suppress(OSError):
                syscalls.unmount(str(path))
        for path in (self._node.memory_dir(self._uid), self._node.disk_dir(self._uid)):
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


def _host_path(source: Mapping[str, Any]) -> Path:
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate" and not path.exists():
        path.mkdir(parents=True)
    if not path.exists():
        raise VolumeError(f"hostPath {path} does not exist" + (f" ({kind} asked for)" if kind else ""))
    if kind.startswith("Directory") and not path.is_dir():
        raise VolumeError(f"hostPath type check failed: {path} is not a directory")
    return path
