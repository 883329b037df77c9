"""`python -m bench.tuner`: scenarios x seeds x policies in the simulator, then random worlds on the second plant.

The last line is one JSON object, with the worlds' figures under `worlds`.

`--quick` compares the tuner with the oracle, `off` and every constant K only, one seed, and takes those from the store
of earlier runs (build/bench/runs) where simulator and scenario are unchanged: for work on the tuner.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from bench.tuner import judge, show
from bench.tuner.cases import case_figures
from bench.tuner.speedup import simulator_speedup
from bench.tuner.traces import ROOT
from bench.tuner.work import NEVER, OURS, Outcome, Task, be_nice, make, perform
from speculative_lab.sim.catalogue import ALL, BY_NAME
from speculative_lab.sim.policies.registry import RIVALS, references
from speculative_lab.sim.scenarios import Scenario

OUT = ROOT / "build" / "bench"
SHORT = ("diurnal", "burst", "dead_drafter", "load_step", "ngram_bursts", "moe")
SHORT_SCALE = 0.35
CONSTANTS_AGAIN = 2
WORLDS = 200
SHORT_WORLDS = 8
SHORT_WORLD_MINUTES = 12.0
SHORT_SEED = 1
"""A short run draws the same worlds each time: chance must not fail a build."""
MARKS = (judge.ORACLE, judge.OFF, NEVER)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.tuner", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the tuner against oracle, off and constants; stored runs")
    parser.add_argument("--short", action="store_true", help=f"for CI: {', '.join(SHORT)}, a third of their length")
    parser.add_argument("--scenario", nargs="+", choices=sorted(BY_NAME), metavar="NAME", help="only these")
    parser.add_argument("--seeds", type=int, default=None, help="seeds 1..N (3; 1 with --quick and --short)")
    parser.add_argument("--rival-seeds", type=int, default=1, help="seeds of them that rivals run with (1)")
    parser.add_argument("--policies", nargs="*", choices=sorted(RIVALS), metavar="RIVAL", help="only these rivals")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--perturbed", action="store_true", help="only with perturbed physics")
    kind.add_argument("--nominal", action="store_true", help="only with physics as given")
    parser.add_argument("--scale", type=float, default=None, help="length of scenarios, 1 = whole")
    parser.add_argument(
        "--counters", action="store_true", help="no plug-in: pods export the engine's own counters, and try nothing"
    )
    parser.add_argument(
        "--worlds",
        type=int,
        metavar="N",
        help=f"random worlds on the second plant ({WORLDS}; {SHORT_WORLDS} with --short; 0 with --quick or --scenario)",
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--explain", action="store_true", help="print every answer of the tuner that differs")
    parser.add_argument("--list", action="store_true", help="name scenarios and rivals, and end")
    chosen = parser.parse_args(arguments)
    brief = chosen.quick or chosen.short
    form = "-quick" if chosen.quick else "-short" if chosen.short else ""
    chosen.file = f"tuner{form}{'-counters' if chosen.counters else ''}.json"
    chosen.seeds = chosen.seeds or (1 if brief else 3)
    chosen.scale = chosen.scale or (SHORT_SCALE if chosen.short else 1.0)
    chosen.kinds = [True] if chosen.perturbed else [False] if chosen.nominal or chosen.quick else [False, True]
    chosen.rivals = list(RIVALS) if chosen.policies is None and not chosen.quick else chosen.policies or []
    if chosen.worlds is None:
        chosen.worlds = 0 if chosen.quick or chosen.scenario else SHORT_WORLDS if chosen.short else WORLDS
    return chosen


def chosen_scenarios(chosen: argparse.Namespace) -> list[Scenario]:
    """The scenarios to run."""
    names = chosen.scenario or (SHORT if chosen.short else tuple(BY_NAME))
    return [scenario for scenario in ALL if scenario.name in names]


def tasks(
    scenarios: Sequence[Scenario], chosen: argparse.Namespace, seeds: Iterable[int], done: Sequence[Outcome] = ()
) -> Iterator[Task]:
    """Every run of these seeds, those of one case together.

    Rivals run on the physics as given only. Of the constants, only the best ones of the case's first seed in `done`
    run again: the best in hindsight is among them.
    """
    known = judge.runs_of(done)
    for shaken in chosen.kinds:
        for scenario in scenarios:
            for seed in seeds:
                first = Task(scenario.name, seed, shaken, OURS, chosen.scale, chosen.quick, not chosen.counters)
                statics = [name for name in references(make(first).plant) if name not in MARKS]
                before = known.get((scenario.name, 1, shaken))
                if shaken and not chosen.quick:
                    statics = []  # only regret and safety are asked of perturbed physics
                elif before is not None:
                    statics = judge.best_statics(before, CONSTANTS_AGAIN)
                rivals = chosen.rivals if not shaken and seed <= chosen.rival_seeds else []
                for policy in (OURS, *MARKS, *statics, *rivals):
                    yield replace(first, policy=policy)


def run_all(wanted: Sequence[Task], jobs: int, *, explain: bool) -> list[Outcome]:
    """Performs the tasks; a line for each case as soon as its last run has come in."""
    done: list[Outcome] = []
    with ProcessPoolExecutor(max_workers=jobs, initializer=be_nice) as pool:
        for outcome, following in zip(pool.map(perform, wanted), [*wanted[1:], None], strict=True):
            done.append(outcome)
            if following is None or case_of(following) != case_of(outcome.task):
                group = judge.runs_of(done)[case_of(outcome.task)]
                say(show.line(judge.row_of(group)))
                if explain:
                    say(show.decisions(group[OURS]))
    return done


def case_of(task: Task) -> tuple[str, int, bool]:
    return task.scenario, task.seed, task.shaken


def report(outcomes: Sequence[Outcome], wall: float, file: str) -> dict[str, Any]:
    """Writes all rows to `file`; the summary."""
    rows = [judge.row_of(group) for group in judge.runs_of(outcomes).values()]
    found = judge.summary(rows, outcomes)
    say(show.policies(found["policies"] or found["policies_perturbed"]))
    OUT.mkdir(parents=True, exist_ok=True)
    everything = {"summary": found, "rows": [judge.as_json(row) for row in rows], "wall_seconds": round(wall, 1)}
    (OUT / file).write_text(json.dumps(everything, indent=1) + "\n")
    return found


def worse(found: Mapping[str, Any]) -> int:
    """1 when a short run shows a tuner that is broken, not one that is a little worse: its few runs are noisy."""
    regret, worlds = found["regret_percent"], (found["worlds"] or {}).get("laws", {}).get("plug-in", {})
    broken = [
        f"{name} is {value}, at most {most} is allowed"
        for name, value, most in (
            ("mean regret", regret["mean"], 2.5),
            ("largest regret", regret["max"], 8.0),
            ("mean regret with perturbed physics", regret["perturbed_mean"], 4.0),
            ("unsafe_windows_percent", found["unsafe_windows_percent"], 2.0),
            ("wrong_removals", found["wrong_removals"], 0),
            ("mean regret in random worlds", worlds.get("mean"), 5.0),
            ("unsafe windows in random worlds, percent", worlds.get("unsafe_percent"), 15.0),
        )
        if value is not None and value > most
    ]
    for line in broken:
        say(f"error: {line}")
    return 1 if broken else 0


def random_worlds(chosen: argparse.Namespace) -> dict[str, Any]:
    """The last line of `python -m worlds`, the second plant: a full run draws worlds that nobody has seen."""
    command = [sys.executable, "-m", "worlds", "--count", str(chosen.worlds), "--jobs", str(chosen.jobs)]
    if chosen.short:
        command += ["--seed", str(SHORT_SEED), "--minutes", str(SHORT_WORLD_MINUTES), "--laws", "plug-in"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    *page, last = done.stdout.rstrip().splitlines()
    say("\n".join(page))
    found: dict[str, Any] = json.loads(last)
    return found


def main() -> int:
    chosen = options()
    if chosen.list:
        print("\n".join(f"{one.name:18s} {one.minutes:3.0f} min  {one.about}" for one in ALL))
        print("\n".join(RIVALS))
        return 0
    began = time.perf_counter()
    scenarios = chosen_scenarios(chosen)
    speedup = None if chosen.quick else simulator_speedup()
    say(show.HEAD)
    outcomes = run_all(list(tasks(scenarios, chosen, [1])), chosen.jobs, explain=chosen.explain)
    if chosen.seeds > 1:
        more = list(tasks(scenarios, chosen, range(2, chosen.seeds + 1), outcomes))
        outcomes += run_all(more, chosen.jobs, explain=chosen.explain)
    wall = time.perf_counter() - began
    found = {"cases": None if chosen.quick else case_figures()} | report(outcomes, wall, chosen.file)
    say(f"{len(outcomes)} runs in {wall:.0f} s")
    found |= {"simulator_speedup": speedup, "worlds": random_worlds(chosen) if chosen.worlds else None}
    print(json.dumps(found), flush=True)
    return worse(found) if chosen.short else 0


if __name__ == "__main__":
    sys.exit(main())
