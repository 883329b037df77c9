"""`python -m payloadbench`: throughput with the payload over throughput without; the last line is one JSON object."""

from __future__ import annotations

import argparse
import json
import signal
import sys

from payloadbench.measure import SECONDS, measure
from payloadbench.paired import Ratio, Verdict, beside_copies


def main() -> int:
    parser = argparse.ArgumentParser(prog="payloadbench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the longest that rounds are run (600)")
    parser.add_argument("--seed", type=int, default=1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # engines end with it
    options = parser.parse_args()
    told = measure(
        seconds=options.seconds, seed=options.seed, report=lambda line: print(line, file=sys.stderr, flush=True)
    )
    verdict = beside_copies(told["ratio"], told["copies"])
    shown = {name: str(one) if isinstance(one, Ratio) else one for name, one in told.items()}
    print(json.dumps({**shown, "verdict": verdict}))
    return 0 if told["failed"] == 0 and told["identical"] and verdict is Verdict.EQUAL else 1


if __name__ == "__main__":
    sys.exit(main())
