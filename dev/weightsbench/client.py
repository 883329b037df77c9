"""One fetch in a process of its own: seconds and peak memory as JSON. Started by the measurement."""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights.fetch import fetch, total_bytes
from speculative_operator.weights.progress import Meter
from speculative_operator.weights.sources import open_source


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m weightsbench.client")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--parallel", type=int, default=8)
    given = parser.parse_args()
    began = time.monotonic()
    source = open_source(ModelSource(Scheme.HF, given.model))
    opened = time.monotonic()
    meter = Meter(total_bytes(source), lambda _: None, 2.0)
    fetch(source, given.cache, meter, user="bench/bench", parallel=given.parallel)
    ended = time.monotonic()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    told = {"seconds": ended - opened, "open_seconds": opened - began, "rss_mib": usage.ru_maxrss / 1024}
    print(json.dumps({**told, "cpu_seconds": usage.ru_utime + usage.ru_stime}))


if __name__ == "__main__":
    main()
