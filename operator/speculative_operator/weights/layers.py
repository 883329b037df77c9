"""Images with compressed layers: streams instead of ranges. Made by `oci`, read by `inspect`, unpacked by `unpack`.

Nobody can start in the middle of a compressed layer. So each layer is one stream, decompressed and taken apart as it
comes, and held at its end against its digest and, where the image's configuration tells it, against the digest of what
was packed. An inspection keeps small files and the headers of tensors, compressed, and lets the tensors pass.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from time import monotonic

from speculative_operator.domain.models import Pin
from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import reading
from speculative_operator.weights.packing import (
    COMPRESSIONS,
    MISREAD,
    CompressionError,
    Feed,
    decompress,
    open_tar,
    tar_files,
)
from speculative_operator.weights.source import Entry, WeightsError, check_path, select_needed

MOST_INSPECTED = 2 << 30
"""Most bytes of all layers together, compressed, of an image that is inspected: they take a minute or two."""
_LONGEST_LOOK = 120.0
"""Most seconds for inspecting an image: the Job that reads both sides of a pair has five minutes."""
_MOST_INFLATED = 16 << 30
_MOST_KEPT = 64 << 20
"""Most bytes of memory that an inspection keeps; texts keep a fifth of their size, compressed."""
_LARGEST_TEXT = 64 << 20
_LARGEST_HEADER = 100_000_008
_FIRST = 64 << 10
"""Bytes that an inspection asks for first of a file of tensors."""
_TEXTS = {".json", ".jinja", ".model", ".tiktoken", ".txt", ".md"}
_STEP = 1 << 20
_PACKING = "push the files as layers of their own (`oras push`), or build the image with uncompressed layers"

Read = Callable[[int], bytes]
Visit = Callable[[str, int, Read], None]
"""Called with path, size, and a function that reads the file forward; bytes that are not read are passed over."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of an image or artifact: a blob of its registry."""

    digest: str
    size: int
    packing: str
    """`gzip` or `zstd` for a compressed tar, `tar`, or `file` where the blob is the file `name` itself."""
    name: str = ""
    content: str = ""
    """Digest of the unpacked content; empty where nobody tells it."""

    @property
    def entry(self) -> Entry:
        """The blob as `PackedSource.read` takes it."""
        return Entry("", self.size, etag=self.digest)


@dataclass(frozen=True, slots=True)
class _PackedStart:
    """The beginning of a file, compressed."""

    count: int
    packed: bytes

    @classmethod
    def of(cls, start: bytes, count: int, read: Read) -> _PackedStart:
        packing, at = zlib.compressobj(1), len(start)
        packed = [packing.compress(start)]
        while at < count and (block := read(min(_STEP, count - at))):
            packed.append(packing.compress(block))
            at += len(block)
        return cls(at, b"".join([*packed, packing.flush()]))

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes that were kept, in blocks."""
        unpacking, packed = zlib.decompressobj(), self.packed
        while block := unpacking.decompress(packed, _STEP):
            packed = unpacking.unconsumed_tail
            yield block


_NOTHING = _PackedStart(0, zlib.compress(b""))


@dataclass
class PackedSource:
    """One image of which at least one layer is compressed. Its files are known only once all layers have passed."""

    pin: Pin
    layers: tuple[Layer, ...] = field(repr=False)
    blob: Callable[[str, int, int, str], Iterator[bytes]] = field(repr=False)
    """Yields bytes of a blob; takes digest, first byte, the byte after the last, and a name for errors."""
    most: int = MOST_INSPECTED
    seconds: float = _LONGEST_LOOK
    _entries: tuple[Entry, ...] = field(default=(), repr=False)
    _packed_starts: dict[str, _PackedStart] = field(default_factory=dict, repr=False)
    _until: float = field(default=0.0, repr=False)

    @property
    def total(self) -> int:
        """Bytes of all layers, compressed as they come."""
        return sum(layer.size for layer in {layer.digest: layer for layer in self.layers}.values())

    def files(self) -> tuple[Entry, ...]:
        """The files of the image, for inspections: the first call reads the image. Fetches use `unpack` instead."""
        if not self._entries:
            self._look()
        return self._entries

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        """Yield bytes of a layer, or of the beginning of a file that the inspection kept. Raises WeightsError beyond
        that."""
        if not entry.path:
            yield from self.blob(entry.etag, start, end, "")
            return
        beginning = self._packed_starts.get(entry.path, _NOTHING)
        if end > beginning.count:
            raise self._unread(f"an inspection would need more of the file than it may keep ({end} bytes)", entry.path)
        at = 0
        for block in beginning.blocks():
            yield from filter(None, [block[max(start - at, 0) : max(end - at, 0)]])
            at += len(block)

    def _look(self) -> None:
        if self.total > self.most:
            raise self._unread(
                f"its layers are compressed: an inspection would read {self.total} bytes, but may read only {self.most}"
            )
        self._until = monotonic() + self.seconds
        listing: dict[str, tuple[int, _PackedStart]] = {}
        seen = {layer.digest: self._look_into(layer) for layer in sorted(set(self.layers), key=lambda one: one.size)}
        for layer in self.layers:
            listing |= seen[layer.digest]
        home, self._entries = choose_model(self.pin, {path: size for path, (size, _) in listing.items()})
        self._packed_starts = {entry.path: listing[home + entry.path][1] for entry in self._entries}

    def _look_into(self, layer: Layer) -> dict[str, tuple[int, _PackedStart]]:
        listing: dict[str, tuple[int, _PackedStart]] = {}
        room = _MOST_KEPT

        def visit(path: str, size: int, read: Read) -> None:
            nonlocal room
            beginning = _keep(path, size, read)
            listing[path], room = (size, beginning), room - len(beginning.packed)
            if room < 0:
                raise self._unread(f"an inspection would have to keep more than {_MOST_KEPT} bytes", path)

        walk(self.pin, layer, self._in_time(layer), visit, _MOST_INFLATED, Reason.PAIR_UNREAD)
        return listing

    def _in_time(self, layer: Layer) -> Iterator[bytes]:
        for block in reading.steadily(self, layer.entry, 0, layer.size):
            if monotonic() > self._until:
                raise self._unread(f"its layers are compressed and did not arrive within {self.seconds:g} seconds")
            yield block

    def _unread(self, what: str, file: str = "") -> WeightsError:
        return WeightsError(Reason.PAIR_UNREAD, f"{self.pin.source.uri}: {what}", file=file, remedy=_PACKING)


def _keep(path: str, size: int, read: Read) -> _PackedStart:
    """The beginning of a file that an inspection may ask for; nothing of files that it never reads."""
    suffix = PurePosixPath(path).suffix
    if suffix == ".safetensors":
        start = read(8)
        header = 8 + int.from_bytes(start, "little")
        return _PackedStart.of(start, min(max(header, _FIRST), size, _LARGEST_HEADER), read)
    return _PackedStart.of(b"", size, read) if suffix in _TEXTS and size <= _LARGEST_TEXT else _NOTHING


def choose_model(pin: Pin, sizes: Mapping[str, int]) -> tuple[str, tuple[Entry, ...]]:
    """The folder of the model within an image (empty, or with a slash at its end), and the files in it that a server
    needs."""
    home = home_of(sizes)
    entries = select_needed(
        Entry(path.removeprefix(home), size) for path, size in sizes.items() if path.startswith(home)
    )
    if not entries:
        raise WeightsError(Reason.SOURCE_NOT_FOUND, f"{pin.source.uri}: no layer has a model file")
    return home, entries


def home_of(paths: Iterable[str]) -> str:
    """The folder that holds the only `config.json`, with a slash at its end; empty where none or several do."""
    homes = [PurePosixPath(path).parent for path in paths if PurePosixPath(path).name == "config.json"]
    return f"{homes[0]}/" if len(homes) == 1 and homes[0] != PurePosixPath(".") else ""


def walk(
    pin: Pin,
    layer: Layer,
    blocks: Iterator[bytes],
    visit: Visit,
    most: int,
    refusal: Reason = Reason.UNSUPPORTED_SOURCE,
) -> None:
    """Have `visit` see every regular file of `layer`, whose bytes are `blocks`. `most`: bytes it may have unpacked;
    more is refused for the reason `refusal`.

    Raises WeightsError; ChecksumMismatch where what came is not the layer, however that showed.
    """
    stream = _Stream(pin, layer, blocks, most, refusal)
    try:
        if layer.packing == "file":
            check_path(layer.name)
            visit(layer.name, layer.size, stream.read)
        else:
            with open_tar(stream, "r|") as tar:
                for path, member in tar_files(tar):
                    file = tar.extractfile(member)
                    assert file is not None, "regular files have contents"
                    visit(path, member.size, file.read)
        stream.finish()
    except MISREAD as error:
        stream.check()
        remedy = error.remedy if isinstance(error, CompressionError) else ""
        raise stream.odd(f"the layer cannot be unpacked ({str(error) or type(error).__name__})", remedy) from error


class _Stream:
    """The unpacked bytes of a layer, as tarfile wants them; sums up all that passes."""

    def __init__(self, pin: Pin, layer: Layer, blocks: Iterator[bytes], most: int, refusal: Reason) -> None:
        self._pin, self._layer, self._most, self._refusal = pin, layer, most, refusal
        self._came, self._content = hashlib.sha256(), hashlib.sha256()
        self._packed = _sum_up(blocks, self._came.update)
        self._unpacked = self._unpack()
        self.read = Feed(self._unpacked).read

    def finish(self) -> None:
        """Read past the last file to the end, and check the whole against its digests."""
        for _ in self._unpacked:
            pass
        self.check()
        content = f"sha256:{self._content.hexdigest()}"
        if self._layer.content and content != self._layer.content:
            raise self._mismatch(f"its unpacked content has the digest {content} instead of {self._layer.content}")

    def check(self) -> None:
        """Read the rest of the blob, and check the layer against its digest."""
        for _ in self._packed:
            pass
        digest = f"sha256:{self._came.hexdigest()}"
        if digest != self._layer.digest:
            raise self._mismatch(f"its digest is {digest} instead of {self._layer.digest}")

    def _unpack(self) -> Iterator[bytes]:
        compressed = self._layer.packing in COMPRESSIONS
        blocks = decompress(self._layer.packing, self._packed) if compressed else self._packed
        passed = 0
        for block in _sum_up(blocks, self._content.update):
            passed += len(block)
            if passed > self._most:
                raise WeightsError(
                    self._refusal,
                    f"{self._pin.source.uri}: layer {self._layer.digest[:19]}, {self._layer.size} bytes, unpacks to "
                    f"more than {self._most}",
                    remedy=_PACKING,
                )
            yield block

    def _mismatch(self, what: str) -> WeightsError:
        return WeightsError(
            Reason.CHECKSUM_MISMATCH,
            f"{self._pin.source.uri}: layer {self._layer.digest[:19]} was not delivered as it was pushed: {what}",
            remedy="the registry, a proxy or a mirror changed it: compare the layer at its source",
        )

    def odd(self, what: str, remedy: str) -> WeightsError:
        """The error of a layer that has its right digest and yet is no tar of a model."""
        where = f"{self._pin.source.uri}: layer {self._layer.digest[:19]}"
        return WeightsError(Reason.UNSUPPORTED_SOURCE, f"{where} {what}", remedy=remedy)


def _sum_up(blocks: Iterator[bytes], add: Callable[[bytes], object]) -> Iterator[bytes]:
    for block in blocks:
        add(block)
        yield block
