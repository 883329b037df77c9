"""Starts the program of a container in namespaces of its own.

Run by ``process`` as ``python -m devcluster.node.launcher SPEC STATUS_FD PARENT NETNS_FD``. SPEC is a JSON file, made
by ``sandbox``. On STATUS_FD it reports ``pid N`` (the program, as the node sees it) and ``error TEXT`` when the program
could not be started; the pipe closes when the program runs. It stays as the program's parent and ends with its exit
code (128 + signal number where it was killed).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import syscalls
from .rootfs import Kind, Mount, Op, Plan, plan

START_FAILED = 128


class LocalHost:
    """The real host behind rootfs.Host."""

    def kind(self, path: str) -> Kind | None:
        here = Path(path)
        if here.is_symlink():
            return "link"
        if not here.exists():
            return None
        return "dir" if here.is_dir() else "file"

    def link(self, path: str) -> str:
        return str(Path(path).readlink())

    def entries(self, path: str) -> Sequence[str]:
        return sorted(entry.name for entry in Path(path).iterdir())


def _apply(op: Op, root: str) -> None:
    path = root + op.path
    if op.what == "link":
        if not Path(path).is_symlink():
            Path(path).symlink_to(op.source)
        return
    if op.what == "bind" and not Path(op.source).is_dir():
        if not Path(path).exists():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).touch()
    else:
        Path(path).mkdir(parents=True, exist_ok=True)
    if op.what == "tmpfs":
        syscalls.mount("tmpfs", path, "tmpfs", syscalls.MS_NODEV, op.source)
    elif op.what == "proc":
        syscalls.mount("proc", path, "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    elif op.what == "bind":
        syscalls.bind(op.source, path, read_only=op.read_only)


def _optional(op: Op) -> bool:
    """A host entry may vanish or be unreadable; what the pod asked for may not."""
    return op.what == "bind" and op.source == op.path


def build_root(steps: Plan, root: str, *, read_only: bool) -> None:
    """Carry a plan out below `root`, in the mount namespace of the calling process."""
    for op in steps.ops:
        try:
            _apply(op, root)
        except OSError:
            if not _optional(op):
                raise
    if read_only:
        for path in steps.writable:
            syscalls.make_read_only(root + path, recursive=False)


def _contain(spec: Mapping[str, Any]) -> None:
    """Inside the new namespaces: own mount table, own root, own host name."""
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    socket.sethostname(spec["hostname"])
    mounts = [Mount(**mount) for mount in spec["mounts"]]
    steps = plan(LocalHost(), mounts, spec["visible"], spec["hidden"])
    build_root(steps, spec["scratch"], read_only=spec["read_only_root"])
    syscalls.pivot_root(spec["scratch"])


def _run(spec: Mapping[str, Any]) -> None:
    os.setsid()
    cwd = spec["cwd"] or "/"
    if not Path(cwd).is_dir():
        Path(cwd).mkdir(parents=True)
    os.chdir(cwd)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - running what the pod names is the purpose


def _close_others(kept: Collection[int]) -> None:
    """A program gets standard input and output and nothing else that the node has open."""
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib would keep the directory open meanwhile
        fd = int(entry)
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)
    for fd in kept:
        os.set_inheritable(fd, False)


def _child(spec: Mapping[str, Any], status: int) -> None:
    try:
        # The parent is outside the new process table, so its id reads 0 from here.
        syscalls.die_with_parent(0)
        _contain(spec)
        _run(spec)
    except (OSError, ValueError) as error:
        text = f"exec {spec['argv'][0]}: {error}" if isinstance(error, FileNotFoundError) else str(error)
        os.write(status, f"error {text}\n".encode())
        os._exit(START_FAILED)


def main(argv: Sequence[str]) -> int:
    """Start the program of a spec file and wait for it."""
    status, parent, network = map(int, argv[1:])
    syscalls.die_with_parent(parent)
    _close_others({status, network})
    spec = json.loads(Path(argv[0]).read_text())
    try:
        syscalls.enter(network, syscalls.CLONE_NEWNET)
        os.close(network)
        syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWUTS)
    except OSError as error:
        os.write(status, f"error {error}\n".encode())
        return START_FAILED
    child = os.fork()
    if child == 0:
        _child(spec, status)
    os.write(status, f"pid {child}\n".encode())
    os.close(status)
    _, result = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(result)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
