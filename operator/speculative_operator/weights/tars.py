"""The files of a tar, found in bounded memory. Called by `oci` on tars it reads in place, by `layers` on streams."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import Any, Literal

from speculative_operator.weights.needed import check_path

MISREAD = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)
"""Exceptions that reading may raise beside WeightsError, where a file is no tar or is made to harm."""
_MOST_FILES = 20_000
_MOST_NOTES = 1 << 20
"""Most bytes of a long name or of extended attributes, which the reader takes into memory."""
_STEP = 64 << 10


def open_tar(file: Any, mode: Literal["r:", "r|"]) -> tarfile.TarFile:
    """Open a tar: `r:` seeks in `file`, `r|` reads it once, forward. Raises one of MISREAD."""
    tar: tarfile.TarFile = tarfile.open(fileobj=file, mode=mode, bufsize=_STEP, tarinfo=_Member)  # noqa: SIM115  closed by the caller
    return tar


def files(tar: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Yield path and place of every regular file, in the order of the tar. Raises WeightsError, or one of MISREAD."""
    for count, member in enumerate(tar):
        if count > _MOST_FILES:
            raise tarfile.ReadError(f"more than {_MOST_FILES} files")
        if member.size < 0:  # the reader would go back, and find the same again
            raise tarfile.ReadError(f"a file of {member.size} bytes")
        path = member.name.removeprefix("./")
        if member.isreg() and "\\" not in path:  # units of systemd in base images; no name of a model's file
            check_path(path)
            yield path, member


class _Member(tarfile.TarInfo):
    """Bounds what a reader of tars takes into memory, at the place that the library has for subclasses."""

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        short = 0 <= self.size <= _MOST_NOTES
        if not (short or self.isreg() or self.isdir() or self.islnk() or self.issym()):
            raise tarfile.ReadError(f"{self.size} bytes of notes about a file")
        return super()._proc_member(tar)  # type: ignore[misc]
