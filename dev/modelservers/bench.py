"""Seconds and memory of inspecting models of 141 GB and of 812 GB, over a hub on loopback: one JSON object.

    python -m modelservers.bench [--delay 0.05]

The inspector runs in a process of its own, as it does in a Job; its peak memory is `VmHWM` of that process,
interpreter and libraries included (`ru_maxrss` would count the process that started it). `--delay` adds seconds before
each answer, as a distant hub would.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from modelservers import large
from modelservers.faults import Fault
from modelservers.hub import HubServer

_CHILD = """
import json, sys, time
started = time.monotonic()
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.sources import open_source
facts = inspect(open_source(ModelSource(Scheme.HF, sys.argv[1])))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({
    "seconds": round(time.monotonic() - started, 2),
    "cpuSeconds": round(time.process_time(), 2),
    "peakMiB": round(int(peak.split()[1]) / 1024, 1),
    "parameters": sum(facts.weights.parameters.values()),
    "layers": facts.weights.layers,
    "tokens": facts.tokenizer.tokens,
}))
"""
MODELS = {"bench/70b": large.LLAMA_70B, "bench/405b": large.LLAMA_405B}


def measure(server: HubServer, name: str) -> dict[str, Any]:
    """Inspect `name` in a fresh process. Raises CalledProcessError where that fails."""
    server.repositories.commit(name, "main")  # checksums are the server's work, not the inspector's
    server.ledger.clear()
    started = time.monotonic()
    environment = {**os.environ, "HF_ENDPOINT": server.url, "NO_PROXY": "*"}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, name], env=environment, check=True, capture_output=True, text=True
    )
    files = [path for path in (server.repositories.folder / name).iterdir() if path.suffix == ".safetensors"]
    return {
        "model": name,
        "gigabytes": round(sum(path.stat().st_size for path in files) / 1e9, 1),
        "files": len(files),
        **json.loads(done.stdout),
        "processSeconds": round(time.monotonic() - started, 2),
        "requests": len(server.ledger.seen()),
        "megabytesRead": round(server.ledger.bytes / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m modelservers.bench", description="the cost of an inspection")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer of the hub")
    delay = parser.parse_args().delay
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, shape in MODELS.items():
            large.lay_out(folder / name, shape)
        server = HubServer(folder)
        server.ledger.order(Fault(delay=delay))
        with server.running():
            measured = [measure(server, name) for name in MODELS]
    print(json.dumps({"delaySeconds": delay, "inspections": measured}))


if __name__ == "__main__":
    main()
