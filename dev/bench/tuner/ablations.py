"""`python -m bench.tuner.ablations`: the tuner with each mechanism taken out in turn, in the same random worlds.

Each world's best table is searched once, then the whole tuner and every variant run in it. The last line is one JSON
object; rows are in build/bench/ablations.json. `--keep` writes dev/data/bench/ablations.json, of which `python -m
generate` makes the table of docs/tuning.md.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from bench.tuner.judge import Row, ask, law_row
from bench.tuner.report import SLOWER
from bench.tuner.variants import BY_NAME, VARIANTS, WHOLE, applied
from speculative_lab.plant import law as laws
from speculative_lab.plant.draw import world
from speculative_lab.plant.oracle import search

ROOT = Path(__file__).parents[3]
OUT = ROOT / "build" / "bench" / "ablations.json"
KEPT = ROOT / "dev" / "data" / "bench" / "ablations.json"


def judge(names: Sequence[str], seed: int, seconds: float, form: str, skip: bool, number: int) -> dict[str, Row]:
    """Figures of each variant in one world."""
    drawn = world(seed, number, seconds)
    drawn = drawn.with_skip() if skip else drawn
    best = search(drawn)
    asked = ask(drawn, best)
    rows = {}
    for name in names:
        with applied(BY_NAME[name]):
            rows[name] = law_row(drawn, best, asked, laws.run(drawn, asked.policy, form))
    return rows


def figures(name: str, worlds: Sequence[dict[str, Row]]) -> dict[str, Any]:
    """One variant over all worlds. `cost`: percent of speed more that is lost than with what it is compared with."""
    mine = [rows[name] for rows in worlds]
    lost = [max(row["regret"], 0.0) for row in mine]
    beside = [max(rows[BY_NAME[name].against]["regret"], 0.0) for rows in worlds]
    more = [one - other for one, other in zip(lost, beside, strict=True)]
    windows = [value for row in mine for value in row["unsafe"]]
    return {
        "variant": name,
        "lost": round(fmean(lost), 2),
        "worst": round(max(lost), 1),
        "cost": round(fmean(more), 2),
        "cost_error": round(stdev(more) / math.sqrt(len(more)), 2) if len(more) > 1 else None,
        "unsafe_percent": round(100.0 * fmean(value > SLOWER for value in windows), 2) if windows else 0.0,
        "unsafe_worst": round(max(windows, default=0.0), 1),
        "writes_per_hour": round(fmean(row["writes"] for row in mine), 1),
    }


def run_all(given: argparse.Namespace, names: Sequence[str]) -> Iterator[dict[str, Row]]:
    """The rows of each world, as they come."""
    one = partial(judge, names, given.seed, 60.0 * given.minutes, given.form, given.skip)
    numbers = range(given.first, given.first + given.count)
    if given.jobs <= 1:
        yield from map(one, numbers)
        return
    with multiprocessing.get_context("spawn").Pool(given.jobs, initializer=os.nice, initargs=(10,)) as pool:
        yield from pool.imap_unordered(one, numbers)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="bench.tuner.ablations", description=__doc__)
    parser.add_argument("--variant", nargs="+", choices=sorted(BY_NAME), metavar="NAME", help="only these")
    parser.add_argument("--seed", type=int, default=1, help="of the worlds (1)")
    parser.add_argument("--count", type=int, default=200, help="number of worlds (200)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (0)")
    parser.add_argument("--minutes", type=float, default=20.0, help="simulated, each (20)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--skip", action="store_true", help="pods leave the speculator out once K = 0 has lasted")
    parser.add_argument("--form", choices=(laws.PLUG_IN, laws.COUNTERS), default=laws.PLUG_IN, help="what pods tell")
    parser.add_argument("--keep", action="store_true", help="write what docs/tuning.md shows")
    parser.add_argument("--list", action="store_true", help="name the variants, and end")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given = options(arguments)
    if given.list:
        print("\n".join(f"{one.name:20s} {one.about}" for one in VARIANTS))
        return 0
    began = time.monotonic()
    wanted = [WHOLE, *(name for name in given.variant or BY_NAME if name != WHOLE)]
    names = list(dict.fromkeys([*(BY_NAME[name].against for name in wanted), *wanted]))
    worlds: list[dict[str, Row]] = []
    for rows in run_all(given, names):
        worlds.append(rows)
        print(f"\r{len(worlds)} of {given.count} worlds, {time.monotonic() - began:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    told = {
        "seed": given.seed,
        "worlds": len(worlds),
        "minutes": given.minutes,
        "variants": [figures(name, worlds) for name in names],
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({**told, "rows": worlds}, indent=1) + "\n")
    if given.keep:
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps(told, indent=1) + "\n")
    for one in told["variants"]:
        print(f"{one['variant']:20s} lost {one['lost']:6.2f}  costs {one['cost']:+6.2f} +- {one['cost_error']}")
    print(json.dumps({**told, "seconds": round(time.monotonic() - began)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
