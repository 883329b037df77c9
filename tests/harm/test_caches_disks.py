"""Harm: a download fills the disk of a node, and the kubelet evicts pods that serve."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.weights.shelf import Shelf, content, meter

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import NODE_RESERVE_PERCENT
from speculative_operator.weights import disk
from speculative_operator.weights.fetch import fetch
from speculative_operator.weights.patience import Limits
from speculative_operator.weights.source import WeightsError

GIB = 1 << 30
KUBELET_EVICTS_BELOW = 0.15
"""imagefs.available, the larger one of the two defaults."""


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
        fetch(shelf, tmp_path, meter(shelf), user="ns/x", limits=Limits(reserve=0.2))
    assert stopped.value.reason is Reason.CACHE_FULL
    assert "stay free" in stopped.value.message
