"""`python -m bench.ablations`: the tuner with each mechanism taken out in turn. The last line is one JSON object.

Scenarios run with seed 1 on the physics as given and with seed 2 on perturbed physics (`--both`: each seed on both).
Oracle and `off` come from the store of runs (build/bench/runs) where simulator and scenario are unchanged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict

from bench.ablations.measure import Case, Figures, Job, figures, rows_of, work
from bench.ablations.variants import BY_NAME, VARIANTS, WHOLE
from bench.tuner import judge
from bench.tuner.traces import ROOT
from bench.tuner.work import NEVER, OURS, Outcome, Task, be_nice
from speculative_lab.sim.catalogue import BY_NAME as SCENARIOS

OUT = ROOT / "build" / "bench" / "ablations.json"
CHOSEN = (
    "diurnal_block", "burst", "degradation", "dead_drafter", "moe", "capture_cliff", "mispriced_k", "ngram_bursts",
    "slow_dynamic", "azure_code", "load_step_draft", "prompt_heavy",
)  # fmt: skip
HEAD = "| without | mean | perturbed | worst | costs | most in | writes/h | unsafe |\n|---|---|---|---|---|---|---|---|"


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.ablations", description=__doc__)
    parser.add_argument("--variant", nargs="+", choices=sorted(BY_NAME), metavar="NAME", help="only these")
    parser.add_argument("--scenario", nargs="+", choices=sorted(SCENARIOS), metavar="NAME", default=list(CHOSEN))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--both", action="store_true", help="each seed on both kinds of physics")
    parser.add_argument("--scale", type=float, default=1.0, help="length of scenarios, 1 = whole")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="name the variants, and end")
    return parser.parse_args(arguments)


def cases(chosen: argparse.Namespace) -> list[Case]:
    """Seeds take turns between physics as given and perturbed."""
    kinds = {seed: (False, True) if chosen.both else (seed % 2 == 0,) for seed in range(1, chosen.seeds + 1)}
    return [(name, seed, shaken) for name in chosen.scenario for seed in kinds for shaken in kinds[seed]]


def jobs(chosen: argparse.Namespace) -> Iterator[Job]:
    """References first, then variant by variant."""
    wanted = [WHOLE, *(name for name in chosen.variant or BY_NAME if name != WHOLE)]
    bases = [BY_NAME[name].against for name in wanted]
    for name, seed, shaken in cases(chosen):
        for policy in (judge.ORACLE, judge.OFF, NEVER):
            yield Job("", Task(name, seed, shaken, policy, chosen.scale))
    for variant in dict.fromkeys([*bases, *wanted]):
        for name, seed, shaken in cases(chosen):
            yield Job(variant, Task(name, seed, shaken, OURS, chosen.scale))


def run_all(wanted: Sequence[Job], count: int) -> list[tuple[Job, Outcome]]:
    """Performs the jobs in `count` processes, in any order; says how far it is."""
    began, done = time.perf_counter(), []
    with ProcessPoolExecutor(max_workers=count, initializer=be_nice) as pool:
        for finished in as_completed([pool.submit(work, job) for job in wanted]):
            done.append(finished.result())
            if len(done) % 50 == 0:
                say(f"{len(done)} of {len(wanted)} runs in {time.perf_counter() - began:.0f} s")
    return done


def row(found: Figures) -> str:
    """One line of the table, percent."""
    mean, shaken = (f"{value:.2f}" if value is not None else "-" for value in (found.nominal, found.perturbed))
    about = BY_NAME[found.variant].about
    return (
        f"| `{found.variant}`: {about} | {mean} | {shaken} | {found.worst:.1f} {found.worst_case} | "
        f"{found.cost:+.2f} +- {found.cost_error:.2f} | {found.dearest} | {found.writes_per_hour:.1f} | "
        f"{found.unsafe_percent:.2f} |"
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    chosen = options()
    if chosen.list:
        print("\n".join(f"{one.name:20s} {one.about}" for one in VARIANTS))
        return 0
    began = time.perf_counter()
    rows = rows_of(run_all(list(jobs(chosen)), chosen.jobs))
    found = [figures(one.name, rows) for one in VARIANTS if one.name in rows]
    say("\n".join([HEAD, *map(row, found)]))
    wall = round(time.perf_counter() - began, 1)
    everything = {
        "variants": [asdict(one) for one in found],
        "rows": {name: [judge.as_json(one) for one in by_case.values()] for name, by_case in rows.items()},
        "wall_seconds": wall,
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(everything, indent=1) + "\n")
    brief = {one.variant: {"mean": one.nominal, "perturbed": one.perturbed, "costs": one.cost} for one in found}
    print(json.dumps({"variants": brief, "wall_seconds": wall}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
