"""Thin wrappers of the Linux calls that Python 3.11 lacks: mounts, namespaces, parent-death signal.

Used by the launcher (inside a container's first process) and by the node itself (networks, memory volumes). Numbers are
from the kernel's uapi headers; the two raw call numbers are the same on x86-64 and arm64 where noted.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal

_LIBC = ctypes.CDLL(None, use_errno=True)

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 0x1
_SYS_MOUNT_SETATTR = 442  # the same on every architecture
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str, target: str, fstype: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError naming both ends."""
    result = _LIBC.mount(
        source.encode(), target.encode(), fstype.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _check(result, f"mount {source} on {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Bind a file or a whole tree; the parts of a tree mounted by someone else come along."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        make_read_only(target, recursive=True)


def make_read_only(target: str, *, recursive: bool) -> None:
    """Make a mount read-only, with everything mounted below it where asked (kernel 5.12; older: the top mount only)."""
    attr = _MountAttr(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    result = _LIBC.syscall(
        _SYS_MOUNT_SETATTR,
        _AT_FDCWD,
        target.encode(),
        ctypes.c_uint(flags),
        ctypes.byref(attr),
        ctypes.c_size_t(ctypes.sizeof(attr)),
    )
    if result != 0:
        kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
        mount("", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def unmount(target: str) -> None:
    """Detach a mount at once; it ends when its last user does."""
    _check(_LIBC.umount2(target.encode(), _MNT_DETACH), f"unmount {target}")


def pivot_root(new_root: str) -> None:
    """Make a mount the root directory and drop the old one."""
    os.chdir(new_root)
    number = _SYS_PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"pivot_root: no call number known for {platform.machine()}")
    _check(_LIBC.syscall(number, b".", b"."), f"pivot_root {new_root}")
    unmount(".")
    os.chdir("/")


def unshare(flags: int) -> None:
    """Give the calling thread namespaces of its own."""
    _check(_LIBC.unshare(ctypes.c_int(flags)), "unshare")


def enter(fd: int, kind: int) -> None:
    """Move the calling thread into the namespace that `fd` stands for."""
    _check(_LIBC.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL when the parent ends; ends at once when it already has.

    `parent` is the parent's id as this process sees it (0 from inside a new process namespace).
    """
    _check(_LIBC.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(137)
