"""Mounts below a directory: what must be gone before the directory may be deleted.

Deleting through a bind mount would delete what is bound, which may be anything of the host. Called by `state.py` before
every deletion, and by the supervisor, in whose mount table programs may have left mounts.
"""

import ctypes
import re
from pathlib import Path

_DETACH = 2


def below(directory: Path, table: str | None = None) -> list[Path]:
    """Mount points at or below a directory in this process's mount table, deepest first."""
    text = Path("/proc/self/mountinfo").read_text() if table is None else table
    points = [Path(_decoded(line.split()[4])) for line in text.splitlines()]
    # What is mounted last hides what lies under it and is detached first.
    return [point for point in reversed(points) if point == directory or directory in point.parents]


def _decoded(field: str) -> str:
    """The kernel writes blanks and backslashes as octal escapes of bytes."""
    raw = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), field.encode(errors="surrogateescape"))
    return raw.decode(errors="surrogateescape")


def detach(directory: Path) -> None:
    """Detach every mount at or below a directory; one that cannot be detached stays and keeps the directory."""
    libc = ctypes.CDLL(None, use_errno=True)
    for point in below(directory):
        libc.umount2(str(point).encode(errors="surrogateescape"), _DETACH)
