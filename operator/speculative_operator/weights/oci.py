"""Models in OCI registries, read by range from their blobs.

Which layers are files: a layer whose annotation `org.opencontainers.image.title` (ORAS) or `org.cncf.model.filepath`
(ModelPack) names a path and whose content is not packed is that file. A layer of an uncompressed tar (KitOps, images,
`.tar` of ModelPack) is walked for its files, which are then read in place. Layers in gzip and zstd have no ranges: an
image with one is read as streams (`layers`). Where `config.json` lies in exactly one folder, that folder is the model.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from speculative_operator.domain.models import Pin
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource
from speculative_operator.weights.layers import Layer, PackedSource, home_of
from speculative_operator.weights.packing import COMPRESSIONS, MISREAD, open_tar, tar_files
from speculative_operator.weights.patience import Patience, within
from speculative_operator.weights.registry import Login, Reference, ask, explain_refusal
from speculative_operator.weights.source import Entry, WeightsError, select_needed
from speculative_operator.weights.transport import Transport

_MANIFEST = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
_INDEX = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
_NAMES = ("org.opencontainers.image.title", "org.cncf.model.filepath", "org.cnai.model.filepath")
_FOLDER = "io.deis.oras.content.unpack"
_PACKERS = ("application/vnd.cncf.model.", "application/vnd.cnai.model.", "application/vnd.kitops.modelkit.")
_MOST_MANIFEST = 4 << 20
"""Most bytes of a manifest; the distribution specification asks registries to accept as much."""
_ENDINGS = {"gzip": "gzip", "+gz": "gzip", "zstd": "zstd"}
"""Endings of the media types of compressed tars -> the compression."""
_READ_AHEAD = 16 << 10


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the bytes of a file lie."""

    digest: str
    offset: int = 0


@dataclass
class RegistrySource:
    """One manifest of a registry, whose files are read by range."""

    pin: Pin
    reference: Reference
    transport: Transport = field(repr=False)
    login: Login = field(repr=False)
    entries: tuple[Entry, ...] = field(default=(), repr=False)
    places: dict[str, _Place] = field(default_factory=dict, repr=False)

    def files(self) -> tuple[Entry, ...]:
        return self.entries

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        place = self.places[entry.path]
        yield from self.blob(place.digest, place.offset + start, place.offset + end, entry.path)

    def blob(self, digest: str, start: int, end: int, file: str) -> Iterator[bytes]:
        """Yield bytes of a blob; a token that has expired is renewed once."""
        url, at = f"{self.reference.base}/blobs/{digest}", start
        try:
            for block in self.transport.blocks(url, self.login.headers(), (at, end), file, _nothing):
                at += len(block)
                yield block
        except WeightsError as error:
            if error.status not in (401, 403):
                raise
        else:
            return
        # Whether the token was old or the blob is withheld tells a request for what may be read for certain.
        ask(
            self.transport, self.login, f"{self.reference.base}/manifests/{self.pin.resolved}", f"{_MANIFEST}, {_INDEX}"
        )
        yield from self.transport.blocks(url, self.login.headers(), (at, end), file, _nothing)


def _nothing(_: str) -> None:
    """Ignore where a registry redirects: a further redirect costs less than a token that has expired."""


def open_registry(source: ModelSource, patience: Patience | None = None) -> RegistrySource | PackedSource:
    """A model at a tag or digest of `oci://registry/repository`. Raises WeightsError."""
    patience = patience or Patience.from_environment()
    reference = Reference.of(source.location, source.revision)
    login = Login(reference, patience)
    transport = Transport(
        f"oci://{reference.location}", lambda answer, file: explain_refusal(login, answer, file), patience
    )
    return within(patience.listing, transport.uri, lambda: _open(source, reference, transport, login))


def _open(
    source: ModelSource, reference: Reference, transport: Transport, login: Login
) -> RegistrySource | PackedSource:
    digest, manifest = _manifest(reference, reference.version, transport, login)
    pin = Pin(source.scheme, reference.location, reference.version, digest)
    if "manifests" in manifest:
        chosen = _of_this_platform(manifest["manifests"], reference)
        _, manifest = _manifest(reference, chosen, transport, login)
    opened = RegistrySource(pin, reference, transport, login)
    blobs = list(_blobs(reference, manifest))
    if any(blob.packing in COMPRESSIONS for blob in blobs):
        contents = _contents(reference, manifest, transport, login)
        layers = tuple(replace(blob, content=contents.get(blob.digest, "")) for blob in blobs)
        return PackedSource(pin, layers, opened.blob)
    files = _at_home(dict(_files(opened, blobs)))
    opened.places = {path: place for path, (_, place) in files.items()}
    opened.entries = select_needed(entry for entry, _ in files.values())
    if not opened.entries:
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND,
            f"oci://{reference.location}: no layer of {reference.version} is a model file",
            remedy="publish files as layers with the annotation org.opencontainers.image.title, as `oras push` does",
        )
    return opened


def _manifest(reference: Reference, version: str, transport: Transport, login: Login) -> tuple[str, Mapping[str, Any]]:
    answer = ask(transport, login, f"{reference.base}/manifests/{version}", f"{_MANIFEST}, {_INDEX}")
    digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
    if version.startswith("sha256:") and version != digest:
        raise WeightsError(
            Reason.CHECKSUM_MISMATCH, f"oci://{reference.location}: the manifest {version} has the digest {digest}"
        )
    try:
        if len(answer.content) > _MOST_MANIFEST:
            raise ValueError("too long")
        manifest = json.loads(answer.content)
        if not isinstance(manifest, dict) or not {"layers", "manifests"} & manifest.keys():
            raise ValueError("neither layers nor manifests")
    except ValueError as error:
        raise _odd(reference, f"the answer is not a manifest ({error})") from error
    return digest, manifest


def _of_this_platform(manifests: Any, reference: Reference) -> str:
    """Digest of the manifest for amd64, else of the first: weights are the same on all platforms. Raises
    WeightsError."""
    try:
        real = [one for one in manifests if (one.get("platform") or {}).get("os", "") != "unknown"]
        first = next((one for one in real if (one.get("platform") or {}).get("architecture") == "amd64"), real[0])
        return str(first["digest"])
    except (AttributeError, KeyError, TypeError, IndexError) as error:
        raise _odd(reference, "an index without manifests") from error


def _blobs(reference: Reference, manifest: Mapping[str, Any]) -> Iterator[Layer]:
    """Yield the layers that hold files of a model, in their order."""
    try:
        layers = [
            (str(one["digest"]), int(one["size"]), str(one.get("mediaType", "")), one) for one in manifest["layers"]
        ]
        notes = [dict(one.get("annotations") or {}) for *_, one in layers]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _odd(reference, f"layers without digest or size ({error})") from error
    for (digest, size, kind, _), note in zip(layers, notes, strict=True):
        name = next((str(note[key]) for key in _NAMES if note.get(key)), "")
        packed = "tar" in kind and (not name or note.get(_FOLDER) == "true" or kind.startswith(_PACKERS))
        if packed:
            packing = next((one for ending, one in _ENDINGS.items() if kind.endswith(ending)), "tar")
            yield Layer(digest, size, packing)
        elif name:
            yield Layer(digest, size, "file", name)


def _contents(
    reference: Reference, manifest: Mapping[str, Any], transport: Transport, login: Login
) -> Mapping[str, str]:
    """Digest of a layer -> digest of its unpacked content, where the image's configuration tells it."""
    config = manifest.get("config")
    if not isinstance(config, Mapping) or "image" not in str(config.get("mediaType", "")):
        return {}
    digest = str(config.get("digest", ""))
    answer = ask(transport, login, f"{reference.base}/blobs/{digest}", "*/*")
    if digest != f"sha256:{hashlib.sha256(answer.content).hexdigest()}":
        raise WeightsError(
            Reason.CHECKSUM_MISMATCH, f"oci://{reference.location}: the configuration does not have the digest {digest}"
        )
    try:
        digests = [str(one) for one in json.loads(answer.content)["rootfs"]["diff_ids"]]
    except (ValueError, KeyError, TypeError):
        return {}
    layers = [str(one["digest"]) for one in manifest["layers"]]
    return dict(zip(layers, digests, strict=True)) if len(layers) == len(digests) else {}


def _files(source: RegistrySource, blobs: Iterable[Layer]) -> Iterator[tuple[str, tuple[Entry, _Place]]]:
    for blob in blobs:
        if blob.packing == "tar":
            yield from _packed_files(source, blob.digest, blob.size)
        else:
            entry = Entry(blob.name, blob.size, blob.digest.removeprefix("sha256:"), blob.digest)
            yield blob.name, (entry, _Place(blob.digest))


def _packed_files(source: RegistrySource, digest: str, size: int) -> Iterator[tuple[str, tuple[Entry, _Place]]]:
    try:
        with open_tar(io.BufferedReader(_Blob(source, digest, size), _READ_AHEAD), "r:") as tar:
            for path, member in tar_files(tar):
                if member.issparse():
                    raise ValueError(f"{path} is a sparse file, which cannot be read in one piece")
                entry = Entry(path, member.size, "", f"{digest}@{member.offset_data}")
                yield path, (entry, _Place(digest, member.offset_data))
    except MISREAD as error:
        raise _odd(source.reference, f"layer {digest[:19]} is not a readable tar ({error})") from error


def _at_home(files: dict[str, tuple[Entry, _Place]]) -> dict[str, tuple[Entry, _Place]]:
    """The files with paths from the folder that holds the only `config.json`, as in images that keep a model below
    `/models`."""
    root = home_of(files)
    inside = {path.removeprefix(root): one for path, one in files.items() if path.startswith(root)}
    return {path: (Entry(path, entry.size, entry.sha256, entry.etag), place) for path, (entry, place) in inside.items()}


def _odd(reference: Reference, what: str) -> WeightsError:
    return WeightsError(Reason.UNSUPPORTED_SOURCE, f"oci://{reference.location}: {what}")


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
