"""`python -m acceleratorkit build`: the kit, in parts; `report FILE`: its part of measured.md; `lock`: its hashes."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from acceleratorkit import parts, report
from realengine import paths

OUT = paths.ROOT / "build" / "accelerator-kit"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="acceleratorkit", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("lock")
    verbs.add_parser("build").add_argument("--out", type=Path, default=OUT)
    verbs.add_parser("report").add_argument("results", type=Path, help="the JSON that the kit wrote")
    options = parser.parse_args(arguments)
    began, wheels = time.monotonic(), paths.cache() / "accelerator-kit"
    try:
        if options.verb == "build":
            written = parts.build(options.out, wheels, lambda line: print(line, file=sys.stderr, flush=True))
            size = sum(path.stat().st_size for path in written) / 2**20
            print(f"{options.out}: {len(written)} files, {size:.0f} MiB, after {time.monotonic() - began:.0f} s")
        elif options.verb == "lock":
            parts.lock(wheels)
        else:
            print(report.section(report.read(options.results)))
    except (parts.BuildError, report.BadResultsError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
