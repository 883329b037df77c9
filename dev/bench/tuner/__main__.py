"""`python -m bench.tuner`: worlds on the laboratory's plant, tuner and rivals against the best table in hindsight.

The last line is one JSON object; all rows are in build/bench. Status 1 where the tuner is broken, which is far from
what it has to reach. `--short` is the gate of CI: the same few worlds each time, because chance must not fail a build.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.tuner.judge import Row
from bench.tuner.many import Task, judged
from bench.tuner.named import RECIPES
from bench.tuner.report import page, summary, verdict
from speculative_lab.plant.law import COUNTERS, PLUG_IN
from speculative_lab.plant.rivals import RIVALS

ROOT = Path(__file__).parents[3]
OUT = ROOT / "build" / "bench"
KEPT = ROOT / "dev" / "data" / "bench" / "tuner.json"
"""What docs/tuning.md shows."""
SHORT_SEED, SHORT_COUNT, SHORT_MINUTES = 12, 24, 12.0
BROKEN = {"lost": 4.0, "unsafe_percent": 25.0, "unsafe_worst": 25.0}
"""Percent beyond which a figure says that the law is broken: speed lost in the mean, 5-minute windows more than 2 %
slower than K = 0, and the slowest of them. A table that never moves from the start loses 7 to 8 %."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge, write the rows, print the page."""
    given = _arguments(arguments)
    forms = tuple(given.laws.split(","))
    seed = None if given.named else given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    numbers = range(len(RECIPES)) if given.named else range(given.first, given.first + given.count)
    if given.short:
        seed, numbers, given.minutes, forms = SHORT_SEED, range(SHORT_COUNT), SHORT_MINUTES, (PLUG_IN,)
    tasks = [Task(seed, number, 60.0 * given.minutes, forms, given.skip) for number in numbers]
    began = time.monotonic()
    rows = _rows(tasks, given.jobs, began + 60.0 * given.limit)
    OUT.mkdir(parents=True, exist_ok=True)
    out = OUT / f"tuner{'-named' if given.named else '-short' if given.short else ''}.json"
    out.write_text(json.dumps({"seed": seed, "minutes": given.minutes, "rows": rows}, indent=1))
    print(page(rows, forms, seed, len(rows) if given.named else 12))
    print(f"\n{time.monotonic() - began:.0f} s; rows in {out.relative_to(ROOT)}")
    broken = faults(rows, forms)
    for fault in broken:
        print(f"error: {fault}", file=sys.stderr)
    told = verdict(rows, forms, seed, given.minutes)
    if given.keep:
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told))
    return 1 if broken else 0


def faults(rows: list[Row], forms: Sequence[str]) -> list[str]:
    """What the tuner's figures are broken by; rivals are held to nothing."""
    if PLUG_IN not in forms or not rows:
        return []
    figures = summary(rows, PLUG_IN)
    return [
        f"{name} is {figures[name]} %, at most {most:g} is allowed"
        for name, most in BROKEN.items()
        if figures[name] > most
    ]


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


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.tuner", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the worlds; without it a new one is drawn and printed")
    parser.add_argument("--count", type=int, default=200, help="number of worlds (200)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (0)")
    parser.add_argument("--named", action="store_true", help="the fixed worlds instead of random ones")
    parser.add_argument("--skip", action="store_true", help="pods leave the speculator out once K = 0 has lasted")
    parser.add_argument("--short", action="store_true", help="the gate of CI: a few short worlds, always the same")
    parser.add_argument("--keep", action="store_true", help="write what docs/tuning.md shows")
    parser.add_argument("--minutes", type=float, default=20.0, help="simulated, each (20)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--limit", type=float, default=60.0, help="minutes after which no more worlds are judged (60)")
    laws = (PLUG_IN, COUNTERS, *RIVALS)
    parser.add_argument("--laws", default=",".join(laws), help=f"some of {', '.join(laws)} (all)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
