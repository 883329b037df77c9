"""Models in OCI registries, read by range from their blobs, to compare a pair. The kubelet pulls them, as volumes of
type `image` whose root is the model: nothing is fetched or unpacked here.

Which layers are files: a layer whose annotation `org.opencontainers.image.title` (ORAS) or `org.cncf.model.filepath`
(ModelPack) names a path and whose content is not packed is that file. A layer of an uncompressed tar (images, KitOps,
`.tar` of ModelPack) is walked for its files, which are then read in place. Layers in gzip and zstd have no ranges: of
an image with one nothing is read.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain.models import Pin
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource
from speculative_operator.weights.patience import Patience, within
from speculative_operator.weights.registry import Login, Reference
from speculative_operator.weights.source import Entry, WeightsError, check_path, select_needed

_MANIFEST = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
_INDEX = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
_ACCEPTED = f"{_MANIFEST}, {_INDEX}"
_NAMES = ("org.opencontainers.image.title", "org.cncf.model.filepath", "org.cnai.model.filepath")
_FOLDER = "io.deis.oras.content.unpack"
_PACKERS = ("application/vnd.cncf.model.", "application/vnd.cnai.model.", "application/vnd.kitops.modelkit.")
_COMPRESSED = ("gzip", "+gz", "zstd")
"""Endings of the media types of compressed tars."""
_READ_AHEAD = 16 << 10
_MOST_FILES = 20_000
_MOST_NOTES = 1 << 20
"""Most bytes of a long name or of extended attributes, which the reader takes into memory."""
_MISREAD = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)
"""Exceptions that reading may raise beside WeightsError, where a file is no tar or is made to harm."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the bytes of a file lie."""

    digest: str
    offset: int = 0


@dataclass
class RegistrySource:
    """One manifest of a registry, whose files are read by range."""

    pin: Pin
    login: Login = field(repr=False)
    files: tuple[Entry, ...] = field(default=(), repr=False)
    places: dict[str, _Place] = field(default_factory=dict, repr=False)

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        place = self.places[entry.path]
        yield from self.blob(place.digest, place.offset + start, place.offset + end, entry.path)

    def blob(self, digest: str, start: int, end: int, file: str) -> Iterator[bytes]:
        """Yield bytes of a blob; a token that has expired is renewed once."""
        base = self.login.reference.base
        url = f"{base}/blobs/{digest}"
        try:
            yield from self.login.transport.blocks(url, self.login.headers(), (start, end), file)
        except WeightsError as error:
            if error.status not in (401, 403):  # with which an answer begins: no byte has come
                raise
            # Whether the token was old or the blob is withheld tells a request for what may be read for certain.
            self.login.ask(f"{base}/manifests/{self.pin.resolved}", _ACCEPTED)
            yield from self.login.transport.blocks(url, self.login.headers(), (start, end), file)


def open_registry(source: ModelSource, patience: Patience | None = None) -> RegistrySource:
    """A model at a tag or digest of `oci://registry/repository`. Raises WeightsError."""
    reference = Reference.of(source.location, source.revision)
    login = Login(reference, patience or Patience.from_environment())
    return within(login.transport.patience.listing, login.transport.uri, lambda: _open(source, login))


def _open(source: ModelSource, login: Login) -> RegistrySource:
    reference = login.reference
    digest, manifest = _manifest(login, reference.version)
    if "manifests" in manifest:
        _, manifest = _manifest(login, _of_this_platform(manifest["manifests"], reference))
    pin = Pin(source.scheme, reference.location, reference.version, digest)
    opened = RegistrySource(pin, login)
    files = dict(_files(opened, manifest))
    opened.places = {path: place for path, (_, place) in files.items()}
    opened.files = select_needed(entry for entry, _ in files.values())
    if not opened.files:
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND,
            f"oci://{reference.location}: no layer of {reference.version} is a model file",
            remedy="publish an image whose root is the model, with uncompressed layers",
        )
    return opened


def _manifest(login: Login, version: str) -> tuple[str, Mapping[str, Any]]:
    reference = login.reference
    answer = login.ask(f"{reference.base}/manifests/{version}", _ACCEPTED)
    digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
    if version.startswith("sha256:") and version != digest:
        raise WeightsError(
            Reason.CHECKSUM_MISMATCH, f"oci://{reference.location}: the manifest {version} has the digest {digest}"
        )
    try:
        manifest = json.loads(answer.content)
        if not isinstance(manifest, dict) or not {"layers", "manifests"} & manifest.keys():
            raise ValueError("neither layers nor manifests")
    except (ValueError, RecursionError) as error:
        raise _odd(reference, f"the answer is not a manifest ({error})") from error
    return digest, manifest


def _of_this_platform(manifests: Any, reference: Reference) -> str:
    """Digest of the first manifest for a platform: weights are the same on all. Raises WeightsError."""
    try:
        real = (one for one in manifests if (one.get("platform") or {}).get("os", "") != "unknown")
        return str(next(real)["digest"])
    except (AttributeError, KeyError, TypeError, StopIteration) as error:
        raise _odd(reference, "an index without manifests") from error


def _files(source: RegistrySource, manifest: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Entry, _Place]]]:
    """Yield the files of all layers, in their order: of two by one path the later one holds."""
    try:
        layers = [
            (str(one["digest"]), int(one["size"]), str(one.get("mediaType", "")), dict(one.get("annotations") or {}))
            for one in manifest["layers"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _odd(source.login.reference, f"layers without digest or size ({error})") from error
    for digest, size, kind, notes in layers:
        name = next((str(notes[key]) for key in _NAMES if notes.get(key)), "")
        if "tar" in kind and (not name or notes.get(_FOLDER) == "true" or kind.startswith(_PACKERS)):
            if kind.endswith(_COMPRESSED):
                raise _compressed(source.login.reference, digest, kind)
            yield from _packed_files(source, digest, size)
        elif name:
            yield name, (Entry(name, size, digest.removeprefix("sha256:"), digest), _Place(digest))


def _compressed(reference: Reference, digest: str, kind: str) -> WeightsError:
    return WeightsError(
        Reason.PAIR_UNREAD,
        f"oci://{reference.location}: layer {digest[:19]} is compressed ({kind}), so its files cannot be read in place",
        remedy="to have the pair compared and pinned, publish the image with uncompressed layers: weights hardly "
        "compress; to have it pinned alone, name the image by its digest",
    )


def _packed_files(source: RegistrySource, digest: str, size: int) -> Iterator[tuple[str, tuple[Entry, _Place]]]:
    blob = io.BufferedReader(_Blob(source, digest, size), _READ_AHEAD)
    try:
        with tarfile.open(fileobj=blob, mode="r:", tarinfo=_Member) as tar:
            for count, member in enumerate(tar):
                if count > _MOST_FILES:
                    raise tarfile.ReadError(f"more than {_MOST_FILES} files")
                if member.size < 0:  # the reader would go back, and find the same again
                    raise tarfile.ReadError(f"a file of {member.size} bytes")
                path = member.name.removeprefix("./")
                if not member.isreg() or "\\" in path:  # units of systemd in base images; no name of a model's file
                    continue
                check_path(path)
                if member.issparse():
                    raise ValueError(f"{path} is a sparse file, which cannot be read in one piece")
                entry = Entry(path, member.size, "", f"{digest}@{member.offset_data}")
                yield path, (entry, _Place(digest, member.offset_data))
    except _MISREAD as error:
        raise _odd(source.login.reference, f"layer {digest[:19]} is not a readable tar ({error})") from error


def _odd(reference: Reference, what: str) -> WeightsError:
    return WeightsError(Reason.UNSUPPORTED_SOURCE, f"oci://{reference.location}: {what}")


class _Member(tarfile.TarInfo):
    """Bounds what a reader of tars takes into memory, at the place that the library has for subclasses."""

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        short = 0 <= self.size <= _MOST_NOTES
        if not (short or self.isreg() or self.isdir() or self.islnk() or self.issym()):
            raise tarfile.ReadError(f"{self.size} bytes of notes about a file")
        return super()._proc_member(tar)  # type: ignore[misc]


class _Blob(io.RawIOBase):
    """A blob as a file to seek in."""

    def __init__(self, source: RegistrySource, digest: str, size: int) -> None:
        self._source, self._digest, self._size, self._at = source, digest, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        content = b"".join(self._source.blob(self._digest, self._at, end, ""))
        buffer[: len(content)] = content
        self._at = end
        return len(content)
