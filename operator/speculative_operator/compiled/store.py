"""The shared volume: whole generations of compiled code, published by one rename. Called by `seed` and `keep`.

All of it lies below a folder of our own (`own_folder`); what else is on the volume belongs to others, as does what lies
in ours by names that this program does not give:

    compiled/KEY/GENERATION/files/...        published; never written to again
    compiled/KEY/GENERATION/manifest.json    [[PATH, BYTES, SHA256], ...]
    partial/NAME/                            being written
    uses/KEY                                 touched by every pod that runs with the key
    trash/                                   on its way out

Engines never see this volume: some of their files are written in place and read without a check (vLLM's
vllm_compile_cache.py is), so that two writers, or one that was killed, could keep an engine from starting. What is read
back is held against its checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from speculative_operator.own_folder import FOLDER, own_folder

KIND = "compiled"
MOST_BYTES = 4 * 1024**3
"""Most bytes of one generation. Compiled code of one pair takes some 10 to 500 MB; more is no cache of code."""
MOST_FILES = 50_000
UNUSED_SECONDS = 7 * 86400.0
"""Seconds after which a key that no pod ran with is removed."""
MOST_KEYS = 32
"""Most keys that are kept: beyond it the longest unused go, but for those of the last day."""
_DAY = 86400.0
_CHUNK = 1 << 20
_MANIFEST = "manifest.json"
_FILES = "files"
_PASSING = (".lock", ".tmp")
_KEY = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}")
_GENERATION = re.compile(r"[0-9]{20}-[a-zA-Z0-9.-]+")
_PART = re.compile(rf"{_KEY.pattern}\.{_GENERATION.pattern}")
_TRASH = re.compile(rf"({_KEY.pattern}|{_GENERATION.pattern}|{_PART.pattern})\.[0-9]+")
"""Names that this program gives to folders in the trash."""
_OPEN_FOLDER, _OPEN_FILE = 0o777, 0o666
"""Modes for any user: pods of a namespace may run the engine under different user ids."""


class TornError(Exception):
    """A published generation differs from what was written, or files changed while they were read."""


@dataclass(frozen=True)
class Entry:
    """One file of a generation."""

    path: str
    """Path below the cache folder, with slashes."""
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Found:
    """One file as it lies in the engine's folder."""

    path: str
    bytes: int
    changed: int
    """Time of the last change in nanoseconds."""


def list_files(source: Path, folders: tuple[str, ...]) -> tuple[Found, ...]:
    """Regular files below `folders` of `source`, by path, without links, locks and files that are being written."""
    found = []
    for folder in folders:
        for at, _, names in os.walk(source / folder):
            for name in names:
                file = Path(at, name)
                if name.endswith(_PASSING) or name.startswith("tmp.") or file.is_symlink() or not file.is_file():
                    continue
                with contextlib.suppress(FileNotFoundError):
                    told = file.stat()
                    found.append(Found(file.relative_to(source).as_posix(), told.st_size, told.st_mtime_ns))
    return tuple(sorted(found, key=lambda one: one.path))


class Store:
    """The generations of one key on the volume `volume`. Every method may raise OSError."""

    def __init__(self, volume: Path, key: str) -> None:
        self.volume, self.root, self.key = volume, volume / FOLDER, key
        self._home = self.root / "compiled" / key

    def generations(self) -> list[str]:
        """Names of the published generations, newest first."""
        try:
            return sorted((one.name for one in self._home.iterdir() if _GENERATION.fullmatch(one.name)), reverse=True)
        except FileNotFoundError:
            return []

    def entries(self, generation: str) -> tuple[Entry, ...]:
        """The files of a generation, by its manifest. Raises TornError where the manifest cannot be read."""
        try:
            rows = json.loads((self._home / generation / _MANIFEST).read_text(encoding="utf-8"))
            found = tuple(Entry(str(path), int(size), str(digest)) for path, size, digest in rows)
        except FileNotFoundError:
            raise
        except (ValueError, TypeError) as error:
            raise TornError(f"cannot read {_MANIFEST}: {error}") from error
        for one in found:
            if not one.path or PurePosixPath(one.path).is_absolute() or ".." in PurePosixPath(one.path).parts:
                raise TornError(f"{_MANIFEST} names {one.path}")
        return found

    def copy_out(self, generation: str, target: Path) -> None:
        """Copy every file of a generation to `target`, which is empty. Raises TornError where a file differs."""
        for one in self.entries(generation):
            file = target / one.path
            _open_folders(target, file.parent)
            size, digest = _copy(self._home / generation / _FILES / one.path, file)
            if (size, digest) != (one.bytes, one.sha256):
                raise TornError(f"{one.path} differs from what was published")
            file.chmod(_OPEN_FILE)

    def holds(self, files: tuple[Found, ...]) -> bool:
        """True where the newest generation has every one of `files` already."""
        for generation in self.generations()[:1]:
            with contextlib.suppress(TornError, FileNotFoundError):
                known = {(one.path, one.bytes) for one in self.entries(generation)}
                return all((one.path, one.bytes) in known for one in files)
        return False

    def publish(self, source: Path, folders: tuple[str, ...], name: str) -> str:
        """Publish the files below `folders` of `source` as a new generation; returns its name, or an empty text where
        nothing is new.

        `name` tells this writer from others. Raises TornError where files changed meanwhile or are too many.
        """
        files = list_files(source, folders)
        if not files or self.holds(files):
            return ""
        total = sum(one.bytes for one in files)
        if total > MOST_BYTES or len(files) > MOST_FILES:
            raise TornError(f"{len(files)} files of {total} bytes are more than a cache of compiled code may have")
        generation = f"{time.time_ns():020d}-{name}"
        own_folder(self.volume, KIND, _OPEN_FOLDER)
        stage = self.root / "partial" / f"{self.key}.{generation}"
        try:
            entries = [self._write_file(source, stage / _FILES, one) for one in files]
            if list_files(source, folders) != files:
                raise TornError("files changed while they were read")
            _write(stage / _MANIFEST, json.dumps([[one.path, one.bytes, one.sha256] for one in entries]).encode())
            _open_folders(self.root, self._home)
            stage.rename(self._home / generation)
            _sync(self._home)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        return generation

    def _write_file(self, source: Path, target: Path, one: Found) -> Entry:
        file = target / one.path
        _open_folders(self.root, file.parent)
        size, digest = _copy(source / one.path, file, sync=True)
        file.chmod(_OPEN_FILE)
        return Entry(one.path, size, digest)

    def discard(self, generation: str) -> None:
        """Remove a generation, so that no pod that starts from now on finds it."""
        self._trash(self._home / generation)

    def use(self) -> None:
        """Mark the key as used by a pod now."""
        own_folder(self.volume, KIND, _OPEN_FOLDER)
        mark = self.root / "uses" / self.key
        _open_folders(self.root, mark.parent)
        mark.touch()
        os.utime(mark)

    def collect(self) -> tuple[str, ...]:
        """Remove unused keys, old generations and rubbish; returns the removed keys. The clock is the volume's own,
        taken from our mark."""
        self.use()
        now = (self.root / "uses" / self.key).stat().st_mtime
        for generation in self.generations()[1:]:
            self.discard(generation)
        ages = sorted((now - used, key) for key, used in self._others())
        gone = [
            key for rank, (age, key) in enumerate(ages, 2) if age > UNUSED_SECONDS or (rank > MOST_KEYS and age > _DAY)
        ]
        for key in gone:
            self._trash(self.root / "compiled" / key)
            (self.root / "uses" / key).unlink(missing_ok=True)
        for folder in _children(self.root / "partial"):
            with contextlib.suppress(FileNotFoundError):
                if _PART.fullmatch(folder.name) and now - folder.stat().st_mtime > _DAY:
                    self._trash(folder)
        for folder in _children(self.root / "trash"):
            if _TRASH.fullmatch(folder.name):
                shutil.rmtree(folder, ignore_errors=True)
        return tuple(gone)

    def _others(self) -> Iterator[tuple[str, float]]:
        """Yield every other key that holds nothing but generations, with the time of its last use."""
        for folder in _children(self.root / "compiled"):
            if folder.name == self.key or not _KEY.fullmatch(folder.name):
                continue
            if any(not _GENERATION.fullmatch(one.name) for one in _children(folder)):
                continue
            with contextlib.suppress(FileNotFoundError):
                mark = self.root / "uses" / folder.name
                yield folder.name, (mark if mark.exists() else folder).stat().st_mtime

    def _trash(self, folder: Path) -> None:
        """Remove a folder by one rename first, so that nobody finds half of it."""
        trash = self.root / "trash"
        _open_folders(self.root, trash)
        target = trash / f"{folder.name}.{time.time_ns()}"
        with contextlib.suppress(FileNotFoundError):
            folder.rename(target)
        shutil.rmtree(target, ignore_errors=True)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if one.is_dir())
    except FileNotFoundError:
        return []


def _open_folders(root: Path, folder: Path) -> None:
    """Make `folder` and the missing folders between it and `root`, open for every user id."""
    missing = []
    while folder != root and not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        with contextlib.suppress(PermissionError):  # another pod was first
            one.chmod(_OPEN_FOLDER)


def _copy(source: Path, target: Path, *, sync: bool = False) -> tuple[int, str]:
    """Copy a file; returns the bytes and the SHA-256 of its content."""
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            writer.write(chunk)
        if sync:
            writer.flush()
            os.fsync(writer.fileno())
    return size, digest.hexdigest()


def _write(file: Path, content: bytes) -> None:
    with file.open("wb") as writer:
        writer.write(content)
        writer.flush()
        os.fsync(writer.fileno())
    file.chmod(_OPEN_FILE)


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system syncs folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
