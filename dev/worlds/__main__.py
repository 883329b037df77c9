"""`python -m worlds`: worlds on the second plant, each law judged against the best table in hindsight.

The last line is one JSON object. Status 1 where the law is broken, which is far from what it has to reach.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from pathlib import Path

from worlds.judge import Row
from worlds.law import COUNTERS, PLUG_IN
from worlds.many import Task, judged
from worlds.named import RECIPES
from worlds.report import page, summary, verdict

ROOT = Path(__file__).parents[2]
SHORT_SEED, SHORT_COUNT, SHORT_MINUTES = 12, 16, 6.0
"""The short form: the same few worlds each time, because it only has to notice what is broken."""
BROKEN_MEAN, BROKEN_WINDOW = 10.0, 40.0
"""Mean regret and worst 5-minute window, percent, beyond which the law is broken."""


def main() -> int:
    """Judge, write the rows, print the page."""
    given = _arguments()
    forms = tuple(given.laws.split(","))
    seed = None if given.named else given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    numbers = range(len(RECIPES)) if given.named else range(given.first, given.first + given.count)
    if given.short:
        seed, numbers, given.minutes = SHORT_SEED, range(SHORT_COUNT), SHORT_MINUTES
    tasks = [Task(seed, number, 60.0 * given.minutes, forms, given.skip) for number in numbers]
    began = time.monotonic()
    rows = _rows(tasks, given.jobs, began + 60.0 * given.limit)
    out = ROOT / "build" / "worlds" / ("named.json" if given.named else "rows.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"seed": seed, "rows": rows}, indent=1))
    print(page(rows, forms, seed, len(rows) if given.named else 12))
    print(f"\n{time.monotonic() - began:.0f} s; rows in {out.relative_to(ROOT)}")
    print(verdict(rows, forms, seed))
    return 1 if _broken(rows, forms) else 0


def _broken(rows: list[Row], forms: tuple[str, ...]) -> bool:
    figures = [summary(rows, form) for form in forms]
    return any(f["mean"] > BROKEN_MEAN or f["unsafe_worst"] > BROKEN_WINDOW for f in figures)


def _rows(tasks: list[Task], jobs: int, end: float) -> list[Row]:
    rows = []
    for row in judged(tasks, jobs):
        rows.append(row)
        print(".", end="", file=sys.stderr, flush=True)
        if time.monotonic() > end:
            print(f" stopped at the limit: {len(rows)} of {len(tasks)} worlds", end="", file=sys.stderr)
            break
    print(file=sys.stderr)
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="worlds", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the worlds; without it a new one is drawn and printed")
    parser.add_argument("--count", type=int, default=200, help="number of worlds (200)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (0)")
    parser.add_argument("--named", action="store_true", help="the fixed worlds instead of random ones")
    parser.add_argument("--skip", action="store_true", help="pods leave the drafter out once K = 0 has lasted")
    parser.add_argument("--short", action="store_true", help="sixteen short worlds, always the same")
    parser.add_argument("--minutes", type=float, default=20.0, help="simulated, each (20)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--limit", type=float, default=25.0, help="minutes after which no more worlds are judged (25)")
    parser.add_argument("--laws", default=f"{PLUG_IN},{COUNTERS}", help="plug-in, counters or both")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
