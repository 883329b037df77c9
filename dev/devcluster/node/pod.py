"""One pod from bound to gone: surroundings, init containers, containers, refreshes, deletion.

``agent`` makes a worker per pod uid, hands it every new version of the object, and forgets it when ``run`` returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Mapping
from typing import Any

from .api import ApiError
from .container import ContainerRunner
from .context import Node
from .network import NetworkError
from .reporter import Reporter
from .sandbox import Sandbox
from .status import PodView, initialized
from .volumes import PodVolumes, VolumeError

_log = logging.getLogger(__name__)

_SETUP_RETRY = 0.5
_SETUP_RETRY_LIMIT = 5.0
_SYNC_SPREAD = 1.5
_FORCED_GRACE = 0.0


class PodWorker:
    """Everything about one pod on this node."""

    def __init__(self, node: Node, pod: Mapping[str, Any]) -> None:
        self._node = node
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        self._sandbox = self._make_sandbox(pod)
        policy = pod["spec"].get("restartPolicy", "Always")
        self._init = [self._runner(c, policy, init=True) for c in pod["spec"].get("initContainers") or ()]
        self._containers = [self._runner(c, policy, init=False) for c in pod["spec"]["containers"]]
        self._reporter = Reporter(node.api, lambda: self.pod, self._view)
        self._tasks: dict[ContainerRunner, asyncio.Task[None]] = {}
        self._deleting = asyncio.Event()
        self._hurried = asyncio.Event()
        self._poked = asyncio.Event()
        self._gone = False
        self._ended = False
        if pod["metadata"].get("deletionTimestamp"):
            self._deleting.set()

    def _make_sandbox(self, pod: Mapping[str, Any]) -> Sandbox:
        return Sandbox(self._node, pod, None, "", PodVolumes(self._node, pod, ""), time.time())

    def _runner(self, container: Mapping[str, Any], policy: str, *, init: bool) -> ContainerRunner:
        return ContainerRunner(self._sandbox, container, policy, self._changed, init=init)

    def _changed(self) -> None:
        self._reporter.notify()

    # -- what the agent says -------------------------------------------------------------------------------------------

    def update(self, pod: Mapping[str, Any]) -> None:
        """A new version of the pod. A change of anything but its status brings its volumes up to date at once."""
        differs = _meaning(pod) != _meaning(self.pod)
        grace = self._grace()
        self.pod = self._sandbox.pod = pod
        if self._grace() < grace:
            self._hurried.set()
        if pod["metadata"].get("deletionTimestamp"):
            self._deleting.set()
        if differs:
            self._poked.set()
            self._reporter.notify()

    def removed(self) -> None:
        """The pod is gone from the API server: end it without ceremony."""
        self._gone = True
        self._hurried.set()
        self._deleting.set()

    def runner(self, container: str) -> ContainerRunner | None:
        """The runner of a container by name, for its logs."""
        return next((r for r in (*self._init, *self._containers) if r.status.name == container), None)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Live until the pod is deleted, then finish it and clean up."""
        reporting = asyncio.create_task(self._reporter.run())
        living = asyncio.create_task(self._live())
        refreshing = asyncio.create_task(self._refresh())
        deleting = asyncio.create_task(self._deleting.wait())
        background = (reporting, refreshing)
        for part in background:
            part.add_done_callback(_report_failure)
        try:
            await asyncio.wait({living, deleting}, return_when=asyncio.FIRST_COMPLETED)
            if not self._deleting.is_set():
                living.result()
                await self._release()
                await self._deleting.wait()
            living.cancel()
            await asyncio.wait({living})
            await self._end_containers()
            self._ended = True
            await self._finish()
        finally:
            for task in (*background, living, deleting):
                task.cancel()
            await asyncio.gather(*background, living, deleting, return_exceptions=True)
            await self._release()

    async def _live(self) -> None:
        """Until no container will run again."""
        self._reporter.notify()
        await self._set_up()
        for runner in self._init:
            task = self._launch(runner)
            if runner.status.sidecar:
                started = asyncio.create_task(runner.progressed.wait())
                await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
                started.cancel()
            else:
                await asyncio.wait({task})
                if not initialized(runner.status):
                    break
        else:
            await asyncio.wait({self._launch(runner) for runner in self._containers})
        await self._stop_sidecars(self._pod_grace())
        self._ended = True
        self._reporter.notify()

    def _launch(self, runner: ContainerRunner) -> asyncio.Task[None]:
        task = asyncio.create_task(runner.run(), name=f"{self.key[1]}/{runner.status.name}")
        self._tasks[runner] = task
        task.add_done_callback(_report_failure)
        return task

    async def _set_up(self) -> None:
        """Network, names and volumes; what is missing is waited for, as a kubelet does."""
        delay = _SETUP_RETRY
        while True:
            try:
                await self._attach()
                await self._sandbox.volumes.prepare(self.pod)
            except NetworkError as error:
                self._node.events.emit(self.pod, "Warning", "FailedCreatePodSandBox", str(error))
            except (VolumeError, OSError) as error:
                self._node.events.emit(self.pod, "Warning", "FailedMount", f"MountVolume.SetUp failed: {error}")
            else:
                return
            await asyncio.sleep(delay)
            delay = min(delay * 2, _SETUP_RETRY_LIMIT)

    async def _attach(self) -> None:
        sandbox = self._sandbox
        if sandbox.network is not None:
            return
        sandbox.network = await self._node.network.attach()
        sandbox.address = sandbox.network.address
        sandbox.volumes = PodVolumes(self._node, self.pod, sandbox.address)
        sandbox.write_names()
        self._reporter.notify()

    async def _refresh(self) -> None:
        """Bring volumes up to date: lazily every 60-90 s, at once when the pod object changed."""
        while True:
            period = self._node.config.sync_seconds * random.uniform(1.0, _SYNC_SPREAD)  # noqa: S311 - spreads load
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._poked.wait(), period)
            self._poked.clear()
            if self._tasks and not self._deleting.is_set():
                await self._sandbox.volumes.refresh(self.pod)

    # -- end -----------------------------------------------------------------------------------------------------------

    def _pod_grace(self) -> float:
        return float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    def _grace(self) -> float:
        return (
            _FORCED_GRACE
            if self._gone
            else float(self.pod["metadata"].get("deletionGracePeriodSeconds", self._pod_grace()))
        )

    async def _end_containers(self) -> None:
        """Stop everything within the grace period, which may be cut short while it runs (a forced deletion)."""
        self._hurried.clear()
        rounds = [asyncio.create_task(self._stop_all(self._grace()))]
        while not rounds[0].done():
            hurried = asyncio.create_task(self._hurried.wait())
            await asyncio.wait({rounds[0], hurried}, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            if self._hurried.is_set():
                self._hurried.clear()
                rounds.append(asyncio.create_task(self._stop_all(self._grace())))
        await asyncio.gather(*rounds)

    async def _stop_all(self, grace: float) -> None:
        """Containers together, then sidecars in reverse."""
        await asyncio.gather(*(self._stop(r, grace) for r in (*self._init, *self._containers) if not r.status.sidecar))
        await self._stop_sidecars(grace)

    async def _stop_sidecars(self, grace: float) -> None:
        for runner in reversed([r for r in self._init if r.status.sidecar]):
            await self._stop(runner, grace)

    async def _stop(self, runner: ContainerRunner, grace: float) -> None:
        task = self._tasks.get(runner)
        await runner.stop(grace)
        if task is not None:
            await asyncio.wait({task})

    async def _finish(self) -> None:
        """Tell how it ended, then let the API server forget the pod."""
        if self._gone:
            return
        meta = self.pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": self.uid},
        }
        delay = 0.5
        while not self._gone:
            try:
                await self._reporter.flush()
                await self._node.api.delete(path, options)
            except ApiError as error:
                if error.status in (404, 409):
                    return
                _log.warning("pod %s/%s not deleted: %s", *self.key, error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 10.0)
            else:
                return

    async def _release(self) -> None:
        """Give back address, names and volumes; once is enough."""
        sandbox = self._sandbox
        self._node.hosts.remove(self.uid)
        if sandbox.network is not None:
            self._node.network.detach(sandbox.network)
        sandbox.network = None
        await sandbox.volumes.remove()

    def _view(self) -> PodView:
        return PodView(
            address=self._sandbox.address,
            node_address=self._node.config.address,
            start_time=self._sandbox.start_time,
            init=[r.status for r in self._init],
            containers=[r.status for r in self._containers],
            network_ready=self._sandbox.network is not None,
            ended=self._ended,
        )


def _meaning(pod: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a kubelet acts on: everything but status and bookkeeping."""
    meta = pod["metadata"]
    return (
        pod["spec"],
        meta.get("labels"),
        meta.get("annotations"),
        meta.get("deletionTimestamp"),
        meta.get("deletionGracePeriodSeconds"),
    )


def _report_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("task %s: the node failed", task.get_name(), exc_info=error)
