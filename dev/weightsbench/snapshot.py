"""One `snapshot_download` in a process of its own: seconds and peak memory as JSON. Started by the measurement.

It resolves, lists and downloads, and checks nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

from huggingface_hub import snapshot_download


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m weightsbench.snapshot")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--parallel", type=int, default=8)
    given = parser.parse_args()
    began = time.monotonic()
    snapshot_download(given.model, local_dir=given.cache, max_workers=given.parallel)
    ended = time.monotonic()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    told = {"seconds": ended - began, "open_seconds": 0.0, "rss_mib": usage.ru_maxrss / 1024}
    print(json.dumps({**told, "cpu_seconds": usage.ru_utime + usage.ru_stime}))


if __name__ == "__main__":
    main()
