"""The checksum that a source tells of a file, whatever kind it is. Used by `part`.

Sources tell the SHA-256 of whatever is large. Of the small files of a hub, which lie in git, they tell the git object
id: the SHA-1 of `blob SIZE NUL` and the content (git-hash-object(1)), as `git:...` in the entry's etag. Without either
there is nothing to hold a file against but its size, and the CRC of each chunk as it came.
"""

from __future__ import annotations

import hashlib
import re
from typing import Protocol

from speculative_operator.weights.source import Entry

_GIT = re.compile(r"git:([0-9a-f]{40})")


class Hash(Protocol):
    """As hashlib makes them."""

    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


def kind_and_value(entry: Entry) -> tuple[str, str]:
    """Kind (`SHA-256`, `git object id`, or empty) and value of what the source tells."""
    if entry.sha256:
        return "SHA-256", entry.sha256.lower()
    if git := _GIT.fullmatch(entry.etag):
        return "git object id", git[1]
    return "", ""


def begin(entry: Entry) -> Hash:
    """A hash of that kind before the first byte of the file."""
    if kind_and_value(entry)[0] == "git object id":
        return hashlib.sha1(b"blob %d\0" % entry.size, usedforsecurity=False)
    return hashlib.sha256()
