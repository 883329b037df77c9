"""`python -m worlds`: random worlds on the second plant, each law judged. The last line is one JSON object."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from pathlib import Path

from worlds.law import COUNTERS, PLUG_IN
from worlds.many import Task, judged
from worlds.report import page, verdict

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Judge, write the rows, print the page."""
    given = _arguments()
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    forms = tuple(given.laws.split(","))
    began = time.monotonic()
    tasks = [
        Task(seed, number, 60.0 * given.minutes, forms) for number in range(given.first, given.first + given.count)
    ]
    rows = []
    for row in judged(tasks, given.jobs):
        rows.append(row)
        print(".", end="", file=sys.stderr, flush=True)
        if time.monotonic() - began > 60.0 * given.limit:
            print(f"stopped after {given.limit} minutes", file=sys.stderr)
            break
    print(file=sys.stderr)
    out = ROOT / "build" / "worlds" / "rows.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"seed": seed, "rows": rows}, indent=1))
    print(page(rows, forms, seed))
    print(f"\n{time.monotonic() - began:.0f} s; rows in {out.relative_to(ROOT)}")
    print(verdict(rows, forms, seed))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="worlds", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the worlds; without it a new one is drawn and printed")
    parser.add_argument("--count", type=int, default=200, help="number of worlds (200)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (0)")
    parser.add_argument("--minutes", type=float, default=20.0, help="simulated, each (20)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--limit", type=float, default=25.0, help="minutes after which no more worlds are judged (25)")
    parser.add_argument("--laws", default=f"{PLUG_IN},{COUNTERS}", help="plug-in, counters or both")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
