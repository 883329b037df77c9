"""Whether the gain that the tuner reports is true: `python -m bench.tuner.gains --seed 771 --count 40` (two minutes).

Worlds run under the tuner and, with the same requests, without a speculator. The true gain is that of a request's speed
at the same number of scheduled requests, over all loads that both have met; it is held against the mean of what the
tuner reported, with its 80 % interval. One line a world; the last one is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speculative_lab.plant import draw
from speculative_lab.plant import law as laws
from speculative_lab.plant.oracle import load_totals, measured
from speculative_lab.plant.serving import constant
from speculative_lab.plant.steptime import OFF
from speculative_lab.plant.types import Floats
from speculative_lab.plant.world import World
from speculative_operator.domain.decision import Decision

STARTING = 180.0
"""Seconds in which the tuner may still know nothing."""
LEAST_SECONDS = 5.0
"""Request-seconds at a load below which its speed is chance."""
LEAST_SHARE = 0.3
"""Of the time, at loads that both runs have met."""
FEWEST = 5
"""Reports of a world that are enough to judge it."""


@dataclass(frozen=True, slots=True)
class Report:
    """The true gain and the reported one with its interval, as logarithms."""

    truth: float
    low: float
    mid: float
    high: float

    @property
    def holds_truth(self) -> bool:
        """Whether the interval holds the truth."""
        return self.low <= self.truth <= self.high

    def __str__(self) -> str:
        truth, low, mid, high = (100.0 * math.expm1(one) for one in (self.truth, self.low, self.mid, self.high))
        end = "" if self.holds_truth else ", outside"
        return f"true {truth:+.0f} %, reported {mid:+.0f} % [{low:+.0f}, {high:+.0f}]{end}"


def true_gain(run: Floats, none: Floats) -> float | None:
    """Log speed of `run` over `none`, each [tokens and request-seconds, load]; None where they met other loads."""
    both = (run[1] > LEAST_SECONDS) & (none[1] > LEAST_SECONDS) & (run[0] > 0) & (none[0] > 0)
    time = run[1] * both
    if time.sum() < LEAST_SHARE * run[1].sum():
        return None
    speeds = [np.log(np.where(both, side[0], 1.0) / np.where(both, side[1], 1.0)) for side in (run, none)]
    return float((speeds[0] - speeds[1]) @ time / time.sum())


def mean_gain(decisions: Sequence[tuple[float, Decision]]) -> tuple[float, ...] | None:
    """Means of low, mid and high of the reported gains, as logarithms; None of too few."""
    found = [one.estimate.gain_percent for moment, one in decisions if moment > STARTING and one.valid]
    gains = [[math.log1p(side / 100.0) for side in (one.low, one.mid, one.high)] for one in found if one is not None]
    return tuple(np.mean(gains, axis=0).tolist()) if len(gains) >= FEWEST else None


def report(world: World) -> Report | None:
    """The report of one world; None where it cannot be judged."""
    run = laws.run(world, world.policy, laws.PLUG_IN)
    truth = true_gain(load_totals(run.states), measured(world, constant(world, OFF))[1])
    gain = mean_gain(run.every)
    return None if truth is None or gain is None else Report(truth, *gain)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.tuner.gains", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--skip", action="store_true", help="pods leave the speculator out while K = 0 lasts")
    options = parser.parse_args(arguments)
    found = []
    for number in range(options.count):
        world = draw.world(options.seed, number, 60.0 * options.minutes)
        one = report(world.with_skip() if options.skip else world)
        print(f"{world.name} ({world.traits['method']}): {one or 'no load in common'}", file=sys.stderr, flush=True)
        found += [one] if one is not None else []
    if not found:
        print(json.dumps({"worlds": 0}))
        return 1
    errors = np.array([one.mid - one.truth for one in found])
    print(json.dumps({
        "worlds": len(found),
        "held_percent": round(100.0 * float(np.mean([one.holds_truth for one in found]))),
        "median_error_log": round(float(np.median(np.abs(errors))), 3),
        "mean_error_log": round(float(np.mean(errors)), 3),
        "root_mean_square_log": round(float(np.sqrt(np.mean(errors**2))), 3),
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
