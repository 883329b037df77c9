"""Models in folders: a mounted claim (`pvc://claim/path`) or any folder of a user's machine.

A folder has no commits, so its pin is computed (`FolderSource.pin`): sha256 over one line per file, sorted by path,
`path NUL size NUL checksum LF`, in UTF-8. The checksum is the sha256 of the whole file up to 64 MiB, and of samples of
a larger one: its first MiB, which in a safetensors file holds the header or its beginning, and 64 KiB at its middle and
at its end. Times and owners do not count, so a copy has the pin of its original.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from speculative_operator.domain.models import Pin
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights.source import Entry, WeightsError, check_path, select_needed

_BLOCK = 1 << 20
_WHOLE = 64 << 20
_SAMPLE = 64 << 10


@dataclass(frozen=True)
class FolderSource:
    """A folder as it was when opened."""

    root: Path
    pin: Pin
    files: tuple[Entry, ...] = field(repr=False)

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        at = start
        with _explain_errors(self.pin.source, entry.path), (self.root / entry.path).open("rb") as file:
            file.seek(start)
            while at < end:
                block = file.read(min(_BLOCK, end - at))
                if not block:
                    raise WeightsError(
                        Reason.CHECKSUM_MISMATCH,
                        f"{self.pin.source.uri}: the file ends at byte {at}, before byte {end}",
                        file=entry.path,
                        remedy="the file changed while it was read; retry when nothing writes to the folder",
                    )
                at += len(block)
                yield block


def open_claim(source: ModelSource, claims_at: Path | None) -> FolderSource:
    """The folder that `pvc://claim/path` names below `claims_at`; links may not leave the claim. Raises
    WeightsError."""
    claim, _, path = source.location.partition("/")
    check_path(source.location)
    if claims_at is None:
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND,
            f"{source.uri} is a claim, but the folder below which claims are mounted is not given",
            remedy="give it with --claims-at",
        )
    return _open(source, claims_at / claim / path, claims_at / claim)


def open_folder(folder: Path) -> FolderSource:
    """A folder of this machine as a source; links are followed wherever they lead. Raises WeightsError."""
    return _open(ModelSource(Scheme.PVC, folder.absolute().as_posix().lstrip("/")), folder, None)


def _open(source: ModelSource, root: Path, within: Path | None) -> FolderSource:
    if not root.is_dir():
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND,
            f"{source.uri}: there is no folder {root}",
            remedy="correct the name of the claim or the path inside it",
        )
    with _explain_errors(source, ""):
        listed = select_needed(_listing(root, within))
        with ThreadPoolExecutor(8) as pool:
            entries = tuple(pool.map(lambda entry: _hash_file(root, entry), listed))
    if not entries:
        raise WeightsError(Reason.SOURCE_NOT_FOUND, f"{source.uri}: the folder {root} has no model files")
    pin = Pin(source.scheme, source.location, source.revision, digest_of(entries))
    return FolderSource(root, check_version(source, pin), entries)


def stay_within(folder: Path, path: Path) -> Path:
    """`path`, which leads to a place below `folder`: whoever writes to its claim could have another file of a container
    published by a link. Raises WeightsError."""
    if not path.resolve().is_relative_to(folder.resolve()):
        remedy = "remove the link, see who else writes to the claim, and create the training anew"
        raise WeightsError(Reason.OUTPUT_FOREIGN, f"{path} is a link out of {folder}", path.name, remedy=remedy)
    return path


def digest_of(entries: Iterable[Entry]) -> str:
    """The pin of a source without versions of its own: over names, sizes and checksums of its files."""
    whole = hashlib.sha256()
    for entry in sorted(entries, key=lambda one: one.path):
        whole.update(f"{entry.path}\0{entry.size}\0{entry.sha256 or entry.etag}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def check_version(source: ModelSource, pin: Pin) -> Pin:
    """Returns `pin` where the source was asked for that very version, or for none. Raises WeightsError otherwise: a
    source without versions cannot give an earlier one."""
    if source.revision and source.revision != pin.resolved:
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND,
            f"{source.uri} is now {pin.resolved[:19]}..., but {source.revision[:19]}... was requested",
            remedy="its files have changed: restore the previous files, or remove the revision to use the present ones",
        )
    return pin


def _listing(root: Path, within: Path | None) -> Iterator[Entry]:
    """Yield regular files below `root`; folders behind links are not entered."""
    for folder, _, names in os.walk(root, onerror=_raise):
        for name in names:
            path = Path(folder) / name
            if not path.is_file():
                continue
            if within is not None and not path.resolve().is_relative_to(within.resolve()):
                raise WeightsError(
                    Reason.UNSUPPORTED_SOURCE,
                    f"{path} is a link to a place outside of its claim",
                    file=path.relative_to(root).as_posix(),
                    remedy="put the file itself there",
                )
            yield Entry(path.relative_to(root).as_posix(), path.stat().st_size)


def _raise(error: OSError) -> None:
    raise error


def _hash_file(root: Path, entry: Entry) -> Entry:
    with (root / entry.path).open("rb") as file:
        if entry.size <= _WHOLE:
            return Entry(entry.path, entry.size, sha256=hashlib.file_digest(file, "sha256").hexdigest())
        sampled = hashlib.sha256(file.read(_BLOCK))
        for at in (entry.size // 2, entry.size - _SAMPLE):
            file.seek(at)
            sampled.update(file.read(_SAMPLE))
    return Entry(entry.path, entry.size, etag=f"samples:{sampled.hexdigest()}")


@contextmanager
def _explain_errors(source: ModelSource, file: str) -> Iterator[None]:
    """Turn errors of the file system into WeightsError."""
    try:
        yield
    except OSError as error:
        reason, remedy = _BY_KIND.get(type(error), (Reason.SOURCE_UNREACHABLE, "check the volume behind the folder"))
        name = file or str(error.filename or "")
        raise WeightsError(reason, f"{source.uri}: {error.strerror or error}", file=name, remedy=remedy) from error


_BY_KIND: dict[type[OSError], tuple[Reason, str]] = {
    PermissionError: (Reason.SOURCE_UNAUTHORIZED, "make the files readable for group 0, with which the pods run"),
    FileNotFoundError: (Reason.SOURCE_NOT_FOUND, "it was removed while the folder was read"),
}
