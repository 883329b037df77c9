"""The enclosure seen from the host: making it, finding its first process, ending it.

An enclosure is a process tree with its own user, network, process and mount tables, made by `unshare` without any
privilege. It ends whole: when its first process ends the kernel kills all others, and interfaces, routes and mounts go
with them. It ends by itself when the process that asked for it is gone, even by SIGKILL.
"""

import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from devcluster.component import Plan, log_path
from devcluster.errors import DevClusterError

_SOURCE_ROOT = Path(__file__).resolve().parent.parent
_NAMESPACES = ("--net", "--pid", "--mount-proc", "--fork", "--kill-child")
_USER = ("--user", "--map-root-user")
_STOP_SECONDS = 10.0

REMEDY = """The development cluster needs user namespaces. Depending on the machine, they are allowed by
  sysctl kernel.unprivileged_userns_clone=1                (Debian)
  sysctl kernel.apparmor_restrict_unprivileged_userns=0    (Ubuntu)
  sysctl user.max_user_namespaces=10000                    (Red Hat)
  docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined   (in a container)
or use an existing cluster that may be changed freely: KUBECONFIG=<file> DEVCLUSTER_EXISTING=1"""


@functools.cache
def _command() -> tuple[str, ...]:
    """The `unshare` command that works here; raises DevClusterError where none does."""
    for program, package in (("unshare", "util-linux"), ("ip", "iproute2")):
        if shutil.which(program) is None:
            raise DevClusterError(f"{program} is not on PATH", f"install the package {package}")
    # Root may make the other namespaces without a user namespace, where those are forbidden.
    attempts = [(*_USER, *_NAMESPACES)] + ([_NAMESPACES] if os.geteuid() == 0 else [])
    said = []
    for attempt in attempts:
        command = ("unshare", *attempt)
        result = subprocess.run(
            [*command, "ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False
        )
        if result.returncode == 0:
            return command
        said.append(result.stderr.strip() or f"exit status {result.returncode}")
    raise DevClusterError(f"namespaces are forbidden here: {'; '.join(said)}", REMEDY)


def forbidden_reason() -> str | None:
    """Why no enclosure can be made on this machine, or None."""
    try:
        _command()
    except DevClusterError as error:
        return error.problem
    return None


def listen() -> socket.socket:
    """A socket listening on a free port of the host's loopback."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    return listener


@dataclass(frozen=True)
class Enclosure:
    """A living enclosure, by process ids of the host.

    `outer` is unshare: in the enclosure's namespaces but outside its process table. `first` is its only child, process
    1 inside. `process` is unshare where this process started it.
    """

    outer: int
    first: int
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, plan: Plan) -> "Enclosure":
        """Start the supervisor with its plan; returns as soon as it exists."""
        directory = Path(plan.directory)
        path = directory / "plan.json"
        path.write_text(json.dumps(plan.to_dict()))
        handed = [plan.lock_fd, plan.parent_fd, *(item.fd for item in plan.forwards)]
        command = [*_command(), sys.executable, "-m", "devcluster.supervisor", str(path)]
        with log_path(directory, "supervisor").open("wb") as output:
            process = subprocess.Popen(
                command,
                env=environment(),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=handed,
                # The keyboard's Ctrl-C is for whoever started the cluster; that one then ends it.
                start_new_session=True,
            )
        return cls(process.pid, _only_child(process), process)

    def stop(self) -> None:
        """End it and wait until the last process is gone."""
        try:
            outer = os.pidfd_open(self.outer)
        except ProcessLookupError:
            return
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                _send(self.first, number)
                if _ended(outer, _STOP_SECONDS):
                    break
        finally:
            os.close(outer)
            if self.process is not None:
                self.process.wait(_STOP_SECONDS)


def environment() -> dict[str, str]:
    """This process's environment for programs inside: with this package, without proxies, which nothing reaches."""
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    given = kept.get("PYTHONPATH")
    kept["PYTHONPATH"] = f"{_SOURCE_ROOT}{os.pathsep}{given}" if given else str(_SOURCE_ROOT)
    return kept


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _ended(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _only_child(process: subprocess.Popen[bytes]) -> int:
    """The process that unshare forked into the new process table, a few milliseconds after its start."""
    ours = Path("/proc/self/ns/pid").readlink()
    while process.poll() is None:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and _parent(entry) == process.pid and _table(entry) not in (ours, None):
                return int(entry.name)
        time.sleep(0.002)
    raise DevClusterError(f"unshare ended with {process.returncode} before it made the enclosure", REMEDY)


def _table(process: Path) -> Path | None:
    """Process table that a process of /proc lives in; None when it is gone."""
    try:
        return (process / "ns" / "pid").readlink()
    except OSError:
        return None


def _parent(process: Path) -> int | None:
    """Parent id of a process of /proc; None when it is gone. The name in the second field may hold anything."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
