"""gzip and zstd as they come: any cut between blocks, any number of parts, and never more memory than is allowed."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from backports import zstd as library
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.weights.loopback import ROOT

from speculative_operator.weights.packing import COMPRESSIONS, MOST_WINDOW, CompressionError, decompress

MAGIC = (0xFD2FB528).to_bytes(4, "little")
LONGEST = 128 << 10
"""What a block of zstd becomes at most."""


def zstd(content: bytes) -> bytes:
    return library.compress(content, options={library.CompressionParameter.checksum_flag: 1})


def streamed(content: bytes) -> bytes:
    packing = library.ZstdCompressor()
    return packing.compress(content) + packing.flush()


def skipped(content: bytes, number: int = 0) -> bytes:
    return (0x184D2A50 + number).to_bytes(4, "little") + len(content).to_bytes(4, "little") + content


def repeated(blocks: int, window: int = 0) -> bytes:
    """A frame of blocks of 128 KiB of zeros, four bytes each. `window`: its descriptor."""
    one = (LONGEST << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (LONGEST << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return MAGIC + bytes([0, window or 7 << 3]) + one * (blocks - 1) + last


def whole(compression: str, *blocks: bytes) -> bytes:
    return b"".join(decompress(compression, iter(blocks)))


def refused(compression: str, *blocks: bytes) -> CompressionError:
    with pytest.raises(CompressionError) as caught:
        whole(compression, *blocks)
    return caught.value


PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd}


@pytest.mark.parametrize("compression", list(COMPRESSIONS))
@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=4), sizes=st.lists(st.integers(0, 40), min_size=1))
def test_any_cut_between_blocks(compression: str, parts: list[bytes], sizes: list[int]) -> None:
    packed = b"".join(map(PACK[compression], parts))
    blocks: list[bytes] = []
    while packed:
        size = sizes[len(blocks) % len(sizes)] if any(sizes) else 1
        blocks.append(packed[:size])
        packed = packed[size:]
    assert whole(compression, *blocks) == b"".join(parts)


@pytest.mark.parametrize("compression", list(COMPRESSIONS))
def test_large_blocks_and_those_that_do_not_compress(compression: str) -> None:
    content = os.urandom(700_000) + bytes(5 << 20) + os.urandom(700_000) + b"text " * 300_000
    packed = PACK[compression](content)
    assert whole(compression, packed) == content
    assert whole(compression, *(packed[at : at + 1000] for at in range(0, len(packed), 1000))) == content


def test_frames_to_skip_stand_anywhere() -> None:
    table = os.urandom(3 << 20)
    packed = (
        skipped(b"") + zstd(b"one") + skipped(table, 15) + streamed(b"two") + zstd(b"") + skipped(zstd(b"three"), 3)
    )
    assert whole("zstd", packed) == b"onetwo"
    assert whole("zstd", *(packed[at : at + 7] for at in range(0, len(packed), 7))) == b"onetwo"


@pytest.mark.parametrize("compression", list(COMPRESSIONS))
def test_what_is_cut_off_anywhere(compression: str) -> None:
    packed = PACK[compression](b"a" * 300_000 + os.urandom(200))
    for at in [*range(4, 24), *range(len(packed) - 24, len(packed))]:
        assert "early" in str(refused(compression, packed[:at]))
        assert "early" in str(refused(compression, PACK[compression](b"before"), packed[:at]))


def test_a_frame_to_skip_that_is_cut_off() -> None:
    table = skipped(b"table")
    for at in range(1, len(table)):
        assert ("early" in str(refused("zstd", zstd(b"before"), table[:at]))) == (at >= len(MAGIC))


@pytest.mark.parametrize("compression", list(COMPRESSIONS))
def test_another_byte_is_found_by_the_checksum(compression: str) -> None:
    packed = bytearray(PACK[compression](os.urandom(1000)))
    packed[500] ^= 1
    refused(compression, bytes(packed))


@pytest.mark.parametrize(
    "packed",
    [
        b"no zstd at all",
        gzip.compress(b"gzip"),
        zstd(b"one") + bytes(512),
        MAGIC + bytes([0x08, 7 << 3]) + b"\1\0\0",
        MAGIC + bytes([0, 7 << 3]) + b"\7\0\0",
        MAGIC + bytes([0, 7 << 3]) + ((LONGEST + 1) << 3 | 3).to_bytes(3, "little") + b"\0",
        MAGIC + bytes([1, 7 << 3, 77]) + b"\1\0\0",
    ],
    ids=["text", "gzip", "padded", "reserved-bit", "reserved-kind", "long-block", "dictionary"],
)
def test_what_is_no_zstd(packed: bytes) -> None:
    assert not refused("zstd", packed).remedy


@pytest.mark.parametrize("compression", list(COMPRESSIONS))
def test_little_becomes_much_in_small_steps(compression: str) -> None:
    """8 KiB of zstd hold 256 MiB."""
    packed = repeated(2048) if compression == "zstd" else gzip.compress(bytes(256 << 20), 1)
    sizes = [len(block) for block in decompress(compression, iter([packed]))]
    assert sum(sizes) == 256 << 20
    assert max(sizes) <= 1 << 20


def test_the_largest_window_is_taken() -> None:
    assert whole("zstd", repeated(1, window=17 << 3)) == bytes(LONGEST)
    assert MOST_WINDOW == 1 << (10 + 17)


@pytest.mark.parametrize(
    ("header", "window"),
    [
        (bytes([0, 17 << 3 | 1]), 9 << 24),
        (bytes([0, 18 << 3]), 1 << 28),
        (bytes([0, 31 << 3 | 7]), 15 << 38),
        (bytes([0xE0]) + ((128 << 20) + 1).to_bytes(8, "little"), (128 << 20) + 1),
        (bytes([0xE0]) + (1 << 50).to_bytes(8, "little"), 1 << 50),
        (bytes([0x01, 31 << 3, 5]), 1 << 41),
    ],
    ids=["129-MiB", "256-MiB", "largest", "one-segment", "one-large-segment", "with-dictionary"],
)
def test_a_window_that_takes_too_much_memory(header: bytes, window: int) -> None:
    error = refused("zstd", MAGIC + header + b"\1\0\0")
    assert str(window) in str(error)
    assert "--long" in error.remedy


def test_memory_of_the_largest_window_is_the_window() -> None:
    """1 GiB of zeros behind the largest window that is allowed, in a process of its own."""
    code = (
        "import resource; from tests.unit.weights.test_compression import *\n"
        "for _ in decompress('zstd', iter([repeated(8)])): pass\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for _ in decompress('zstd', iter([repeated(2048, window=17 << 3)] * 4)): pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    environment = {**os.environ, "PYTHONPATH": "operator:dev:."}
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True)
    assert int(said.stdout) << 10 < MOST_WINDOW + (16 << 20)


def test_a_block_of_many_frames_is_read_once() -> None:
    """A hundred thousand empty frames in one block: their rest is not copied for each."""
    frames = skipped(b"") * 100_000 + zstd(b"end")
    assert whole("zstd", frames) == b"end"


def test_blocks_are_asked_for_as_they_are_needed() -> None:
    asked = 0

    def blocks() -> Iterator[bytes]:
        nonlocal asked
        for _ in range(100):
            asked += 1
            yield zstd(os.urandom(1000))

    found = decompress("zstd", blocks())
    assert len(next(found)) == 1000
    assert asked == 1
