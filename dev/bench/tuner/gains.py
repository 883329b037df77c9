"""Whether the gain that the tuner reports is true: `python -m bench.tuner.gains --seed 771 --count 40` (three minutes).

Worlds run under the tuner and, with the same requests, in pods without a speculator. The true gain is that of a
request's speed at the same number of scheduled requests, over all loads that both have met; it is held against the mean
of what the tuner reported, with its 80 % interval, weighted by the time of all requests. Both begin after STARTING (see
`law`). One line a world; the last one is JSON, with measured and estimated gains apart.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from bench.tuner.unguessable_draw import plain
from speculative_lab.plant import draw
from speculative_lab.plant import law as laws
from speculative_lab.plant import layout as at
from speculative_lab.plant.serving import constant, fresh, until
from speculative_lab.plant.types import Floats, State
from speculative_lab.plant.world import World
from speculative_operator.domain.decision import Basis, Decision

LEAST_SECONDS = 5.0
"""Request-seconds at a load below which its speed is chance."""
LEAST_SHARE = 0.3
"""Of the time, at loads that both runs have met."""
ALIKE = 0.4
"""Octaves by which mean loads that count as the same may differ."""
FEWEST = 5
"""Reports of a world that are enough to judge it."""


@dataclass(frozen=True, slots=True)
class Report:
    """The true gain and the reported one with its interval, as logarithms, and what most reports rest on."""

    truth: float
    low: float
    mid: float
    high: float
    basis: Basis

    @property
    def holds_truth(self) -> bool:
        """Whether the interval holds the truth."""
        return self.low <= self.truth <= self.high

    def __str__(self) -> str:
        truth, low, mid, high = (100.0 * math.expm1(one) for one in (self.truth, self.low, self.mid, self.high))
        end = "" if self.holds_truth else ", outside"
        return f"true {truth:+.0f} %, {self.basis.value.lower()} {mid:+.0f} % [{low:+.0f}, {high:+.0f}]{end}"


def true_gain(run: Floats, none: Floats) -> float | None:
    """Log speed of `run` over `none`, each [tokens, request-seconds and mean load, by load], at those of `run`; None
    where they met other loads."""
    both = (run[1] > LEAST_SECONDS) & (none[1] > LEAST_SECONDS) & (run[0] > 0) & (none[0] > 0)
    both &= np.abs(np.log2(np.maximum(run[2], 1.0) / np.maximum(none[2], 1.0))) < ALIKE
    if run[1] @ both < LEAST_SHARE * run[1].sum():
        return None
    (faster, time, loads), (slower, seconds, others) = run[:, both], none[:, both]
    plain = np.interp(np.log(loads), np.log(others), np.log(slower / seconds))
    return float((np.log(faster / time) - plain) @ time / time.sum())


def totals(world: World, states: Sequence[State], early: Sequence[Floats]) -> Floats:
    """Tokens, request-seconds and mean load of replicas, by load, after STARTING: a replica that was away counts from
    then on."""
    rows = zip(world.replicas, states, early, strict=True)
    cells = [state.cells - (cells if replica.restart is None else 0.0) for replica, state, cells in rows]
    found = np.sum(cells, axis=(0, 1))
    loads = found[:, at.C_REQUESTS] / np.maximum(found[:, at.C_STEPS], 1.0)
    return np.stack([found[:, at.C_TOKENS], found[:, at.C_SECONDS] * loads, loads])


def without_speculator(world: World) -> Floats:
    """The totals of pods without a speculator."""
    replicas = [plain(replica) for replica in world.replicas]
    states = [fresh(replica, world.top_k, world.seconds) for replica in replicas]
    early: list[Floats] = []
    for moment in (laws.STARTING, world.seconds):
        for replica, state in zip(replicas, states, strict=True):
            until(state, replica, constant(world, 0), moment)
        early = early or [state.cells.copy() for state in states]
    return totals(world, states, early)


def reported(decisions: Sequence[tuple[float, Decision]], truth: float) -> Report | None:
    """The mean of the reported gains beside the true one; None of too few."""
    told = [one.estimate for moment, one in decisions if moment > laws.STARTING and one.valid]
    rows = [
        (one.tokens_per_second * one.tpot_seconds, one.gain_basis is Basis.MEASURED, *map(_log, astuple(gain)))
        for one in told
        if (gain := one.gain_percent) is not None and one.tokens_per_second and one.tpot_seconds
    ]
    if len(rows) < FEWEST:
        return None
    time, measured, *ends = np.array(rows, dtype=float).T
    low, mid, high = (float(time @ end / time.sum()) for end in ends)
    return Report(truth, low, mid, high, Basis.MEASURED if time @ measured > time.sum() / 2.0 else Basis.ESTIMATED)


def _log(percent: float) -> float:
    return math.log1p(max(percent, -99.9) / 100.0)


def report(world: World, form: str) -> Report | None:
    """The report of one world; None where it cannot be judged."""
    run = laws.run(world, world.policy, form)
    truth = true_gain(totals(world, run.states, run.early), without_speculator(world))
    return None if truth is None else reported(run.every, truth)


def summary(found: Sequence[Report]) -> dict[str, float]:
    """Figures of the reports of one basis."""
    errors = np.array([one.mid - one.truth for one in found])
    return {
        "worlds": len(found),
        "held_percent": round(100.0 * float(np.mean([one.holds_truth for one in found]))),
        "median_error_log": round(float(np.median(np.abs(errors))), 3),
        "mean_error_log": round(float(np.mean(errors)), 3),
        "root_mean_square_log": round(float(np.sqrt(np.mean(errors**2))), 3),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.tuner.gains", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--skip", action="store_true", help="pods leave the speculator out while K = 0 lasts")
    parser.add_argument("--form", choices=(laws.PLUG_IN, laws.COUNTERS), default=laws.PLUG_IN, help="what pods tell")
    options = parser.parse_args(arguments)
    found = []
    for number in range(options.count):
        world = draw.world(options.seed, number, 60.0 * options.minutes)
        one = report(world.with_skip() if options.skip else world, options.form)
        print(f"{world.name} ({world.traits['method']}): {one or 'no load in common'}", file=sys.stderr, flush=True)
        found += [one] if one is not None else []
    apart = {basis.value.lower(): [one for one in found if one.basis is basis] for basis in Basis}
    print(json.dumps({name: summary(some) for name, some in apart.items() if some}))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
