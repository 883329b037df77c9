"""A cache of models on a volume: layout, locks, marks of use, publication, removal. Used by `fetch` and the command
line; docs/weights.md shows the layout to users.

All of it lies below a folder of our own (`own_folder`): what else is on the volume belongs to others.

A published model was made by one rename of a folder whose files were all checked and synced: whoever finds its manifest
finds all of it. Locks are flock(2), which the kernel drops with the process, whatever ends it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import Scheme
from speculative_operator.own_folder import FOLDER, own_folder
from speculative_operator.weights import disk
from speculative_operator.weights.bring import FOLDERS
from speculative_operator.weights.source import Entry, WeightsError

KIND = "weights"
MANIFEST = ".speculative.json"
KEY = re.compile(r"[0-9a-f]{16}")
GRACE_SECONDS = 30 * 86400.0
"""Sixty times what lies between two renewals of a mark by the operator (`pairing`), so that an operator that
is away for weeks costs no model that is served."""
_AWAY = re.compile(rf"(models|partial)-{KEY.pattern}-[0-9]+")
_EXPIRES = "expires"
_POLL_SECONDS = 0.5
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cache:
    """The cache on the volume `root`, a folder that exists."""

    root: Path

    @property
    def home(self) -> Path:
        """The folder of our own."""
        return self.root / FOLDER

    def model(self, key: str) -> Path:
        """Folder of a version once it is published."""
        return self.home / "models" / key

    def partial(self, key: str) -> Path:
        """Folder in which a version grows until it is published: those of `bring.FOLDERS`."""
        return self.home / "partial" / key

    def uses(self, key: str) -> Path:
        return self.home / "uses" / key

    @property
    def trash(self) -> Path:
        """Folder of what was removed and is being deleted."""
        return self.home / "trash"

    def prepare(self) -> None:
        """Make the folders. Raises WeightsError where this process may not write, or, before anything is written, where
        a folder with the name of ours holds the data of others."""
        with disk.explain_errors(self.root):
            own_folder(self.root, KIND)
            for name in ("models", "partial", "locks", "uses", "trash"):
                (self.home / name).mkdir(exist_ok=True)
                probe = self.home / name / f".probe-{os.getpid()}"
                probe.touch()
                probe.unlink(missing_ok=True)  # in two pods this process may have the same number

    def use(self, key: str, user: str, *, expires: bool = False) -> None:
        """Note that `user` wants the version now. A mark holds for ever, unless it `expires`: then collection goes by
        the newest mark."""
        mark = self.uses(key) / _UNFIT.sub("_", user.replace("/", "."))
        with disk.explain_errors(self.root):
            while True:
                mark.parent.mkdir(exist_ok=True)
                try:
                    mark.write_text(_EXPIRES if expires else "", encoding="utf-8")
                except FileNotFoundError:  # a collection took the folder in between
                    continue
                return

    def last_used(self, key: str) -> float:
        """Unix seconds of the newest mark of use, infinity where one holds for ever; without a mark, of the publication
        or the begin of the fetch."""
        newest = None
        for mark in children(self.uses(key)):
            try:
                lasts = mark.read_text(encoding="utf-8", errors="replace") != _EXPIRES
                at = math.inf if lasts else mark.stat().st_mtime
            except FileNotFoundError:
                continue
            newest = at if newest is None else max(newest, at)
        traces = (self.model(key) / MANIFEST, self.model(key), self.partial(key), self.uses(key))
        return max(map(_change_time, traces)) if newest is None else newest

    def removable(self, key: str) -> list[Path]:
        """Folders of the version that this program made, as their own contents prove: nothing else is ever removed."""
        if not KEY.fullmatch(key):
            return []
        model, partial = self.model(key), self.partial(key)
        found = [model] if _is_folder(model) and _names_itself(model) else []
        grows = _is_folder(partial) and {path.name for path in children(partial)} <= FOLDERS
        return [*found, partial] if grows else found

    def rubbish(self) -> list[Path]:
        """Folders in the trash, which `discard` began to remove."""
        return [path for path in children(self.trash) if _AWAY.fullmatch(path.name) and _is_folder(path)]

    def manifest(self, key: str) -> Mapping[str, Any] | None:
        """The manifest of a published version; None where there is none, or a file of it is missing or has another
        size."""
        folder = self.model(key)
        try:
            with disk.explain_errors(self.root):
                manifest: Mapping[str, Any] = json.loads((folder / MANIFEST).read_bytes())
                whole = all((folder / path).stat().st_size == size for path, size, _ in manifest["files"])
        except WeightsError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        except (ValueError, KeyError, TypeError):
            return None
        return manifest if whole else None

    def published_folder(self, key: str) -> Path | None:
        """The folder of a published version; None where the version is not published."""
        return self.model(key) if self.manifest(key) is not None else None

    @contextmanager
    def lock(self, key: str, waits: Callable[[], None] | None = None) -> Iterator[bool]:
        """Hold the version's lock. While another process holds it, `waits` is called every half second (it may raise);
        without `waits` the answer is False at once."""
        path = self.home / "locks" / key
        with disk.explain_errors(self.root):
            fd = _lock(path)
        while fd is None and waits is not None:
            waits()
            time.sleep(_POLL_SECONDS)
            with disk.explain_errors(self.root):
                fd = _lock(path)
        try:
            yield fd is not None
        finally:
            if fd is not None:
                os.close(fd)

    def publish(self, pin: Pin, entries: tuple[Entry, ...]) -> Path:
        """Make the finished files of `partial/<key>/files` the published version. The lock is held."""
        grown, final = self.partial(pin.key) / "files", self.model(pin.key)
        with disk.explain_errors(self.root):
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


def children(folder: Path) -> list[Path]:
    """The entries of `folder`; empty where it does not exist."""
    return list(folder.iterdir()) if _is_folder(folder) else []


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _names_itself(folder: Path) -> bool:
    """True where the manifest in `folder` is of the version that the folder is named after."""
    try:
        pin = json.loads((folder / MANIFEST).read_bytes())["pin"]
        return Pin(**{**pin, "scheme": Scheme(pin["scheme"])}).key == folder.name
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock at `path`; None while another process does. The file stays for ever: a lock on
    one that was removed and made again would lock nothing."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return fd


def _strip(folder: Path, wanted: set[str]) -> None:
    """Remove files that are not of this version: another release, with other rules, fetched them."""
    for path in [path for path in folder.rglob("*") if not path.is_dir()]:
        if path.relative_to(folder).as_posix() not in wanted:
            path.unlink()


def _write_manifest(folder: Path, pin: Pin, entries: tuple[Entry, ...]) -> None:
    manifest = {
        "pin": {**asdict(pin), "scheme": pin.scheme.value},
        "files": [[entry.path, entry.size, entry.sha256] for entry in entries],
        "bytes": sum(entry.size for entry in entries),
    }
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(manifest, file)
        file.flush()
        os.fsync(file.fileno())


def collect(
    cache: Path, *, keep: Collection[str] = (), grace: float = GRACE_SECONDS, now: float | None = None
) -> tuple[str, ...]:
    """Remove what nobody has wanted for long, where the user has asked for it (`spec.weights.cache.collect`).

    Returns the keys of the versions removed, complete ones and partial ones. `now` is in seconds since 1970, default:
    the clock. Never removed is: what does not prove by its contents that this program made it (`Cache.removable`), what
    `keep` names, what somebody has marked for good, what another process has locked, what was used within the grace
    period. A version goes by one rename out of sight before its files are deleted, so that a crash leaves either all of
    it or rubbish, which the next collection takes away.

    Who wants a version leaves a mark first and takes the lock then (`fetch`), and marks are looked at under the lock:
    so a version is never taken from under somebody who found it published.
    """
    place, at = Cache(cache), time.time() if now is None else now
    with disk.explain_errors(cache):
        for rubbish in place.rubbish():
            shutil.rmtree(rubbish, ignore_errors=True)
        names = {path.name for folder in ("models", "partial", "uses") for path in children(place.home / folder)}
        keys = sorted(name for name in names - set(keep) if KEY.fullmatch(name))
        return tuple(key for key in keys if _collect(place, key, at - grace))


def _collect(place: Cache, key: str, before: float) -> bool:
    if place.last_used(key) > before:
        return False
    with place.lock(key) as held:
        if not held or place.last_used(key) > before:
            return False
        found = place.removable(key)
        for folder in found:
            _LOG.info("removing %s", folder)
            place.discard(folder)
        if not place.model(key).exists() and not place.partial(key).exists():
            shutil.rmtree(place.uses(key), ignore_errors=True)
    return bool(found)


def _change_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
