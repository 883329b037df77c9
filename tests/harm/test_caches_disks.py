"""Harm: a download fills the disk of a node, and the kubelet evicts pods that serve."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.weights.shelf import Shelf, content, ignored

from speculative_operator.domain.models import Pin
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import NODE_RESERVE_PERCENT, Scheme
from speculative_operator.weights import disk
from speculative_operator.weights.fetch import fetch
from speculative_operator.weights.layers import Layer, PackedSource
from speculative_operator.weights.patience import Limits
from speculative_operator.weights.source import WeightsError
from speculative_operator.weights.unpack import most_unpacked

GIB = 1 << 30
KUBELET_EVICTS_BELOW = 0.15
"""imagefs.available, the larger one of the two defaults."""
PIN = Pin(Scheme.OCI, "registry.example.com/model", "v1", "sha256:0")


def of_size(monkeypatch: pytest.MonkeyPatch, total: int, free: list[int]) -> None:
    """The volume has `total` bytes, of which `free[-1]` are free."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_blocks=total, f_frsize=1, f_bavail=free[-1]))


def test_a_node_never_comes_to_where_its_kubelet_evicts(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = NODE_RESERVE_PERCENT / 100
    assert reserve > KUBELET_EVICTS_BELOW
    of_size(monkeypatch, 100 * GIB, [40 * GIB])
    disk.require_room(Path("/cache"), 19 * GIB, reserve)
    with pytest.raises(WeightsError) as refused:
        disk.require_room(Path("/cache"), 21 * GIB, reserve)
    assert refused.value.reason is Reason.CACHE_FULL
    assert "20%" in refused.value.message


def test_a_download_never_goes_on_while_others_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, looked = [40 * GIB], threading.Event()
    of_size(monkeypatch, 100 * GIB, free)
    write_at, require_reserve = disk.write_at, disk.require_reserve

    def late(fd: int, data: bytes | memoryview, at: int) -> None:
        free.append(10 * GIB)
        assert looked.wait(60)
        write_at(fd, data, at)

    def required(path: Path, reserve: float) -> None:
        try:
            require_reserve(path, reserve)
        except WeightsError:
            looked.set()
            raise

    monkeypatch.setattr(disk, "write_at", late)
    monkeypatch.setattr(disk, "require_reserve", required)
    shelf = Shelf({"config.json": b"{}", "model.safetensors": content(4 << 20)})
    with pytest.raises(WeightsError) as stopped:
        fetch(shelf, tmp_path, user="ns/x", report=ignored, limits=Limits(reserve=0.2))
    assert stopped.value.reason is Reason.CACHE_FULL
    assert "stay free" in stopped.value.message


def bomb(size: int) -> bytes:
    """A layer in gzip whose one file is `size` zeros."""
    packing, out = zlib.compressobj(9, zlib.DEFLATED, 31), io.BytesIO()
    member = tarfile.TarInfo("model.safetensors")
    member.size = size
    out.write(packing.compress(member.tobuf()))
    for _ in range(size >> 20):
        out.write(packing.compress(bytes(1 << 20)))
    out.write(packing.compress(bytes(1024)) + packing.flush())
    return out.getvalue()


def packed(blob: bytes) -> PackedSource:
    layer = Layer(f"sha256:{hashlib.sha256(blob).hexdigest()}", len(blob), "gzip")

    def ranged(_: str, start: int, end: int, __: str) -> Iterator[bytes]:
        yield blob[start:end]

    return PackedSource(PIN, (layer,), ranged)


def test_a_small_layer_never_writes_a_thousand_times_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, written = packed(bomb(512 << 20)), [0]

    def write_at(fd: int, data: bytes | memoryview, at: int) -> None:
        written[0] += len(data)

    monkeypatch.setattr(disk, "write_at", write_at)
    with pytest.raises(WeightsError) as refused:
        fetch(source, tmp_path, user="ns/x", report=ignored, stop=threading.Event())
    assert refused.value.reason is Reason.UNSUPPORTED_SOURCE
    assert refused.value.final, "no other try writes as much again"
    assert written[0] <= most_unpacked(source.layers[0])
    assert str(most_unpacked(source.layers[0])) in refused.value.message


def test_a_file_of_a_layer_is_never_begun_where_it_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, written = packed(bomb(200 << 20)), [0]

    def write_at(fd: int, data: bytes | memoryview, at: int) -> None:
        written[0] += len(data)

    monkeypatch.setattr(disk, "write_at", write_at)
    of_size(monkeypatch, GIB, [150 << 20])
    with pytest.raises(WeightsError) as refused:
        fetch(source, tmp_path, user="ns/x", report=ignored)
    assert (refused.value.reason, written[0]) == (Reason.CACHE_FULL, 0)
