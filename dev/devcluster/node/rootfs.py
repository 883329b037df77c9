"""What a container sees as its root directory, planned from the host's directories and the pod's mounts.

There are no image layers here: the host's own files, read-only, take their place. So that every ``mountPath`` of a
manifest exists without a write to the host, directories that must receive a new entry are "shadowed": an empty
memory directory is laid over them and everything the host has there is bound back in. ``/tmp``, ``/run``, ``/home``,
``/root`` and ``/var/tmp`` start empty and writable, as in a fresh container; ``/dev`` and ``/proc`` are its own.

Pure: the host is asked through the Host protocol. The launcher carries the operations out, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["dir", "file", "link"]

FRESH = {"/tmp": "mode=1777", "/var/tmp": "mode=1777", "/run": "mode=755", "/root": "mode=755", "/home": "mode=755"}  # noqa: S108
_OWN = frozenset({"/proc", "/sys", "/dev"})
_NOT_THE_HOSTS = _OWN | set(FRESH)
_LINKS_LIMIT = 40
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
)


class Host(Protocol):
    """The host's file system, as far as a plan needs to know it."""

    def kind(self, path: str) -> Kind | None: ...

    def link(self, path: str) -> str: ...

    def entries(self, path: str) -> Sequence[str]: ...


@dataclass(frozen=True)
class Mount:
    """One mount of a container. An empty source is a memory directory with `options` (a tmpfs)."""

    target: str
    source: str = ""
    read_only: bool = False
    options: str = ""


@dataclass(frozen=True)
class Op:
    """One step: `what` is tmpfs, bind, link, dir or proc; `path` is inside the new root."""

    what: Literal["tmpfs", "bind", "link", "dir", "proc"]
    path: str
    source: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class Plan:
    """Operations in order, then the memory directories that a read-only root makes read-only at the end."""

    ops: tuple[Op, ...]
    writable: tuple[str, ...]


def plan(host: Host, mounts: Iterable[Mount], visible: Iterable[str] = (), hidden: Iterable[str] = ()) -> Plan:
    """The steps that build a container's root: host entries, then everything placed on top, shallow before deep."""
    placed = {path: Op("tmpfs", path, options) for path, options in FRESH.items()}
    for path in sorted({resolve(host, v) for v in visible}, key=_depth):
        if _owner(path, placed) in FRESH and host.kind(path) is not None:
            placed[path] = Op("bind", path, path, read_only=True)
    for path in (resolve(host, h) for h in hidden):
        if _seen(host, path, placed):
            placed[path] = Op("tmpfs", path, "mode=000,size=4k")
    volumes = {resolve(host, mount.target): mount for mount in mounts}
    for target, mount in volumes.items():
        placed[target] = (
            Op("bind", target, mount.source, mount.read_only) if mount.source else Op("tmpfs", target, mount.options)
        )
    shadows = {shadow for path in placed if (shadow := _shadow(host, path, placed)) is not None}
    ops = [Op("tmpfs", "/", "mode=755"), *_top_level(host), *_own()]
    for path in sorted(shadows | set(placed), key=_depth):
        if path in placed:
            ops.append(placed[path])
        else:
            ops += [Op("tmpfs", path, "mode=755"), *_children(host, path)]
    return Plan(tuple(ops), ("/", *sorted(shadows), *(path for path in FRESH if path not in volumes)))


def resolve(host: Host, path: str) -> str:
    """The path with the host's symbolic links followed, except below directories that the container has to itself."""
    parts = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    done = ""
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = f"{done}/{part}"
        if links < _LINKS_LIMIT and host.kind(here) == "link":
            links += 1
            text = host.link(here)
            done = "" if text.startswith("/") else done
            parts += [p for p in reversed(text.split("/")) if p not in ("", ".")]
            continue
        done = here
        if done in _NOT_THE_HOSTS:
            return "/".join([done, *reversed(parts)])
    return done or "/"


def _depth(path: str) -> tuple[int, str]:
    return (path.count("/") if path != "/" else 0, path)


def _owner(path: str, placed: Iterable[str]) -> str:
    """The deepest placed directory strictly above a path; "" for the root."""
    return max((p for p in placed if path.startswith(p + "/")), key=len, default="")


def _seen(host: Host, path: str, placed: dict[str, Op]) -> bool:
    """Would the container see this host directory?"""
    owner = _owner(path, placed)
    return host.kind(path) == "dir" and (owner == "" or placed[owner].what == "bind")


def _shadow(host: Host, path: str, placed: dict[str, Op]) -> str | None:
    """The host directory to shadow so that `path` can be created, or None where nothing needs to be."""
    owner = _owner(path, placed)
    if owner and not (placed[owner].what == "bind" and placed[owner].source == owner):
        return None
    if host.kind(path) is not None or any(path.startswith(own + "/") for own in _OWN):
        return None
    above = path
    while above != owner and host.kind(above) is None:
        above = above.rpartition("/")[0]
    return above or None


def _top_level(host: Host) -> list[Op]:
    seen = (op for op in _children(host, "/") if op.path not in _NOT_THE_HOSTS)
    return [op for op in seen if op.what == "link" or host.kind(op.path) == "dir"]


def _children(host: Host, directory: str) -> list[Op]:
    """Everything the host has in a directory: links copied, the rest bound read-only."""
    ops = []
    for name in host.entries(directory):
        path = f"{directory.rstrip('/')}/{name}"
        kind = host.kind(path)
        if kind == "link":
            ops.append(Op("link", path, host.link(path)))
        elif kind is not None:
            ops.append(Op("bind", path, path, read_only=True))
    return ops


def _own() -> list[Op]:
    """Process table, devices and shared memory of the container; 64 MiB of shared memory is what runtimes give."""
    ops = [Op("proc", "/proc"), Op("bind", "/sys", "/sys", read_only=True), Op("tmpfs", "/dev", "mode=755,size=64k")]
    ops += [Op("bind", f"/dev/{name}", f"/dev/{name}") for name in _DEVICES]
    ops += [Op("link", f"/dev/{name}", target) for name, target in _DEVICE_LINKS]
    return [*ops, Op("tmpfs", "/dev/shm", "mode=1777,size=64m")]  # noqa: S108
