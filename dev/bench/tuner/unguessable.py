"""`python -m bench.tuner.unguessable`: are texts that no speculator can guess served as fast as without a speculator?

Random worlds of vLLM's V2 runner, each served by the tuned pods and, with the same requests and other noise, by two
copies of a pod without a speculator: one is the reference, the other tells what chance does. Texts accept 0 to 5 % of
first drafts; in some worlds they can be guessed before and after. Every window of five minutes counts, from the first
second on: the figure is the percentage by which a token after the first took longer. The last line is JSON. Status 1
where more windows are slower than chance makes of two plain pods.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.tuner.ledger import CAUSES, WINDOW, Ledger
from bench.tuner.unguessable_draw import drawn
from speculative_lab.plant import law as laws
from speculative_lab.plant import layout as at
from speculative_lab.plant.serving import Outcome, constant, with_table

ROOT = Path(__file__).parents[3]
SLOWER = 2.0
"""Per cent by which no window may be slower."""
LEAST_SECONDS = 30.0
"""Request-seconds of a window below which its figure is chance."""
MINUTES = int(WINDOW / 60.0)
KINDS = ("start", "change", "rest", "guessable")
"""The first window of unguessable text; those in which texts become so; others of such text; all others."""

Row = dict[str, Any]


def windows(run: Outcome, reference: Outcome) -> dict[int, tuple[float, float]]:
    """By window: per cent by which a token after the first, and one of all the time in the engine, took longer."""
    found = {}
    for number in range(len(run.minutes) // MINUTES):
        first, last = MINUTES * number, MINUTES * (number + 1)
        parts = [one.minutes[first:last].sum(axis=0) for one in (run, reference)]
        if min(part[at.M_PERIODS] for part in parts) < LEAST_SECONDS:
            continue
        each = [part[at.M_PERIODS] / max(part[at.M_FURTHER], 1.0) for part in parts]
        stay = reference.between(first, last) / max(run.between(first, last), 1e-9)
        found[number] = (100.0 * (each[0] / each[1] - 1.0), 100.0 * (stay - 1.0))
    return found


def kind_of(number: int, dead: tuple[float, float]) -> str:
    """What a window holds."""
    begin, end = WINDOW * number, WINDOW * (number + 1)
    if dead[0] <= begin and end <= dead[1]:
        return "start" if number == 0 else "rest"
    return "change" if begin < dead[0] < end else "guessable"


def judge(seed: int, number: int, seconds: float, skips_prompts: bool) -> list[Row]:
    """A row for each window of one world."""
    pair = drawn(seed, number, seconds, skips_prompts)
    ledger = Ledger(pair)
    tuned = laws.run(pair.tuned, pair.tuned.policy, laws.PLUG_IN, ledger)
    plain, copy = (with_table(world, constant(world, 0)) for world in (pair.plain, pair.copy))
    figures, chance = windows(tuned.outcome, plain), windows(copy, plain)
    rows = []
    for window in figures.keys() & chance.keys():
        whole = max(ledger.whole[window], 1e-9)
        rows.append({
            "world": pair.tuned.name,
            "window": window,
            "kind": kind_of(window, pair.dead),
            "slower": figures[window][0],
            "stay": figures[window][1],
            "chance": chance[window][0],
            "causes": {cause: 100.0 * ledger.lost[window][cause] / whole for cause in CAUSES},
            "traits": pair.tuned.traits,
            "reaction": min(ledger.off.values(), default=pair.dead[1]) - pair.dead[0],
            "dead": pair.dead,
            "table": str(tuned.outcome.table),
        })  # fmt: skip
    return rows


def over(rows: Sequence[Row], figure: str) -> dict[str, float]:
    """Share of windows over the limit, worst, median and mean of one figure, in per cent."""
    found = np.array([row[figure] for row in rows])
    figures = 100.0 * float(np.mean(found > SLOWER)), found.max(), np.median(found), found.mean()
    return dict(zip(("over", "worst", "median", "mean"), (round(float(one), 2) for one in figures), strict=True))


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Figures of some windows: tuned against plain, plain against plain, without noise, and mean loss by cause."""
    quiet = [{"quiet": sum(row["causes"].values())} for row in rows]
    causes = {cause: round(float(np.mean([row["causes"][cause] for row in rows])), 3) for cause in CAUSES}
    figures = {"tuned": over(rows, "slower"), "chance": over(rows, "chance"), "quiet": over(quiet, "quiet")}
    waits = [row["reaction"] for row in rows if row["kind"] in ("start", "change")]
    reaction = [round(float(np.quantile(waits, q))) for q in (0.5, 0.9)] if waits else []
    return {"windows": len(rows), **figures, "causes": causes, "reaction": reaction}


def page(rows: Sequence[Row], worst: int) -> str:
    """The report: by kind of window, by method, and the worst windows with their causes."""
    groups = [(kind, [row for row in rows if row["kind"] == kind]) for kind in KINDS]
    methods = sorted({row["traits"]["method"] for row in rows})
    dead = [row for row in rows if row["kind"] != "guessable"]
    groups += [(name, [row for row in dead if row["traits"]["method"] == name]) for name in methods]
    lines = [f"{'windows':<14}{'number':>7}{'over 2 %':>9}{'worst':>8}{'median':>8}{'mean':>7}   chance: over, worst"]
    for name, some in groups:
        if some:
            told = summary(some)
            tuned, chance = told["tuned"], told["chance"]
            causes = ", ".join(f"{cause} {value}" for cause, value in told["causes"].items() if abs(value) >= 0.005)
            lines.append(
                f"{name:<14}{len(some):>7}{tuned['over']:>9}{tuned['worst']:>8}{tuned['median']:>8}{tuned['mean']:>7}"
                f"{chance['over']:>8}{chance['worst']:>8}   quiet over {told['quiet']['over']}, "
                f"worst {told['quiet']['worst']}: {causes}; K = 0 after {told['reaction']} s (median, 90th percentile)"
            )
    lines += ["", f"{worst} worst windows of such text, with what chance made of two plain pods and the causes:"]
    lines += [_line(row) for row in sorted(dead, key=lambda row: -row["slower"])[:worst]]
    return "\n".join(lines)


def _line(row: Row) -> str:
    causes = ", ".join(f"{cause} {value:.1f}" for cause, value in row["causes"].items() if abs(value) >= 0.05)
    told = row["traits"]
    return (
        f"  {row['world']} window {row['window']} ({row['kind']}): {row['slower']:+.1f} %, chance "
        f"{row['chance']:+.1f}: {causes}; K = 0 after {row['reaction']:.0f} s; {told['method']} {told['model']} "
        f"{told['accelerator']} {told['concurrent']} requests, open {told['open']}, {told['shape']}, "
        f"{told['prompt']}/{told['answer']}, facts {told['facts']}, S1 {told['first']}"
    )


def _all(given: argparse.Namespace, seed: int) -> Iterator[list[Row]]:
    numbers, jobs = range(given.count), given.jobs
    one = partial(judge, seed, seconds=60.0 * given.minutes, skips_prompts=given.skips_prompts)
    if jobs <= 1:
        yield from map(one, numbers)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=os.nice, initargs=(10,)) as pool:
        yield from pool.imap_unordered(one, numbers)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge many random worlds."""
    parser = argparse.ArgumentParser(prog="bench.tuner.unguessable", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the worlds; without it a new one is drawn and printed")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--worst", type=int, default=12, help="windows that are listed")
    parser.add_argument(
        "--skips-prompts",
        action="store_true",
        help="heads that are left out see no prompts either",
    )
    given = parser.parse_args(arguments)
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    rows: list[Row] = []
    for some in _all(given, seed):
        rows += some
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    out = ROOT / "build" / "bench" / "unguessable.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"seed": seed, "rows": rows}, indent=1))
    dead = [row for row in rows if row["kind"] != "guessable"]
    if not dead:
        print(json.dumps({"seed": seed, "worlds": given.count, "windows": 0}))
        return 1
    print(page(rows, given.worst))
    told = summary(dead)
    print(json.dumps({"seed": seed, "worlds": given.count, **told}))
    return 1 if told["tuned"]["over"] > told["chance"]["over"] else 0


if __name__ == "__main__":
    sys.exit(main())
