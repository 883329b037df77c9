"""An inspection of 812 GB stays small: what it reads, and what memory it takes."""

from __future__ import annotations

from pathlib import Path

from modelservers import bench, large
from modelservers.hub import HubServer


def test_812_gigabytes_are_inspected_in_little_memory(tmp_path: Path) -> None:
    large.lay_out(tmp_path / "bench" / "405b", large.LLAMA_405B)
    server = HubServer(tmp_path)
    with server.running():
        found = bench.measure(server, "bench/405b")
    # As Meta counts it: 405B; the same count gives 141.1 GB for Llama 3.1 70B, whose published files are 141.1 GB.
    assert found["parameters"] == 405_853_388_800
    assert large.LLAMA_70B.parameters * 2 == 141_107_412_992
    assert (found["gigabytes"], found["files"], found["layers"]) == (811.7, 191, 126)
    assert found["peakMiB"] < 100
    assert found["megabytesRead"] < 30
    assert found["requests"] == 1 + 191 + 5
