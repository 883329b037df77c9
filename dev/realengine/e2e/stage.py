"""The cluster as the steps see it: objects, pods, engines and their counters. Used inside the cluster's network."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from demo import hub
from devcluster.apiclient import ApiClient
from devcluster.objects import Objects
from realengine import counters
from realengine.counters import Counters
from realengine.scene import NAMESPACE, Wish
from speculative_operator.domain import names

_SETTLED_SECONDS = 2.0


class StageError(RuntimeError):
    """Something did not come about; the message says what was waited for and what was seen."""


class Stage:
    """Connections to one cluster. Everything is asynchronous; requests to the API server run in threads."""

    def __init__(self, kubeconfig: str, http: aiohttp.ClientSession) -> None:
        self._api = ApiClient.from_kubeconfig(Path(kubeconfig))
        self._objects = Objects(self._api)
        self._http = http

    # -- objects -------------------------------------------------------------------------------------------------------

    async def _named(self, resource: str, name: str) -> dict[str, Any]:
        found = await asyncio.to_thread(self._objects.get, resource, name, NAMESPACE)
        if not found:
            raise StageError(f"there is no {resource} {name}")
        return found

    async def _merge(self, resource: str, name: str, change: dict[str, Any]) -> None:
        await asyncio.to_thread(self._objects.merge, resource, name, NAMESPACE, change)

    async def get(self, name: str) -> dict[str, Any]:
        """The SpeculativeDeployment as the API server has it."""
        return await self._named("specdep", name)

    async def apply(self, wish: Wish) -> None:
        """Create the object, or make its spec exactly this one."""
        await asyncio.to_thread(self._objects.put, wish.manifest())

    async def patch(self, name: str, change: dict[str, Any]) -> None:
        """A merge patch of the SpeculativeDeployment."""
        await self._merge("specdep", name, change)

    async def pause(self, name: str) -> None:
        """Have the operator leave the object alone, and wait until what it had begun is done."""
        await self.patch(name, {"metadata": {"annotations": {names.ANNOTATION_PAUSED: "true"}}})
        await asyncio.sleep(_SETTLED_SECONDS)

    async def resume(self, name: str) -> None:
        """Let the operator go on."""
        await self.patch(name, {"metadata": {"annotations": {names.ANNOTATION_PAUSED: None}}})

    async def table(self, name: str) -> dict[str, Any]:
        """The operator's table as the ConfigMap holds it."""
        return dict(json.loads((await self._table_config(name))["data"][names.TABLE_KEY]))

    async def write_table(self, name: str, text: str) -> None:
        """Overwrite the table by hand, past the operator."""
        config = (await self._table_config(name))["metadata"]["name"]
        await self._merge("configmap", config, {"data": {names.TABLE_KEY: text}})

    async def _table_config(self, name: str) -> dict[str, Any]:
        """The ConfigMap that the pods read their table from: it belongs to their pair."""
        every = await asyncio.to_thread(self._objects.list, "configmap", NAMESPACE)
        return next(one for one in every if one["metadata"]["name"].startswith(f"{name}-table"))

    async def poke(self, pod: str, value: str) -> None:
        """Have the node look at the pod's volumes at once, as the operator does after a write."""
        await self._merge("pod", pod, {"metadata": {"annotations": {names.ANNOTATION_POKE: value}}})

    async def generation(self, name: str) -> int:
        """Of the Deployment: it changes with the pod template."""
        return int((await self._named("deployment", name))["metadata"]["generation"])

    async def url(self, name: str) -> str:
        """Address of the object's Service."""
        spec = (await self._named("service", name))["spec"]
        return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"

    # -- pods ----------------------------------------------------------------------------------------------------------

    async def pods(self, name: str) -> list[dict[str, Any]]:
        """Serving pods of an object, those that are going among them."""
        return await asyncio.to_thread(self._objects.list, "pods", NAMESPACE, f"{names.LABEL_DEPLOYMENT}={name}")

    async def pod(self, name: str) -> dict[str, Any]:
        """The only serving pod. Raises StageError when there is none or more than one."""
        found = [pod for pod in await self.pods(name) if "deletionTimestamp" not in pod["metadata"]]
        if len(found) != 1:
            raise StageError(f"{name} has {len(found)} pods, one was expected")
        return found[0]

    async def log(self, pod: str) -> str:
        """Log of a serving pod, without the lines of its HTTP requests."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/log?container={names.CONTAINER}"
        text = await asyncio.to_thread(self._api.request, "GET", path)
        return "\n".join(line for line in str(text).splitlines() if " HTTP/1.1" not in line)

    async def end(self, pod: str) -> None:
        """Delete a pod at once, as the loss of its node would."""
        await asyncio.to_thread(self._objects.delete, "pod", pod, NAMESPACE, grace_seconds=0)

    # -- hub -----------------------------------------------------------------------------------------------------------

    async def sent(self) -> dict[str, int]:
        """Bytes that the hub has sent, by path."""
        return dict((await self._ask(f"{await self.url(hub.NAME)}/_control"))["bytesByPath"])

    async def files(self, model: str) -> dict[str, int]:
        """Path -> bytes of what the hub has of a model."""
        tree = await self._ask(f"{await self.url(hub.NAME)}/api/models/{model}/tree/main")
        return {one["path"]: int(one["size"]) for one in tree}

    async def _ask(self, url: str) -> Any:
        async with self._http.get(url, timeout=aiohttp.ClientTimeout(total=10)) as response:
            return await response.json()

    # -- engines -------------------------------------------------------------------------------------------------------

    async def look(self, pod: dict[str, Any]) -> Counters:
        """The engine's counters, read from the pod itself."""
        return counters.read(await self._text(pod, names.SERVING_PORT))

    async def telemetry(self, pod: dict[str, Any]) -> str:
        """The payload's exposition; empty where it exports none."""
        try:
            return await self._text(pod, names.TELEMETRY_PORT)
        except aiohttp.ClientError:
            return ""

    async def _text(self, pod: dict[str, Any], port: int) -> str:
        timeout = aiohttp.ClientTimeout(total=10)
        async with self._http.get(f"http://{pod['status']['podIP']}:{port}/metrics", timeout=timeout) as response:
            return await response.text()


def processes(pod: str) -> dict[int, str]:
    """Process -> when it started (clock ticks since boot) of all processes in the pod's containers.

    The engine's children overwrite their environment with their title, so the pod is known by its process namespace.
    """
    spaces: dict[int, str] = {}
    started: dict[int, str] = {}
    mine = set()
    for entry in Path("/proc").iterdir():
        try:
            pid = int(entry.name)
            spaces[pid] = str((entry / "ns" / "pid").readlink())
            started[pid] = (entry / "stat").read_text().rpartition(")")[2].split()[19]
            if f"HOSTNAME={pod}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                mine.add(spaces[pid])
        except (ValueError, OSError):
            continue  # no process, or one that has just ended
    return {pid: started[pid] for pid, space in spaces.items() if space in mine and pid in started}


async def until(what: str, attempt: Callable[[], Awaitable[Any]], seconds: float, every: float = 0.25) -> Any:
    """Wait until `attempt` gives something true, and give that. Raises StageError with what it gave last."""
    deadline = time.monotonic() + seconds
    while True:
        found = await attempt()
        if found:
            return found
        if time.monotonic() > deadline:
            raise StageError(f"{what}: not within {seconds:.0f} s; last seen: {found!r}")
        await asyncio.sleep(every)
