"""`python -m payloadbench`: speed of a step with the payload over one without; the last line is one JSON object."""

from __future__ import annotations

import argparse
import json
import signal
import sys

from payloadbench.measure import SECONDS, measure
from payloadbench.paired import Verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="payloadbench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the longest that the engine is loaded (300)")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the engine ends with it
    options = parser.parse_args()
    cost = measure(seconds=options.seconds, report=lambda line: print(line, file=sys.stderr, flush=True))
    verdict = cost.ratio.verdict()
    print(json.dumps({"ratio": str(cost.ratio), "failed": cost.failed, "verdict": verdict}))
    return 0 if cost.failed == 0 and verdict is Verdict.EQUAL else 1


if __name__ == "__main__":
    sys.exit(main())
