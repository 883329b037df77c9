"""One file on its way into a cache: its bytes, its journal and its checksum. Owned by `fetch`, filled by `crew`.

Chunks come in any order, a checksum only in one: so it follows behind, reading what was written as far as there is no
gap (pages that are still in memory, unless there is little of it), and is done almost when the last chunk is. Python
cannot keep the state of a hash over a restart: after one it begins anew, over the chunks that were there.

Sources tell the SHA-256 of whatever is large. Of the small files of a hub, which lie in git, they tell the git object
id: the SHA-1 of `blob SIZE NUL` and the content (git-hash-object(1)), as `git:...` in the entry's etag. Without either
there is nothing to hold a file against but its size, and the CRC of each chunk as it came.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import zlib
from pathlib import Path
from typing import Protocol

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import disk
from speculative_operator.weights.journal import Journal
from speculative_operator.weights.source import Entry, WeightsError, check_path

_BLOCK = 1 << 20
_GIT = re.compile(r"git:([0-9a-f]{40})")


class Part:
    """A file below `partial/<key>/`. Safe to use from several threads, each with chunks of its own."""

    def __init__(self, entry: Entry, folder: Path, chunk: int) -> None:
        """Read what a former run left in `folder`, and keep no file open. Raises WeightsError and OSError."""
        check_path(entry.path)
        self.entry = entry
        self._path = folder / "files" / entry.path
        self._journal_path = folder / "journal" / entry.path
        self._lock = threading.Lock()
        self._hashing = threading.Lock()
        self._fd: int | None = None
        self._journal: Journal | None = None
        for path in (self._path, self._journal_path):
            path.parent.mkdir(parents=True, exist_ok=True)
        journal = Journal(self._journal_path, entry, chunk)
        size = self._path.stat().st_size if self._path.exists() else None
        if (size is None and journal.claims.crcs) or (size != entry.size and journal.claims.whole):
            journal.restart()
        journal.close()
        self.chunk = journal.claims.chunk
        self.claimed = dict(journal.claims.crcs)
        """Chunk -> CRC-32, as the former run claims them; still to be checked against the disk."""
        self.sealed = journal.claims.whole is not None
        """True once the file is finished: checked, and on the disk."""
        self.mismatches = 0
        self._forget()

    def _forget(self) -> None:
        self._have = bytearray(self.chunks)
        self._next = 0
        self._sum = _begin(self.entry)

    @property
    def chunks(self) -> int:
        return -(-self.entry.size // self.chunk)

    def span(self, index: int) -> tuple[int, int]:
        """First byte of a chunk, and the one after its last."""
        return index * self.chunk, min((index + 1) * self.chunk, self.entry.size)

    def open(self) -> int:
        """The descriptor of the data file, opened once."""
        with self._lock:
            if self._fd is None:
                if self._path.exists() and not os.access(self._path, os.W_OK):
                    self._path.chmod(0o664)  # a crash within publication leaves it read-only
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
                disk.resize(self._fd, self.entry.size)
                self._journal = Journal(self._journal_path, self.entry, self.chunk)
            return self._fd

    def close(self) -> None:
        """Close the data file and the journal; the next `open` opens them again."""
        with self._lock:
            if self._fd is not None and self._journal is not None:
                os.close(self._fd)
                self._journal.close()
                self._fd = self._journal = None

    def verify_chunk(self, index: int) -> bool:
        """True where the disk holds a claimed chunk unchanged; then its bytes count as fetched."""
        fd, (at, end) = self.open(), self.span(index)
        block, crc = memoryview(bytearray(min(_BLOCK, end - at))), 0
        while at < end:
            read = disk.read_into(fd, block[: end - at], at)
            if read == 0:
                return False
            crc, at = zlib.crc32(block[:read], crc), at + read
        if crc != self.claimed[index]:
            return False
        with self._lock:
            self._have[index] = 1
        return True

    def had(self, index: int, crc: int) -> None:
        """Note that all bytes of a chunk were written, and have this CRC-32."""
        self.open()
        with self._lock:
            assert self._journal is not None
            self._journal.claim(index, crc)
            self._have[index] = 1

    def advance(self) -> bool:
        """Add to the checksum what has come without a gap, unless another thread does; True when that finished the
        file.

        Raises WeightsError where the file is not what its source announced; everything of it is forgotten then.
        """
        while self._ready() and self._hashing.acquire(blocking=False):
            try:
                while not self.sealed and self._ready():
                    if self._next < self.chunks:
                        self._add()
                    else:
                        self._seal()
                        return True
            finally:
                self._hashing.release()
        return False

    def _ready(self) -> bool:
        with self._lock:
            return not self.sealed and (self._next == self.chunks or bool(self._have[self._next]))

    def _add(self) -> None:
        if _kind_and_value(self.entry)[0]:
            fd, (at, end) = self.open(), self.span(self._next)
            block = memoryview(bytearray(min(_BLOCK, end - at)))
            while at < end:
                read = disk.read_into(fd, block[: end - at], at)
                if read == 0:  # somebody cut the file: the checksum will tell
                    break
                self._sum.update(block[:read])
                at += read
        with self._lock:
            self._next += 1

    def _seal(self) -> None:
        (kind, wanted), digest = _kind_and_value(self.entry), self._sum.hexdigest()
        fd = self.open()
        if kind and digest != wanted:
            self.mismatches += 1
            self.restart()
            raise WeightsError(
                Reason.CHECKSUM_MISMATCH,
                f"the {kind} is {digest} instead of {wanted}",
                file=self.entry.path,
                remedy="the source, a proxy or a mirror changed the file: compare it at its source",
            )
        disk.sync(fd)
        with self._lock:
            assert self._journal is not None
            self._journal.finish()
            self.sealed = True
        self.close()

    def restart(self) -> None:
        """Forget all bytes that have come."""
        self.open()
        with self._lock:
            assert self._journal is not None
            self._journal.restart()
            self.claimed = {}
            self._forget()


class _Hash(Protocol):
    """A hash object, as hashlib makes them."""

    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


def _kind_and_value(entry: Entry) -> tuple[str, str]:
    """Kind (`SHA-256`, `git object id`, or empty) and value of the checksum that the source tells."""
    if entry.sha256:
        return "SHA-256", entry.sha256.lower()
    if git := _GIT.fullmatch(entry.etag):
        return "git object id", git[1]
    return "", ""


def _begin(entry: Entry) -> _Hash:
    """A hash of the kind that the source tells, before the first byte of the file."""
    if _kind_and_value(entry)[0] == "git object id":
        return hashlib.sha1(b"blob %d\0" % entry.size, usedforsecurity=False)
    return hashlib.sha256()
