"""Layers in gzip and zstd, decompressed as they come. Called by `layers`.

Whoever pushed a layer is not trusted with memory. At any time there are one block of what came, what one step makes of
it, and the window, in which the formats keep what later bytes may repeat: 32 KiB in gzip, in zstd whatever the one who
compressed asks for, up to `MOST_WINDOW` here.

zstd is decompressed block by block (RFC 8878, 3.1.1): a block never becomes more than 128 KiB, while a few KiB of them
given to the library at once may become a gigabyte. It also tells a layer that was cut off from one that ends.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping

import zstandard

MOST_WINDOW = 128 << 20
"""Bytes: what the tool `zstd` takes unless it is told to take more. A fetch holds one for each of four layers."""
_STEP = 1 << 20
_GZIP = 31
"""What zlib calls a gzip wrapper around the largest window."""
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_ONE_SEGMENT, _CHECKSUM = 0x20, 0x04
_REPEATED = 1
"""The kind of block that is one byte and how often it comes."""


class CompressionError(ValueError):
    """What came is no whole stream of its format, or one that is not taken."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


class Feed:
    """Blocks, read by count."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._ready = blocks, bytearray()

    def read(self, count: int) -> bytes:
        """As many bytes, fewer at the end only."""
        while len(self._ready) < count and (block := next(self._blocks, None)) is not None:
            self._ready += block
        with memoryview(self._ready) as ready:
            found = bytes(ready[:count])
        del self._ready[:count]
        return found

    def whole(self, count: int) -> bytes:
        """As many bytes. Raises CompressionError where fewer come."""
        found = self.read(count)
        if len(found) < count:
            raise CompressionError("it ends too early")
        return found


def decompress(compression: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """What `blocks` hold, in blocks of 1 MiB at most. Raises CompressionError."""
    try:
        yield from COMPRESSIONS[compression](blocks)
    except (zlib.error, zstandard.ZstdError) as error:
        raise CompressionError(str(error)) from error


def _gzip(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """One member after the other: several make one file. Zeros between and behind them are padding."""
    inflater = zlib.decompressobj(_GZIP)
    for block in blocks:
        packed = block
        while packed:
            if inflater.eof:
                if not (packed := packed.lstrip(b"\0")):
                    break
                inflater = zlib.decompressobj(_GZIP)
            yield inflater.decompress(packed, _STEP)
            packed = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
    while not inflater.eof:
        if not (rest := inflater.decompress(b"", _STEP)):
            raise CompressionError("it ends too early")
        yield rest


def _zstd(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """One frame after the other: several make one file. Those to skip hold tables of contents (`zstd:chunked`)."""
    feed, decompressor = Feed(blocks), zstandard.ZstdDecompressor()
    while magic := feed.read(4):
        number = int.from_bytes(magic, "little")
        if number in _SKIPPABLE:
            left = int.from_bytes(feed.whole(4), "little")
            while left:
                left -= len(feed.whole(min(left, _STEP)))
        elif number == zstandard.MAGIC_NUMBER:
            yield from _frame(feed, magic, decompressor)
        else:
            raise CompressionError("it is not zstd")


def _frame(feed: Feed, magic: bytes, decompressor: zstandard.ZstdDecompressor) -> Iterator[bytes]:
    start = magic + feed.whole(1)
    header = start + feed.whole(zstandard.frame_header_size(start) - len(start))
    window = _window(header)
    if window > MOST_WINDOW:
        raise CompressionError(
            f"its decompression needs a window of {window} bytes of memory, but only {MOST_WINDOW} are allowed",
            "push the layer uncompressed, or in zstd without `--long`: weights hardly compress",
        )
    frame = decompressor.decompressobj()
    frame.decompress(header)
    last = False
    while not last:
        mark = feed.whole(3)
        about = int.from_bytes(mark, "little")
        last, kind, size = bool(about & 1), about >> 1 & 3, about >> 3
        yield frame.decompress(mark + feed.whole(1 if kind == _REPEATED else size))
    if header[4] & _CHECKSUM:
        frame.decompress(feed.whole(4))
    if not frame.eof:
        raise CompressionError("a frame does not end at its announced length")


def _window(header: bytes) -> int:
    """Bytes; the library itself refuses to tell of large ones."""
    if header[4] & _ONE_SEGMENT:
        return zstandard.frame_content_size(header)
    return (8 + (header[5] & 7)) << (7 + (header[5] >> 3))


COMPRESSIONS: Mapping[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {"gzip": _gzip, "zstd": _zstd}
