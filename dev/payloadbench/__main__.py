"""`python -m payloadbench`: throughput with the payload over throughput without; the last line is one JSON object."""

from __future__ import annotations

import argparse
import json
import signal
import sys

from payloadbench.measure import measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="payloadbench", description=__doc__)
    parser.add_argument("--pairs", type=int, default=12, help="pairs of runs (about 15 s each)")
    parser.add_argument("--seed", type=int, default=1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # engines end with it
    options = parser.parse_args()
    told = measure(pairs=options.pairs, seed=options.seed, report=lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(told))
    return 0 if told["failed"] == 0 and told["identical"] else 1


if __name__ == "__main__":
    sys.exit(main())
