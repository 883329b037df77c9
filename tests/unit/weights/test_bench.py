"""An inspection of 812 GB stays small: what it reads, and what memory it takes."""

from __future__ import annotations

from pathlib import Path

from modelservers import bench, large
from modelservers.hub import HubServer


def test_812_gigabytes_are_inspected_in_little_memory(tmp_path: Path) -> None:
    large.lay_out(tmp_path / "bench" / "405b", large.LLAMA_405B, tokens=60_000)
    server = HubServer(tmp_path)
    with server.running():
        found = bench.measure(server, "bench/405b")
    assert found["parameters"] == large.LLAMA_405B.parameters == 405_853_388_800
    assert (found["gigabytes"], found["files"], found["layers"]) == (811.7, 191, 126)
    assert found["peakMiB"] < 100
    assert found["megabytesRead"] < 20
    assert found["requests"] == 1 + 191 + 4
