"""The life of one container: start, probe, wait, restart with back-off, stop with hook and grace.

``pod`` makes a runner per container and awaits ``run``; ``stop`` ends it from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import process
from .actions import Target, act
from .api import ApiError
from .env import EnvError, build, command
from .fields import FieldError
from .images import select
from .launcher import START_FAILED
from .probes import Callbacks, Kind, Prober
from .process import Program, StartError
from .sandbox import Sandbox
from .status import ContainerStatus, Running, Terminated, Waiting
from .volumes import VolumeError

_log = logging.getLogger(__name__)

_BACKOFF_LIMIT = 300.0
_BACKOFF_RESET = 600.0
_MINIMUM_GRACE = 2.0
_RETRY_SECONDS = 2.0
_PULL_FIRST = 1.0


class _NotYetError(RuntimeError):
    """The container cannot be started now; it is tried again."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ContainerRunner:
    """One container of one pod, over all its restarts. `changed` is called whenever `status` has changed."""

    def __init__(
        self,
        sandbox: Sandbox,
        container: Mapping[str, Any],
        restart_policy: str,
        changed: Callable[[], None],
        *,
        init: bool,
    ) -> None:
        self._sandbox = sandbox
        self.container = container
        self._policy = _policy(container, restart_policy, init=init)
        self._changed = changed
        sidecar = init and container.get("restartPolicy") == "Always"
        waits = Waiting("PodInitializing" if sandbox.pod["spec"].get("initContainers") else "ContainerCreating")
        self.status = ContainerStatus(container["name"], container["image"], waits, sidecar=sidecar)
        self.stopping = asyncio.Event()
        self._grace: float | None = None
        self._program: Program | None = None
        self._prober: Prober | None = None
        self._target: Target | None = None
        self._failures = 0
        self._killing: asyncio.Task[None] | None = None
        self.progressed = asyncio.Event()

    @property
    def log_path(self) -> Path:
        """The log of the current run; the one before has the number below."""
        return self.log_of(self.status.restarts)

    def log_of(self, restart: int) -> Path:
        return self._sandbox.node.log_dir(self._sandbox.pod) / self.status.name / f"{restart}.log"

    def writes(self, log: Path) -> bool:
        """Is a running program still writing to this log?"""
        return isinstance(self.status.state, Running) and log == self.log_path

    async def run(self) -> None:
        """Run until the restart policy says that the container is done, or until stopped."""
        while not self.stopping.is_set():
            program = await self._start()
            if program is None:
                return
            ended = await self._watch(program)
            if self.stopping.is_set() or not _again(self._policy, ended.exit_code):
                return
            await self._back_off(ended)

    async def stop(self, grace: float) -> None:
        """Stop for good: hook, SIGTERM, and SIGKILL when the grace period is over. `run` returns soon after."""
        self._grace = grace if self._grace is None else min(grace, self._grace)
        self.stopping.set()
        if self._prober is not None:
            self._prober.stopping = True
        if self._program is not None:
            await self._terminate(self._program, self._grace)

    # -- start ---------------------------------------------------------------------------------------------------------

    async def _start(self) -> Program | None:
        """Start the program, waiting for what is missing. None when stopped meanwhile or failed for good."""
        while True:
            try:
                return await self._try_start()
            except _NotYetError as error:
                self._wait_state(error.reason, str(error))
                pull = error.reason == "ErrImagePull"
                await self._pause(_PULL_FIRST if pull else _RETRY_SECONDS)
                if pull:
                    self._wait_state("ImagePullBackOff", f'Back-off pulling image "{self.container["image"]}": {error}')
                    await self.stopping.wait()
            except StartError as error:
                now = time.time()
                self._ended(Terminated(START_FAILED, "StartError", now, now, str(error)))
                self._event("Warning", "Failed", f"Error: {error}")
                state = self.status.state
                if not isinstance(state, Terminated) or not _again(self._policy, state.exit_code):
                    return None
                await self._back_off(state)
            if self.stopping.is_set():
                return None

    async def _try_start(self) -> Program:
        images = self._sandbox.node.config.images
        image = select(images, self.container["image"])
        if image is None:
            known = ", ".join(sorted(images)) or "none"
            raise _NotYetError("ErrImagePull", f"image is not configured on this node; configured images: {known}")
        try:
            env = build(self.container, image, await self._sandbox.scope(self.container))
            argv = command(self.container, image, env)
            spec = self._sandbox.launcher_spec(self.container, image, argv, env)
        except (EnvError, FieldError, VolumeError, ApiError, OSError) as error:
            raise _NotYetError("CreateContainerConfigError", str(error)) from error
        if self.stopping.is_set():
            raise _NotYetError("ContainerCreating", "")
        return await self._launch(spec, env)

    async def _launch(self, spec: Mapping[str, Any], env: Mapping[str, str]) -> Program:
        network = self._sandbox.network
        assert network is not None, "containers start once the pod has its network"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        output = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            path = self._sandbox.memory_dir / f"spec-{self.status.name}.json"
            program = await process.start(spec, path, output, network.namespace_fd)
        finally:
            os.close(output)
        node = self._sandbox.node
        self._target = Target(program, self.container, env, self._sandbox.address, self._sandbox.memory_dir, node.http)
        self._program = program
        self.status.container_id = f"process://{uuid.uuid4().hex}"
        self._set(Running(time.time()))
        return program

    # -- run -----------------------------------------------------------------------------------------------------------

    async def _watch(self, program: Program) -> Terminated:
        """Probes while the program runs; then how it ended."""
        assert self._target is not None
        callbacks = Callbacks(self._on_started, self._on_ready, self._on_unhealthy, self._on_kill)
        self._prober = Prober(self.container, self._target, callbacks, asyncio.get_running_loop().time())
        started = self.status.state.started_at if isinstance(self.status.state, Running) else time.time()
        probing = asyncio.create_task(self._prober.run())
        if self.stopping.is_set() and self._grace is not None:
            # Asked to stop while the program was being started.
            self._killing = asyncio.create_task(self._terminate(program, self._grace))
        try:
            code = await program.wait()
        finally:
            probing.cancel()
            await asyncio.wait({probing})
            if not probing.cancelled() and (broken := probing.exception()) is not None:
                _log.error("%s: probing ended early", self.status.name, exc_info=broken)
        self._program = self._prober = self._target = None
        message = self._sandbox.read_message(self.status.name)
        ended = Terminated(
            code, "Completed" if code == 0 else "Error", started, time.time(), message, self.status.container_id
        )
        self._ended(ended)
        return ended

    def _on_started(self) -> None:
        self.status.started = self.status.was_started = True
        self.progressed.set()
        self._changed()

    def _on_ready(self, ready: bool) -> None:
        self.status.ready = ready
        self._changed()

    def _on_unhealthy(self, kind: Kind, message: str) -> None:
        self._event("Warning", "Unhealthy", f"{kind.capitalize()} probe failed: {message}")

    def _on_kill(self, kind: Kind, probe: Mapping[str, Any]) -> None:
        if self._program is None or (self._killing is not None and not self._killing.done()):
            return
        self._event("Normal", "Killing", f"Container {self.status.name} failed {kind} probe, will be restarted")
        grace = float(probe.get("terminationGracePeriodSeconds", self._pod_grace()))
        self._killing = asyncio.create_task(self._terminate(self._program, grace))

    def _pod_grace(self) -> float:
        return float(self._sandbox.pod["spec"].get("terminationGracePeriodSeconds", 30))

    # -- stop ----------------------------------------------------------------------------------------------------------

    async def _terminate(self, program: Program, grace: float) -> None:
        """preStop, SIGTERM, SIGKILL; the hook's time counts, but SIGTERM is always left two seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        hook = (self.container.get("lifecycle") or {}).get("preStop")
        if hook and grace > 0 and self._target is not None:
            ok, message = await self._hook(hook, self._target, program, grace)
            if not ok and program.running:
                self._event("Warning", "FailedPreStopHook", message)
        program.signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(program.wait(), max(deadline - loop.time(), _MINIMUM_GRACE))
        program.kill()

    async def _hook(self, hook: Mapping[str, Any], target: Target, program: Program, grace: float) -> tuple[bool, str]:
        """Run a hook for as long as the program it is for runs."""
        acting = asyncio.create_task(act(hook, target, grace))
        ending = asyncio.create_task(program.wait())
        await asyncio.wait({acting, ending}, return_when=asyncio.FIRST_COMPLETED)
        for task in (acting, ending):
            task.cancel()
        await asyncio.wait({acting, ending})
        return acting.result() if not acting.cancelled() else (True, "")

    # -- state ---------------------------------------------------------------------------------------------------------

    async def _back_off(self, ended: Terminated) -> None:
        """Restart at once the first time, then after 10 s, 20 s ... 5 min (the first figure is configurable)."""
        if ended.finished_at - ended.started_at > _BACKOFF_RESET:
            self._failures = 0
        base = self._sandbox.node.config.crash_backoff_seconds
        delay = 0.0 if self._failures == 0 else min(base * 2.0 ** (self._failures - 1), _BACKOFF_LIMIT)
        self._failures += 1
        if delay:
            name, pod = self.status.name, self._sandbox.pod["metadata"]
            where = f"{pod['name']}_{pod['namespace']}({pod['uid']})"
            text = f"back-off {delay:g}s restarting failed container={name} pod={where}"
            self.status.last = ended
            self._wait_state("CrashLoopBackOff", text)
            self._event("Warning", "BackOff", f"Back-off restarting failed container {name} in pod {pod['name']}")
            await self._pause(delay)
        if self.stopping.is_set():
            self._set(ended)
            return
        self.status.last = ended
        self.status.restarts += 1

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    def _wait_state(self, reason: str, message: str) -> None:
        if message and reason in ("ErrImagePull", "CreateContainerConfigError"):
            self._event("Warning", "Failed", f"{reason}: {message}")
        self._set(Waiting(reason, message))

    def _ended(self, ended: Terminated) -> None:
        self.status.ready = False
        self.status.started = False
        self._set(ended)

    def _set(self, state: Waiting | Running | Terminated) -> None:
        self.status.state = state
        self._changed()

    def _event(self, kind: Any, reason: str, message: str) -> None:
        self._sandbox.node.events.emit(self._sandbox.pod, kind, reason, message)


def _policy(container: Mapping[str, Any], pod_policy: str, *, init: bool) -> str:
    if not init:
        return pod_policy
    if container.get("restartPolicy") == "Always":
        return "Always"
    # An init container is repeated until it succeeds, unless the pod must not be restarted at all.
    return "Never" if pod_policy == "Never" else "OnFailure"


def _again(policy: str, exit_code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
