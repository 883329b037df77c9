"""A cache of models on a volume: layout, locks, marks of use, publication. Used by `fetch`, `collect` and the command
line; docs/weights.md shows the layout to users.

A published model was made by one rename of a folder whose files were all checked and synced: whoever finds its manifest
finds all of it. Locks are flock(2), which the kernel drops with the process, whatever ends it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speculative_operator.domain.artifact import Pin
from speculative_operator.weights import disk
from speculative_operator.weights.errors import WeightsError
from speculative_operator.weights.source import Entry

MANIFEST = ".speculative.json"
_POLL_SECONDS = 0.5
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class Cache:
    """The cache whose root is `root`, a folder that exists."""

    root: Path

    def model(self, key: str) -> Path:
        """Where a version lies once it is published."""
        return self.root / "models" / key

    def partial(self, key: str) -> Path:
        """Where it grows until then: `files/`, `journal/` and `progress`."""
        return self.root / "partial" / key

    def uses(self, key: str) -> Path:
        return self.root / "uses" / key

    @property
    def trash(self) -> Path:
        """What is no longer to be found, and on its way out."""
        return self.root / "trash"

    def prepare(self) -> None:
        """Make the folders. Raises WeightsError where this process may not write."""
        with disk.told(self.root):
            for name in ("models", "partial", "locks", "uses", "trash"):
                (self.root / name).mkdir(exist_ok=True)
                probe = self.root / name / f".probe-{os.getpid()}"
                probe.touch()
                probe.unlink()

    def use(self, key: str, user: str) -> None:
        """Note that `user` wants the version now: collection goes by the newest of these marks."""
        mark = self.uses(key) / _UNFIT.sub("_", user.replace("/", "."))
        with disk.told(self.root):
            while True:
                mark.parent.mkdir(exist_ok=True)
                try:
                    mark.touch()
                except FileNotFoundError:  # a collection took the folder in between
                    continue
                return

    def manifest(self, key: str) -> Mapping[str, Any] | None:
        """That of a published version; None where there is none, or a file of it is missing or has another size."""
        folder = self.model(key)
        try:
            with disk.told(self.root):
                told: Mapping[str, Any] = json.loads((folder / MANIFEST).read_bytes())
                whole = all((folder / path).stat().st_size == size for path, size, _ in told["files"])
        except WeightsError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        except (ValueError, KeyError, TypeError):
            return None
        return told if whole else None

    def published(self, key: str) -> Path | None:
        """The folder of a published version."""
        return self.model(key) if self.manifest(key) is not None else None

    @contextmanager
    def lock(self, key: str, waits: Callable[[], None] | None = None) -> Iterator[bool]:
        """Hold the version's lock. While another process does, `waits` is called every half second (it may raise);
        without it the answer is False at once."""
        path = self.root / "locks" / key
        with disk.told(self.root):
            fd = _locked(path)
        while fd is None and waits is not None:
            waits()
            time.sleep(_POLL_SECONDS)
            with disk.told(self.root):
                fd = _locked(path)
        try:
            yield fd is not None
        finally:
            if fd is not None:
                os.close(fd)

    def publish(self, pin: Pin, entries: tuple[Entry, ...]) -> Path:
        """Make the finished files of `partial/<key>/files` the published version. The lock is held."""
        grown, final = self.partial(pin.key) / "files", self.model(pin.key)
        with disk.told(self.root):
            _strip(grown, {entry.path for entry in entries})
            _write_manifest(grown, pin, entries)
            for folder, _, names in os.walk(grown):
                for name in names:
                    with suppress(PermissionError):  # begun by a Job of another user id; the mount is read-only anyway
                        (Path(folder) / name).chmod(0o444)
                disk.sync_folder(Path(folder))
            if final.exists():
                self.discard(final)
            grown.rename(final)
            disk.sync_folder(final.parent)
            self.discard(self.partial(pin.key))
        return final

    def discard(self, folder: Path) -> None:
        """Remove `folder` so that no half of it is ever found in its place: renamed first, then emptied."""
        away = self.trash / f"{folder.parent.name}-{folder.name}-{time.time_ns()}"
        folder.rename(away)
        shutil.rmtree(away, ignore_errors=True)


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock at `path`; None while another process does."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        if _same(fd, path):
            return fd
        os.close(fd)  # its owner removed the file between our open and our flock: this lock locks nothing


def _same(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _strip(folder: Path, wanted: set[str]) -> None:
    """Remove files that are not of this version: leftovers of a fetch by another release with other rules."""
    for path in [path for path in folder.rglob("*") if not path.is_dir()]:
        if path.relative_to(folder).as_posix() not in wanted:
            path.unlink()


def _write_manifest(folder: Path, pin: Pin, entries: tuple[Entry, ...]) -> None:
    told = {
        "pin": {**asdict(pin), "scheme": pin.scheme.value},
        "files": [[entry.path, entry.size, entry.sha256] for entry in entries],
        "bytes": sum(entry.size for entry in entries),
    }
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(told, file)
        file.flush()
        os.fsync(file.fileno())
