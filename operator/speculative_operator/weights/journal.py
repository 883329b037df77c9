"""Which chunks of one file have come: what a fetch resumes from after a kill at any byte. Written by `part`.

A file's journal is text, one line per event, only ever appended to:

    speculative-journal 1 {"path": ..., "size": ..., "sha256": ..., "etag": ..., "chunk": ...}
    chunk INDEX CRC32      written after the last byte of the chunk was
    whole SHA256           written after checksum and fsync of the file; `-` where the source tells no checksum

A `chunk` line is no promise that the bytes are on the disk: a crash of the machine may keep the line and lose the
pages. It is what the bytes are held against: who resumes reads every claimed chunk and believes it only when its CRC
matches. That costs no fsync per chunk, and catches more than one would (a volume that was restored, a disk that lies).
A `whole` line is believed unread, because it is written after fsync of what it speaks of. What a kill leaves of a last
line has no line end and does not count; nor does anything after a line that cannot be read.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from speculative_operator.weights import disk
from speculative_operator.weights.source import Entry

_MAGIC = "speculative-journal 1 "
_CHUNK = re.compile(r"chunk (\d{1,9}) ([0-9a-f]{8})")
_WHOLE = re.compile(r"whole ([0-9a-f]{64}|-)")


@dataclass
class Claims:
    """The claims of a journal about one file."""

    chunk: int
    """Bytes per chunk; the last one may be shorter."""
    crcs: dict[int, int] = field(default_factory=dict)
    """Index of a chunk -> CRC-32 of its bytes as they came."""
    whole: str | None = None
    """SHA-256 of the finished file, `-` where the source tells none; None while it is not finished."""


def header(entry: Entry, chunk: int) -> bytes:
    """First line of the journal of `entry`."""
    fields = {"path": entry.path, "size": entry.size, "sha256": entry.sha256, "etag": entry.etag, "chunk": chunk}
    return f"{_MAGIC}{json.dumps(fields, sort_keys=True)}\n".encode()


def parse(text: bytes, entry: Entry) -> tuple[Claims | None, int]:
    """The claims that `text` makes of `entry`, and the number of its good bytes. None: it speaks of another file or
    version."""
    lines = text.split(b"\n")[:-1]
    claims = _open_claims(lines[0], entry) if lines else None
    if claims is None:
        return None, 0
    good = len(lines[0]) + 1
    for line in lines[1:]:
        if not _add(claims, line.decode("ascii", "replace"), entry):
            break
        good += len(line) + 1
    return claims, good


def _open_claims(line: bytes, entry: Entry) -> Claims | None:
    try:
        chunk = int(json.loads(line.decode().removeprefix(_MAGIC))["chunk"])
    except (ValueError, KeyError, TypeError):
        return None
    return Claims(chunk) if chunk > 0 and line + b"\n" == header(entry, chunk) else None


def _add(claims: Claims, line: str, entry: Entry) -> bool:
    if chunk := _CHUNK.fullmatch(line):
        index = int(chunk[1])
        if index * claims.chunk >= entry.size:
            return False
        claims.crcs[index] = int(chunk[2], 16)
        return True
    if whole := _WHOLE.fullmatch(line):
        if whole[1] != (entry.sha256 or "-"):
            return False
        claims.whole = whole[1]
        return True
    return False


class Journal:
    """The journal at `path`, open for appending. One process at a time: the lock of the pin sees to that."""

    def __init__(self, path: Path, entry: Entry, chunk: int) -> None:
        """Open the journal that is there, with the chunks it was begun with, or begin a new one with chunks of `chunk`
        bytes."""
        self._entry = entry
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o664)
        with os.fdopen(os.dup(self._fd), "rb") as file:
            text = file.read()
        found, good = parse(text, entry)
        self.claims = found or Claims(chunk)
        if found is None:
            self.restart()
        elif good < len(text):
            disk.resize(self._fd, good)

    def restart(self) -> None:
        """Forget every claim, for good: a `whole` that came back after a crash would be believed."""
        self.claims = Claims(self.claims.chunk)
        disk.resize(self._fd, 0)
        disk.append(self._fd, header(self._entry, self.claims.chunk))
        disk.sync(self._fd)

    def claim(self, index: int, crc: int) -> None:
        """Claim that chunk `index` was written, with this CRC-32. Called after its last byte was."""
        disk.append(self._fd, f"chunk {index} {crc:08x}\n".encode())
        self.claims.crcs[index] = crc

    def finish(self) -> None:
        """Claim that the file is whole, checked, and on the disk."""
        whole = self._entry.sha256 or "-"
        disk.append(self._fd, f"whole {whole}\n".encode())
        self.claims.whole = whole

    def close(self) -> None:
        os.close(self._fd)
