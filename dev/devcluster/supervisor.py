"""First process of an enclosure: network, programs, forwarding to the host, and the end of everything.

Run by `enclosure.py` as `python -m devcluster.supervisor PLAN`. Being process 1 of its process table, it collects every
orphan, and with its end the kernel ends all others.
"""

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from devcluster import mounts
from devcluster.component import Component, Plan, held_path, log_path, ready_path, status_path
from devcluster.forwarder import forward
from devcluster.probe import answers, tls_context
from devcluster.state import Place

_POLL_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0
_OPEN_FILES = 65536


def log(message: str) -> None:
    """A line in the supervisor's own log."""
    print(f"{time.strftime('%H:%M:%S')} {message}", flush=True)


class Supervised:
    """One component: started when its conditions hold, started again when it ends."""

    def __init__(self, spec: Component, owner: "Supervisor") -> None:
        self.spec = spec
        self.state = "waiting"
        self.restarts = 0
        self.exit_code: int | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self._owner = owner

    @property
    def pid(self) -> int | None:
        """In the enclosure's process table."""
        return self.process.pid if self.process else None

    async def run(self) -> None:
        """Keep the program running for ever."""
        while True:
            await self._conditions()
            self._start()
            watching = asyncio.create_task(self._watch_readiness())
            await self.ended.wait()
            watching.cancel()
            self.ready.clear()
            self._set("ended")
            log(f"{self.spec.name} ended with {self.exit_code}, see its log; starting it again")
            await asyncio.sleep(min(0.2 * 2**self.restarts, _LONGEST_PAUSE_SECONDS))
            self.restarts += 1

    async def _conditions(self) -> None:
        for name in self.spec.after:
            await self._owner.components[name].ready.wait()
        held = held_path(self._owner.directory, self.spec.name)
        while held.exists() or not _all_exist(self.spec.needs):  # noqa: ASYNC110 - other processes make the files
            await asyncio.sleep(_POLL_SECONDS)

    def _start(self) -> None:
        self.ended.clear()
        with log_path(self._owner.directory, self.spec.name).open("ab") as output:
            self.process = subprocess.Popen(
                self.spec.argv,
                env={**os.environ, **self.spec.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._set("running")

    async def _watch_readiness(self) -> None:
        while self.spec.ready and not await answers(self.spec.ready, self._owner.tls):  # noqa: ASYNC110 - as above
            await asyncio.sleep(_POLL_SECONDS)
        self.ready.set()
        self._set("ready")
        log(f"{self.spec.name} is ready")

    def _set(self, state: str) -> None:
        self.state = state
        self._owner.publish()

    def collected(self, code: int) -> None:
        """The program ended; `code` as subprocess counts it, negative for a signal."""
        self.exit_code = code
        if self.process is not None:
            self.process.returncode = code
        self.ended.set()


class Supervisor:
    """Everything inside one enclosure."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.directory = Path(plan.directory)
        self.tls = tls_context(plan.certificate_authority)
        self.components = {item.name: Supervised(item, self) for item in plan.components}
        self._stop = asyncio.Event()

    def publish(self) -> None:
        """Tell the host every component's state."""
        states = {
            name: {"state": item.state, "restarts": item.restarts, "exitCode": item.exit_code, "pid": item.pid}
            for name, item in self.components.items()
        }
        path = status_path(self.directory)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(states))
        partial.rename(path)

    def _collect(self) -> None:
        """Take the exit status of every child that ended, orphans of pods among them."""
        running = {item.process.pid: item for item in self.components.values() if item.process}
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in running:
                    running[pid].collected(os.waitstatus_to_exitcode(status))

    def _parent_ended(self) -> None:
        """End with the starter; a cluster that stays does so only if its start was complete."""
        asyncio.get_running_loop().remove_reader(self.plan.parent_fd)
        if not (self.plan.stays and ready_path(self.directory).exists()):
            self._stop.set()

    async def run(self) -> None:
        """Until told to stop, or until the process this cluster must not outlive is gone."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._collect)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_reader(self.plan.parent_fd, self._parent_ended)
        servers = [await forward(socket.socket(fileno=item.fd), item.host, item.port) for item in self.plan.forwards]
        log(f"forwarding {len(servers)} ports, supervising {', '.join(self.components)}")
        tasks = [asyncio.create_task(item.run(), name=name) for name, item in self.components.items()]
        stopping = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a component's task never ends by itself: whatever it raised ends the cluster


def _all_exist(paths: tuple[str, ...]) -> bool:
    return all(Path(path).exists() for path in paths)


def prepare_network(ranges: tuple[str, ...]) -> None:
    """Make every address of the ranges local, so that any process can listen on any of them."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for item in ranges:
        subprocess.run(["ip", "route", "add", "local", item, "dev", "lo"], check=True)


def prepare_limits() -> None:
    """Room for the sockets of hundreds of pods, but no hard limit so high that closing every descriptor takes long."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def end(plan: Plan) -> None:
    """Kill all others, keep the logs if asked to, delete the cluster's files."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    deadline = time.monotonic() + 5
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
    if plan.keep_logs:
        kept = Path(plan.keep_logs) / Path(plan.directory).name
        shutil.copytree(Path(plan.directory) / "logs", kept, dirs_exist_ok=True)
    mounts.detach(Path(plan.directory))
    Place(Path(plan.directory), Path(plan.lock)).discard()


def main() -> None:
    """Read the plan, live, end."""
    plan = Plan.from_dict(json.loads(Path(sys.argv[1]).read_text()))
    os.set_inheritable(plan.lock_fd, False)
    try:
        prepare_limits()
        prepare_network(plan.ranges)
        asyncio.run(Supervisor(plan).run())
    finally:
        end(plan)


if __name__ == "__main__":
    main()
