"""What layers are packed in, read in bounded memory: gzip and zstd, decompressed as they come, and tars. Called by
`layers` on streams, and by `oci` on tars that it reads in place.

Whoever pushed a layer is not trusted with memory. At any time there are one block of what came, one step of 1 MiB of
what it becomes, and the window, in which the formats keep what later bytes may repeat: 32 KiB in gzip, in zstd whatever
the one who compressed asks for, up to `MOST_WINDOW` here.
"""

from __future__ import annotations

import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from speculative_operator.weights.source import check_path

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MOST_WINDOW = 128 << 20
"""Most bytes of a window: what the tool `zstd`, and its library, take unless told to take more. A fetch holds one for
each of four layers."""
MISREAD = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)
"""Exceptions that reading may raise beside WeightsError, where a file is no tar or is made to harm."""
_MOST_FILES = 20_000
_MOST_NOTES = 1 << 20
"""Most bytes of a long name or of extended attributes, which the reader takes into memory."""
_TAR_STEP = 64 << 10
_STEP = 1 << 20
_PIECE = 1 << 14
"""Bytes that zstd is given at once: what of them belongs to the next frame is given again, and frames may be tiny."""
_GZIP = 31
"""What zlib calls a gzip wrapper around the largest window."""
_LONGEST_HEADER = 18
_MAGIC = (0xFD2FB528).to_bytes(4, "little")
_ONE_SEGMENT = 0x20


class CompressionError(ValueError):
    """The bytes are no whole stream of their format, or of a format that is not taken."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


class Feed:
    """Blocks, read by count."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._ready = blocks, bytearray()

    def read(self, count: int) -> bytes:
        """The next `count` bytes, fewer at the end only, and past them."""
        found = self.peek(count, count)
        self.drop(count)
        return found

    def peek(self, least: int, most: int = _PIECE) -> bytes:
        """The next bytes, `most` at most, which stay to be read; fewer than `least` at the end only."""
        while len(self._ready) < least and (block := next(self._blocks, None)) is not None:
            self._ready += block
        with memoryview(self._ready) as ready:
            return bytes(ready[:most])

    def drop(self, count: int) -> None:
        """Pass over the next `count` bytes."""
        del self._ready[:count]


def decompress(compression: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the decompressed content of `blocks`, in blocks of 1 MiB at most. Raises CompressionError."""
    try:
        yield from COMPRESSIONS[compression](blocks)
    except (zlib.error, zstd.ZstdError) as error:
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
    feed = Feed(blocks)
    while start := feed.peek(_LONGEST_HEADER):
        _check_start(start)
        frame, given = zstd.ZstdDecompressor(), 0
        while not frame.eof:
            piece = b""
            if frame.needs_input:
                feed.drop(given)
                if not (piece := feed.peek(1)):
                    raise CompressionError("it ends too early")
                given = len(piece)
            yield frame.decompress(piece, _STEP)
        feed.drop(given - len(frame.unused_data))


def _check_start(start: bytes) -> None:
    """Check the start of a frame. Raises CompressionError where it needs too much memory, or is too short for a
    frame."""
    if len(start) < len(_MAGIC):
        raise CompressionError("it is not zstd")
    window = _window(start) if start.startswith(_MAGIC) else 0
    if window > MOST_WINDOW:
        raise CompressionError(
            f"its decompression needs a window of {window} bytes of memory, but only {MOST_WINDOW} are allowed",
            "push the layer uncompressed, or in zstd without `--long`: weights hardly compress",
        )


def _window(header: bytes) -> int:
    """Bytes of the window that a frame asks for; 0 where the header is cut off or invalid, which decompression finds.

    RFC 8878, 3.1.1.1: a frame of one segment needs its whole content.
    """
    if len(header) > 5 and not header[4] & _ONE_SEGMENT:
        return (8 + (header[5] & 7)) << (7 + (header[5] >> 3))
    try:
        return zstd.get_frame_info(header).decompressed_size or 0
    except zstd.ZstdError:
        return 0


COMPRESSIONS: Mapping[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {"gzip": _gzip, "zstd": _zstd}


def open_tar(file: Any, mode: Literal["r:", "r|"]) -> tarfile.TarFile:
    """Open a tar: `r:` seeks in `file`, `r|` reads it once, forward. Raises one of MISREAD."""
    tar: tarfile.TarFile = tarfile.open(fileobj=file, mode=mode, bufsize=_TAR_STEP, tarinfo=_Member)  # noqa: SIM115  closed by the caller
    return tar


def tar_files(tar: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
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
