"""One world judged: the tuner and rivals against the best table in hindsight, K = 0, and what was asked."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from speculative_lab.plant import law as laws
from speculative_lab.plant import layout as at
from speculative_lab.plant import rivals
from speculative_lab.plant.oracle import Best, search
from speculative_lab.plant.serving import Outcome, unsafe
from speculative_lab.plant.world import World
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import Objective

SLACK = 0.02
NEAR = 0.03
"""What counts as the right K after a change: within this of the best."""
SETTLING = 300.0

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """The target in seconds, and the oracle under it."""

    policy: Policy
    of: str
    target: float | None
    reachable: bool
    oracle: Outcome


def judge(world: World, forms: tuple[str, ...]) -> Row:
    """All figures of one world, as JSON takes them."""
    began = time.perf_counter()
    best = search(world)
    asked = ask(world, best)
    oracle = asked.oracle
    never = best.constants[0]
    constant = max(best.constants, key=lambda run: run.speed)
    row: Row = {
        "world": world.name,
        **world.traits,
        "batch": round(float(never.minutes[:, at.M_BATCH].sum() / max(never.minutes[:, at.M_STEPS].sum(), 1.0)), 1),
        "oracle": round(oracle.speed, 3),
        "off": regret(never, oracle),
        "constant": regret(constant, oracle),
        "constant_k": best.constants.index(constant),
        "constant_unsafe": unsafe(world, constant, never),
        "oracle_unsafe": unsafe(world, oracle, never),
        "target": asked.target,
        "reachable": asked.reachable,
        "oracle_p99": oracle.p99(asked.of),
        "laws": {},
    }
    searched = time.perf_counter()
    for form in forms:
        row["laws"][form] = _law_row(world, best, asked, form)
    row["seconds"] = [round(searched - began, 1), round(time.perf_counter() - searched, 1)]
    return row


def ask(world: World, best: Best) -> Asked:
    """Make the wish a figure, and find the oracle under it."""
    wish, of = world.wish, world.wish.of
    fastest = best.fastest()
    assert fastest is not None
    if wish.kind == "none":
        return Asked(world.policy, of, None, True, fastest[1])
    measure = [run.p99(of) for run in best.constants if run.p99(of) > 0]
    base = fastest[1].p99(of) if wish.kind == "loose" else min(measure, default=1.0)
    target = round(base * wish.factor, 6)
    goal = world.policy.objective.goal
    objective = Objective(goal, target, None) if of == "tpot" else Objective(goal, None, target)
    under = best.fastest(lambda run: run.p99(of) <= target)
    oracle = under[1] if under is not None else fastest[1]
    return Asked(replace(world.policy, objective=objective), of, target, under is not None, oracle)


def regret(run: Outcome, oracle: Outcome) -> float:
    """Percent of the oracle's speed that was lost."""
    return round(100.0 * (1.0 - run.speed / oracle.speed), 2) if oracle.speed else 0.0


def _law_row(world: World, best: Best, asked: Asked, form: str) -> Row:
    if form in rivals.RIVALS:
        return law_row(world, best, asked, laws.Run(rivals.run(world, form), []), settles=False)
    return law_row(world, best, asked, laws.run(world, asked.policy, form, clock=time.perf_counter))


def law_row(world: World, best: Best, asked: Asked, done: laws.Run, settles: bool = True) -> Row:
    """Figures of one law's run; `settles`: whether it has a table whose way to the right K can be judged."""
    run = done.outcome
    hours = world.seconds / 3600.0
    p99 = run.p99(asked.of)
    row: Row = {
        "regret": regret(run, asked.oracle),
        "unsafe": unsafe(world, run, best.constants[0]),
        "cost": round(100.0 * run.cost, 3),
        "rest_cost": round(100.0 * done.quiet_cost, 3),
        "writes": round(run.writes / hours, 1),
        "changes": round(run.changes / hours, 1),
        "decide_ms": round(run.decide_ms, 2),
        "table": " ".join(f"{a}-{b}:{k}" for a, b, k in run.table),
        "p99": p99,
    }
    if asked.target is not None and asked.reachable:
        row["met"] = p99 <= 1.02 * asked.target
        if not row["met"]:
            # faster than the oracle because it did not do what was asked
            row["regret"] = max(row["regret"], 0.0)
    for change in world.changes if settles else ():
        row["settle"] = settling(change, world, best, done)
    return row


def settling(change: float, world: World, best: Best, done: laws.Run) -> float | None:
    """Seconds from a step change until the table's K at the load after it stays within 3 % of the best K's speed.

    None where hardly anything was served after it, or any K is near enough.
    """
    first = int(change / 60.0) + 1
    after = np.sum([run.minutes[first:] for run in best.constants], axis=0).sum(axis=0)
    if after[at.M_STEPS] < 100:
        return None
    batch = max(float(after[at.M_BATCH] / after[at.M_STEPS]), 1.0)
    speeds = [run.between(first, len(run.minutes)) for run in best.constants]
    good = {k for k, speed in enumerate(speeds) if speed >= (1.0 - NEAR) * max(speeds)}
    if len(good) == len(speeds):
        return None
    last = 0.0
    for place, (moment, table, _) in enumerate(done.decisions):
        ends = done.decisions[place + 1][0] if place + 1 < len(done.decisions) else world.seconds
        if ends > change and table.k_at(batch) not in good:
            last = max(last, min(ends, change + SETTLING) - change if moment < change + SETTLING else 0.0)
    return round(last, 1)
