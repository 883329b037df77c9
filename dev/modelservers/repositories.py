"""Folders as repositories of a hub: commits, checksums, branches. Used by `hub`.

`DIR/org/name/` is `org/name` at `main`; `DIR/org/name@branch/` is another branch of it. A commit is the SHA-1 over
names and checksums of all files, computed anew whenever a file changed; every branch's commit can be asked for.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path

LFS_BYTES = 10 << 20
_LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf", ".model")


@dataclass(frozen=True)
class File:
    """One file of a commit."""

    path: str
    place: Path
    size: int
    sha256: str
    blob: str
    """SHA-1 that git gives its content; of large files that of a pointer would be, and here of the checksum."""

    @property
    def large(self) -> bool:
        """Kept in large file storage, as the hub does with weights and whatever is beyond 10 MiB."""
        return self.size >= LFS_BYTES or self.path.endswith(_LFS_SUFFIXES)


@dataclass(frozen=True)
class Commit:
    sha: str
    files: dict[str, File]


class Repositories:
    """Everything below one folder. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, int], tuple[str, str]] = {}
        self._commits: dict[tuple[str, str], Commit] = {}

    def names(self) -> list[str]:
        """`org/name` of every repository."""
        places = (*self.folder.glob("*/*"), *self.folder.glob("datasets/*/*"))
        found = {path.relative_to(self.folder).as_posix() for path in places if path.is_dir()}
        return sorted({name.partition("@")[0] for name in found})

    def commit(self, name: str, revision: str, path: str = "") -> Commit | None:
        """At a branch or a commit; None where there is none. Who wants one file of a commit, and names it, is spared
        a look at all the others."""
        former = self._commits.get((name, revision))
        if former is not None and path in former.files and self._is_as_it_was(former.files[path]):
            return former
        organisation, _, model = name.partition("/")
        branches = {"main": self.folder / organisation / model}
        for place in (self.folder / organisation).glob(f"{model}@*"):
            branches[place.name.partition("@")[2]] = place
        if revision in branches:
            return self._read(branches[revision]) if branches[revision].is_dir() else None
        found = (self._read(place) for place in branches.values() if place.is_dir())
        asked = next((commit for commit in found if commit.sha == revision), None)
        if asked is not None:
            self._commits[name, revision] = asked
        return asked

    def _is_as_it_was(self, file: File) -> bool:
        try:
            stat = file.place.stat()
        except OSError:
            return False
        return (str(file.place), stat.st_size, stat.st_mtime_ns) in self._known

    def _read(self, folder: Path) -> Commit:
        with self._lock:
            places = sorted(path for path in folder.rglob("*") if path.is_file())
            files = [self._file(path, path.relative_to(folder).as_posix()) for path in places]
        text = "".join(f"{one.path}\0{one.sha256}\n" for one in files)
        return Commit(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), {one.path: one for one in files})

    def _file(self, place: Path, path: str) -> File:
        stat = place.stat()
        key = (str(place), stat.st_size, stat.st_mtime_ns)
        if key not in self._known:
            sparse = stat.st_blocks * 512 < stat.st_size // 2
            self._known[key] = _sampled(place, stat.st_size) if sparse else _summed(place, stat.st_size)
        sha256, blob = self._known[key]
        return File(path, place, stat.st_size, sha256, blob)


def _summed(place: Path, size: int) -> tuple[str, str]:
    sha256, blob = hashlib.sha256(), hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with place.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
            blob.update(block)
    return sha256.hexdigest(), blob.hexdigest()


def _sampled(place: Path, size: int) -> tuple[str, str]:
    """Of a file that is mostly holes, which stands for one that is too large to be read here: not its checksum."""
    with place.open("rb") as file:
        sha256 = hashlib.sha256(f"{size}\n".encode() + file.read(64 << 10)).hexdigest()
    return sha256, sha256[:40]
