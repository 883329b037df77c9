"""Where a cluster keeps its files, and the lock that says whether it lives.

The lock is held by the first process inside the enclosure for as long as it lives, so a free lock is proof that a state
directory is left over from a killed run: no process id is ever trusted to tell.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from devcluster import mounts
from devcluster.errors import DevClusterError


def base_dir() -> Path:
    """Directory of all clusters of this user, made private on first use.

    Under the temporary directory: short (sockets of pods live below it and their paths end at 108 bytes) and, other
    than XDG_RUNTIME_DIR, not small memory-backed storage that ends with a login session.
    """
    base = Path(tempfile.gettempdir()) / f"specdev-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise DevClusterError(
            f"{base} is not a private directory of this user", "remove it, or set TMPDIR to a directory of your own"
        )
    return base


@dataclass(frozen=True)
class Place:
    """The files of one cluster. Paths are explicit because user ids differ inside and outside the enclosure."""

    directory: Path
    lock: Path

    @classmethod
    def named(cls, name: str) -> Self:
        """The place of the cluster `name` of this user; need not exist."""
        return cls(base_dir() / name, base_dir() / f".{name}.lock")

    def acquire(self, patience_seconds: float = 0.0) -> int | None:
        """Descriptor of the lock, or None while a living cluster holds it.

        The lock file is deleted by `discard`, so after locking it must still be the one at that path: otherwise two
        starters could each hold the lock of a different file.
        """
        deadline = time.monotonic() + patience_seconds
        while True:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.lock.stat().st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    return None
                time.sleep(0.05)
            except FileNotFoundError:
                pass
            os.close(descriptor)

    def alive(self) -> bool:
        """Whether the cluster runs. Leaves no file behind for a name that never existed."""
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two who look at once do not take each other for the cluster.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def discard(self) -> None:
        """Delete the files; the caller holds the lock.

        A directory with something mounted in it stays: to delete through a mount would delete what is mounted.
        """
        if not mounts.below(self.directory):
            shutil.rmtree(self.directory, ignore_errors=True)
        self.lock.unlink(missing_ok=True)


def _names() -> list[str]:
    """Names with a directory or a lock, alive or not."""
    base = base_dir()
    names = {entry.name for entry in base.iterdir() if entry.is_dir()}
    return sorted(names | {entry.name[1 : -len(".lock")] for entry in base.glob(".*.lock")})


def sweep() -> list[str]:
    """Delete what killed clusters left behind; returns their names."""
    swept = []
    for name in _names():
        place = Place.named(name)
        descriptor = place.acquire()
        if descriptor is not None:
            place.discard()
            os.close(descriptor)
            swept.append(name)
    return swept


def living() -> list[str]:
    """Names of the clusters of this user that run now."""
    return [name for name in _names() if Place.named(name).alive()]
