"""Every write to a cache passes here, so that a full, read-only or failing volume is named as such wherever it shows.
Used by whatever writes there. Tests put a disk that loses power in its place.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from speculative_operator.domain.formats import size
from speculative_operator.domain.reasons import Reason
from speculative_operator.own_folder import FOLDER, ForeignError
from speculative_operator.weights.source import WeightsError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM}
_SMALLEST_MARGIN = 16 << 20


def write_at(fd: int, data: bytes | memoryview, at: int) -> None:
    """Write all of `data` at byte `at`."""
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, at)
        left = left[written:]
        at += written


def sync(fd: int) -> None:
    """Bring contents and size of the file to the disk before this returns."""
    os.fsync(fd)


def sync_folder(path: Path) -> None:
    """Bring the names in `path` to the disk before this returns."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def free(path: Path) -> int:
    """Bytes that this process may still write to the volume of `path`."""
    seen = os.statvfs(path)
    return seen.f_bavail * seen.f_frsize


def reserved_bytes(path: Path, share: float) -> int:
    """Bytes that make up `share` of the volume of `path`, which stay free for others."""
    seen = os.statvfs(path)
    return int(seen.f_blocks * seen.f_frsize * share)


def require_room(path: Path, missing: int, reserve: float = 0.0) -> None:
    """Raises WeightsError unless `missing` bytes and a margin (1 %, at least 16 MiB) are free at `path`, beside
    `reserve`, a share of the volume."""
    needed = missing + max(missing // 100, _SMALLEST_MARGIN) if missing else 0
    left = free(path) - reserved_bytes(path, reserve)
    if needed > max(left, 0):
        raise full(path, needed, left, reserve)


def require_reserve(path: Path, reserve: float) -> None:
    """Raises WeightsError where others have written so much that the volume comes to its end, or into its reserve."""
    left = free(path) - reserved_bytes(path, reserve)
    if left < _SMALLEST_MARGIN // 4:
        raise full(path, _SMALLEST_MARGIN, left, reserve)


def full(path: Path, needed: int, left: int, reserve: float = 0.0) -> WeightsError:
    """The error of a volume without room for `needed` more bytes."""
    left = max(left, 0)
    beside = f" in addition to the {reserve:.0%} of the disk that must stay free" if reserve else ""
    return WeightsError(
        Reason.CACHE_FULL,
        f"the cache at {path} needs {needed} bytes more ({size(needed)}) and has {left} free ({size(left)}){beside}",
        remedy=f"enlarge the claim by at least {size(max(needed - left, 1))}, or remove unused models;"
        " downloaded bytes stay in the cache",
    )


@contextmanager
def explain_errors(root: Path, file: str = "", missing: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Turn errors of the volume of the cache at `root` into WeightsError. `missing` returns the bytes still to come."""
    try:
        yield
    except OSError as error:
        raise _explain(error, root, file, missing) from error


def _explain(error: OSError, root: Path, file: str, missing: Callable[[], int]) -> WeightsError:
    cause = error.strerror or str(error)
    if isinstance(error, ForeignError):
        return WeightsError(
            Reason.CACHE_FOREIGN,
            f"the folder in the cache at {root} was not created by the operator: {error}",
            remedy=f"move {FOLDER} away if it is yours, or set spec.weights.cache to another claim or folder",
        )
    if error.errno in _FULL:
        error_full = full(root, max(missing(), 1), free(root))
        error_full.file = file
        return error_full
    if error.errno in _FORBIDDEN:
        remedy = (
            f"create a folder {FOLDER} in the root of the claim, writable for user {os.getuid()}, group {os.getgid()}"
        )
    elif error.errno == errno.EROFS:
        remedy = (
            "mount the claim for writing, and check whether the node remounted the volume read-only after a failure"
        )
    else:
        remedy = "check the volume behind the claim"
    return WeightsError(
        Reason.CACHE_UNWRITABLE, f"writing to the cache at {root} fails: {cause}", file=file, remedy=remedy
    )
