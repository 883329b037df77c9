"""The node as a whole: makes the parts, connects them, and runs until told to end. Called by ``__main__``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from typing import Any

from . import syscalls
from .actions import http_session
from .api import Api, wait_ready
from .config import NodeConfig
from .container import ContainerRunner
from .context import Node
from .events import Events
from .hosts import RESOLV, Hosts
from .informer import Informer
from .logserver import LogServer
from .network import BridgeNetwork
from .objects import Objects
from .pod import PodWorker
from .provisioner import Provisioner
from .registration import Registration
from .services import Forwarder, table

_log = logging.getLogger(__name__)

_TOGETHER_SECONDS = 0.02


class Agent:
    """One node. `run` returns when cancelled or when a part fails for good; its processes end with this one."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._workers: dict[str, PodWorker] = {}
        self._by_name: dict[tuple[str, str], PodWorker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._services_changed = asyncio.Event()

    async def run(self, ready: asyncio.Event) -> None:
        """Bring the node up, set `ready`, and serve. Raises ApiError, OSError, NetworkError or ConfigError when it
        cannot start."""
        _prepare_directories(self._config)
        api = Api(self._config.kubeconfig, self._config.server)
        http = http_session()
        try:
            await wait_ready(api)
            await self._serve(api, self._node(api, http), ready)
        finally:
            await http.close()
            await api.close()

    def _node(self, api: Api, http: Any) -> Node:
        changed = lambda _event, _object: self._services_changed.set()  # noqa: E731 - two informers, one word
        self._services = Informer(api, "/api/v1/services", changed)
        self._slices = Informer(api, "/apis/discovery.k8s.io/v1/endpointslices", changed)
        return Node(
            config=self._config,
            api=api,
            network=BridgeNetwork(self._config.pod_cidr),
            objects=Objects(api),
            hosts=Hosts(),
            events=Events(api, self._config.name),
            http=http,
            api_host=str(self._config.service_cidr[1]),
        )

    async def _serve(self, api: Api, node: Node, ready: asyncio.Event) -> None:
        registration = Registration(api, self._config)
        forwarder = Forwarder()
        logs = LogServer(self._config, self._find)
        pods = Informer(
            api,
            "/api/v1/pods",
            lambda event, pod: self._pod(node, event, pod),
            {"fieldSelector": f"spec.nodeName={self._config.name}"},
        )
        await logs.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._services.run())
                group.create_task(self._slices.run())
                group.create_task(forwarder.run())
                group.create_task(self._follow_services(node, forwarder))
                group.create_task(Provisioner(api, self._config.state_dir / "volumes").run())
                await self._services.synced.wait()
                await self._slices.synced.wait()
                await registration.register()
                group.create_task(registration.run())
                group.create_task(pods.run())
                await pods.synced.wait()
                ready.set()
        finally:
            await logs.stop()

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _pod(self, node: Node, event: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if event == "DELETED":
            if worker is not None:
                worker.removed()
            return
        if worker is not None:
            worker.update(pod)
            return
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return  # an earlier node process has run it to its end
        worker = PodWorker(node, pod)
        self._workers[uid] = worker
        self._by_name[worker.key] = worker
        task = asyncio.create_task(worker.run(), name=f"pod {'/'.join(worker.key)}")
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._forget(worker, done))

    def _forget(self, worker: PodWorker, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._workers.pop(worker.uid, None)
        if self._by_name.get(worker.key) is worker:
            del self._by_name[worker.key]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: the node failed", task.get_name(), exc_info=error)

    def _find(self, namespace: str, pod: str, container: str) -> ContainerRunner | None:
        worker = self._by_name.get((namespace, pod))
        return None if worker is None else worker.runner(container)

    # -- services ------------------------------------------------------------------------------------------------------

    async def _follow_services(self, node: Node, forwarder: Forwarder) -> None:
        while True:
            await self._services_changed.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)
            self._services_changed.clear()
            services, slices = list(self._services.objects.values()), list(self._slices.objects.values())
            forwarder.set(table(services, slices))
            node.hosts.update(services, slices)


def _prepare_directories(config: NodeConfig) -> None:
    """An empty memory directory for what must not outlive the enclosure, and nothing left of pods of an earlier one."""
    for name in ("run", "pods", "logs", "volumes"):
        (config.state_dir / name).mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        syscalls.unmount(str(config.run_dir))
    syscalls.mount("tmpfs", str(config.run_dir), "tmpfs", syscalls.MS_NODEV, "mode=700")
    (config.run_dir / "root").mkdir()
    (config.run_dir / "resolv.conf").write_text(RESOLV)
    shutil.rmtree(config.state_dir / "pods", ignore_errors=True)
