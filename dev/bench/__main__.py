"""`make bench`: decisions, renders and reconciles a second, without any I/O; the last line is one JSON object."""

from __future__ import annotations

import json
import sys

from bench.pure import decide_ms, renders_per_second, ticks_per_second


def main() -> int:
    found = {
        "ticks_per_second": ticks_per_second(),
        "renders_per_second": renders_per_second(),
        "decide_ms": decide_ms(),
    }
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
