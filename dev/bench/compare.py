"""Judges `comparing`: `python -m bench.compare` draws pairs of simulated objects and counts its verdicts.

Both objects of a pair have the same machine, traffic and texts, and requests of their own. Where B is the same as A, a
Better or Worse is false; B can be made slower or quicker in every step, or worse at drafting. One line a pair on
stderr; the last line is JSON on stdout.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.draw import Plan, draw_plan, traffic_of, unequal
from speculative_lab.plant.machines import Rig, draw_rig, machine_of
from speculative_lab.plant.serving import fresh, until
from speculative_lab.plant.traffic import Traffic, requests
from speculative_lab.plant.types import Machine
from speculative_lab.plant.windows import scrape, window
from speculative_lab.plant.world import Replica
from speculative_operator.comparing.matching import Basis, match_by
from speculative_operator.comparing.measures import Sample, sample_of
from speculative_operator.comparing.verdict import Comparison, Limits, Verdict, compare, compare_matched

INTERVAL = 5.0
"""Seconds of a sample."""
WARM = 60.0
"""Seconds before the first sample, in which the simulated pods fill up."""
EPOCH = 1_700_000_000.0
NEIGHBOURS = 0.35
"""Share of the worlds in which other work on the machine slows it down now and then, as the plant draws it."""


@dataclass(frozen=True, slots=True)
class Case:
    """One pair to judge."""

    seed: int
    number: int
    minutes: float
    slower: float = 1.0
    """Factor on the seconds of B's steps."""
    accepted: float = 1.0
    """Factor on the chance that B's drafts are accepted."""
    rate: float | None = None
    """Requests per second of each object; None: as drawn."""
    calm: bool = False
    """Requests come one by one, and no other work is on the machine."""
    constant: bool = False
    """The rate never changes."""
    basis: Basis | None = None
    """By which they are compared; None: as `compare` chooses."""


@dataclass(frozen=True, slots=True)
class World:
    """What both objects of a pair have in common."""

    rig: Rig
    plan: Plan
    shares: tuple[float, ...]
    k: int
    disturbed: bool


def draw(case: Case) -> World:
    """The first random world that can serve the case's rate with one pod, or any."""
    for attempt in range(1000):
        rng = np.random.default_rng([case.seed, case.number, attempt])
        rig = draw_rig(rng)
        plan = draw_plan(rng, rig)
        shares, k = unequal(rng), int(rng.integers(0, rig.top_k + 1))
        disturbed = bool(rng.random() < NEIGHBOURS)
        if case.accepted < 1:
            k = max(k, 3)
        if case.rate is None:
            return World(rig, plan, shares, k, disturbed)
        bursts = plan.shape == "bursts" and not case.constant
        plan = replace(plan, open_share=1.0, shape="bursts" if bursts else "steady")
        if case.calm:
            plan, disturbed = replace(plan, lump=1.0), False
        world = World(rig, plan, (1.0,), k, disturbed)
        known = case.accepted == 1 or not (rig.dead or rig.method.draft_free)
        if known and float(traffic_of(rig, plan, 1.0, 60 * case.minutes).rates.mean()) >= case.rate:
            return world
    raise ValueError(f"no world of a thousand serves {case.rate} requests per second")


def samples(world: World, case: Case, rng: np.random.Generator, slower: float, accepted: float) -> list[Sample]:
    """What one object's counters say, interval by interval."""
    seconds = WARM + 60.0 * case.minutes
    replicas = [_replica(world, case, rng, share, seconds, (slower, accepted)) for share in world.shares]
    table = np.full(int(world.rig.par[at.SEATS]) + 1, world.k, dtype=np.int64)
    states = [fresh(one, world.rig.top_k, seconds) for one in replicas]
    capacity = float(world.rig.par[at.KV_CAPACITY])
    found: list[Sample] = []
    before = None
    for moment in np.arange(WARM, seconds + 0.1, INTERVAL):
        for replica, state in zip(replicas, states, strict=True):
            until(state, replica, table, float(moment))
        after = [scrape(state, EPOCH + float(moment)) for state in states]
        if before is not None:
            parts = zip(states, before, after, strict=True)
            one = sample_of([window(*part, capacity, None) for part in parts], accelerators_per_pod=world.rig.count)
            found += [one] if one is not None else []
        before = after
    return found


def _replica(
    world: World, case: Case, rng: np.random.Generator, share: float, seconds: float, worse: tuple[float, float]
) -> Replica:
    traffic = traffic_of(world.rig, world.plan, share, seconds)
    if case.rate is not None:
        traffic = replace(traffic, rates=traffic.rates * case.rate / float(traffic.rates.mean()))
    slower, accepted = worse
    machine = _machine(world, rng, seconds)
    if world.plan.shape == "step-text":
        machine.par[at.SHIFT_AT] = seconds / 2
        machine.par[at.SHIFT_BY] = -2.0 if world.plan.texts[0].skill > 0.5 else 2.0
    machine.spells[:] *= slower
    rows, opened, users, returns = requests(rng, _less_accepted(traffic, accepted), seconds)
    return Replica(machine, rows, opened, users, returns)


def _machine(world: World, rng: np.random.Generator, seconds: float) -> Machine:
    """A copy of the world's machine: noise of its own, neighbours where the world has some, and no speed of its own."""
    while True:
        machine = machine_of(world.rig, rng, seconds)
        machine.spells[:] /= machine.spells.min()
        if (machine.spells.max() > 1.0) == world.disturbed:
            return machine


def _less_accepted(traffic: Traffic, share: float) -> Traffic:
    """The same traffic with texts of which a first draft is accepted less often."""
    if share == 1.0:
        return traffic

    def less(skill: float) -> float:
        chance = share / (1.0 + np.exp(-skill))
        return float(np.log(chance / (1.0 - chance)))

    return replace(traffic, texts=tuple(replace(one, skill=less(one.skill)) for one in traffic.texts))


def pair(case: Case) -> tuple[World, list[Sample], list[Sample]]:
    """The samples of A and B."""
    world = draw(case)
    a, b = (np.random.default_rng([case.seed, case.number, 7, side]) for side in (0, 1))
    return world, samples(world, case, a, 1.0, 1.0), samples(world, case, b, case.slower, case.accepted)


@dataclass(frozen=True, slots=True)
class Found:
    """What one pair came to, looked at every minute."""

    first: Verdict
    """The first Better or Worse of the whole comparison; else the verdict at the end."""
    minutes: float
    """When it came."""
    measures: tuple[str, ...]
    """Measures that were ever Better or Worse, with their verdict."""
    last: Comparison

    @property
    def decided(self) -> bool:
        return self.first in (Verdict.BETTER, Verdict.WORSE)


def judge(case: Case) -> Found:
    """Look at a pair every minute, as somebody does who waits for a verdict."""
    _, a, b = pair(case)
    each, first, seen = round(60.0 / INTERVAL), None, set[str]()
    for count in range(each, len(a) + 1, each):
        last = _compared(case, a[:count], b[:count])
        ever = [one for one in last.measures if one.verdict in (Verdict.BETTER, Verdict.WORSE)]
        seen |= {f"{one.measure} {one.verdict}" for one in ever}
        if first is None and last.verdict in (Verdict.BETTER, Verdict.WORSE):
            first = last.verdict, count / each
    return Found(*(first or (last.verdict, len(a) / each)), tuple(sorted(seen)), last)


def _compared(case: Case, a: Sequence[Sample], b: Sequence[Sample]) -> Comparison:
    return compare(a, b) if case.basis is None else compare_matched(match_by(case.basis, a, b), Limits())


def judged(cases: Sequence[Case], jobs: int) -> list[Found]:
    """What each pair came to, a line each on stderr."""
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=os.nice, initargs=(10,)) as pool:
        found = []
        for case, one in zip(cases, pool.imap(judge, cases), strict=True):
            found.append(one)
            told = f"{one.first} after {one.minutes:g} min; {', '.join(one.measures) or 'no measure differs'}"
            print(f"pair {case.number}: {told}", file=sys.stderr, flush=True)
        return found


def _percent(found: Sequence[Found], verdicts: Sequence[Verdict]) -> float | None:
    return round(100.0 * sum(one.first in verdicts for one in found) / len(found), 1) if found else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge all pairs and print the figures; 1 where more than 5 % of the equal pairs got a verdict of a difference."""
    parser = argparse.ArgumentParser(prog="bench.compare", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=1)
    add("--same", type=int, default=200, help="pairs of equal objects, 20 minutes each (200)")
    add("--slower", type=int, default=60, help="pairs with steps 5 %% slower in B, 10 minutes, calm and as drawn (60)")
    add(
        "--quicker",
        type=int,
        default=40,
        help="pairs at one constant rate, B 1.5 to 2.5 times quicker, 10 minutes (40)",
    )
    add("--alike", type=int, default=100, help="equal pairs at one constant rate, compared at equal arrivals (100)")
    add("--half", type=int, default=40, help="pairs with half the acceptance in B, 10 minutes (40)")
    add("--rate", type=float, default=5.0, help="requests per second of each object where B is worse (5)")
    add("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    seed, rate = options.seed, options.rate
    same = judged([Case(seed, number, 20.0) for number in range(options.same)], options.jobs)
    slow = [Case(seed, n, 10.0, slower=1.05, rate=rate) for n in range(options.slower)]
    calm, slower = judged([replace(one, calm=True) for one in slow], options.jobs), judged(slow, options.jobs)
    half = judged([Case(seed, n, 10.0, accepted=0.5, rate=rate) for n in range(options.half)], options.jobs)
    steady = Case(seed, 0, 20.0, rate=rate, constant=True)
    alike = [replace(steady, number=n, basis=Basis.ARRIVALS) for n in range(options.alike)]
    equal = judged(alike, options.jobs)
    times = np.linspace(1.5, 2.5, max(options.quicker, 2)).tolist()[: options.quicker]
    quick = [replace(steady, number=n, minutes=10.0, slower=1.0 / by) for n, by in enumerate(times)]
    quicker = judged(quick, options.jobs)
    by_arrivals = judged([replace(one, basis=Basis.ARRIVALS) for one in quick], options.jobs)
    wrong = _percent([*same, *equal], (Verdict.BETTER, Verdict.WORSE))
    print(json.dumps({
        "same": len(same),
        "same_false_percent": _percent(same, (Verdict.BETTER, Verdict.WORSE)),
        "alike": len(equal),
        "alike_false_percent": _percent(equal, (Verdict.BETTER, Verdict.WORSE)),
        "quicker": len(quicker),
        "quicker_found_percent": _percent(quicker, (Verdict.BETTER,)),
        "quicker_found_percent_by_arrivals": _percent(by_arrivals, (Verdict.BETTER,)),
        "quicker_called_worse_percent": _percent([*quicker, *by_arrivals], (Verdict.WORSE,)),
        "false_by_measure": dict(Counter(name.rpartition(" ")[0] for one in [*same, *equal] for name in one.measures)),
        "slower": len(slower),
        "slower_found_percent_calm": _percent(calm, (Verdict.WORSE,)),
        "slower_found_percent": _percent(slower, (Verdict.WORSE,)),
        "slower_called_better_percent": _percent([*calm, *slower], (Verdict.BETTER,)),
        "half": len(half),
        "half_found_percent": _percent(half, (Verdict.WORSE,)),
        "half_minutes_median": float(np.median([one.minutes for one in half if one.decided] or [0.0])),
    }))  # fmt: skip
    return 1 if wrong is not None and wrong > 5.0 else 0


if __name__ == "__main__":
    sys.exit(main())
