"""An inspection of 812 GB stays small: what it reads, and what memory it takes in a process of its own, as in a Job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from modelservers import large
from modelservers.hub import HubServer

INSPECT = """
import json, sys
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.sources import open_source
weights = inspect(open_source(ModelSource(Scheme.HF, sys.argv[1]))).weights
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([sum(weights.parameters.values()), weights.layers, int(peak.split()[1]) / 1024]))
"""


def test_812_gigabytes_are_inspected_in_little_memory(tmp_path: Path) -> None:
    model = tmp_path / "bench" / "405b"
    large.lay_out(model, large.LLAMA_405B, tokens=60_000)
    files = list(model.glob("*.safetensors"))
    assert (sum(path.stat().st_size for path in files) // 10**8, len(files)) == (8117, 191)
    server = HubServer(tmp_path)
    server.repositories.commit("bench/405b", "main")  # checksums are the server's work, not the inspector's
    with server.running():
        environment = {**os.environ, "HF_ENDPOINT": server.url, "NO_PROXY": "*"}
        command = [sys.executable, "-c", INSPECT, "bench/405b"]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        requests, sent = len(server.ledger.seen()), server.ledger.bytes
    parameters, layers, peak_mib = json.loads(done.stdout)
    assert (parameters, layers) == (large.LLAMA_405B.parameters, 126) == (405_853_388_800, 126)
    assert peak_mib < 100
    assert (requests, sent < 20e6) == (1 + 191 + 4, True), "the listing, a header each, and small files"
