"""What a second axis of the table, by mean context, could win: the best table with it against the best without.

python -m worlds.axis --seed 5 --count 60
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np

from worlds import layout as at
from worlds.draw import world
from worlds.oracle import BANDS, search, spread
from worlds.serving import constant, fresh, until, with_table
from worlds.types import Floats, Ints
from worlds.world import World

LEAST_SECONDS = 20.0
"""Request-seconds of a cell at each of the K compared, below which the row's K stays."""
GAINS = (0.005, 0.02)
"""Least advantages at which a cell leaves its row's K: the better of the two tables counts."""


def by_context(world: World) -> Floats:
    """Tokens and request-seconds by (K run, size, context) under each constant K."""
    found = []
    for k in world.policy.knobs.ks:
        total = np.zeros((at.SIZES, at.CONTEXT_BINS, 2))
        for replica in world.replicas:
            state = fresh(replica, world.top_k, world.seconds)
            until(state, replica, constant(world, k), world.seconds)
            total += state.contexts.sum(axis=0)
        found.append(total)
    return np.array(found)


def with_contexts(world: World, table: Ints, cells: Floats, gain: float) -> Ints:
    """`table` with another K wherever a cell of (requests, context) was faster by `gain` at it."""
    most = world.policy.knobs.max_batch
    columns = []
    rows = [int(table[min(first, most), 0]) for first in BANDS]
    for context in range(at.CONTEXT_BINS):
        ks = []
        for band, k in enumerate(rows):
            tokens, seconds = cells[:, band, context, 0], cells[:, band, context, 1]
            speeds = np.where(seconds >= LEAST_SECONDS, tokens / np.maximum(seconds, 1e-9), 0.0)
            best = int(np.argmax(speeds))
            ks.append(best if speeds[k] > 0 and speeds[best] > (1 + gain) * speeds[k] else k)
        columns.append(spread(np.array(ks), most)[:, 0])
    return np.stack(columns, axis=1)


def gain_of(drawn: World) -> float:
    """Percent of speed that the best table with contexts wins over the best without."""
    best = search(drawn).fastest()
    assert best is not None
    table, run = best
    cells = by_context(drawn)
    speeds = [with_table(drawn, with_contexts(drawn, table, cells, gain)).speed for gain in GAINS]
    return round(100.0 * (max(*speeds, run.speed) / run.speed - 1.0), 3)


def main() -> int:
    """Measure many random worlds."""
    parser = argparse.ArgumentParser(prog="worlds.axis", description=__doc__)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=15.0)
    given = parser.parse_args()
    gains = []
    for number in range(given.count):
        gains.append(gain_of(world(given.seed, number, 60.0 * given.minutes)))
        print(f"\r{number + 1} of {given.count}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    mean, median, high = float(np.mean(gains)), float(np.median(gains)), float(np.quantile(gains, 0.95))
    found = {"mean": mean, "median": median, "p95": high, "most": max(gains)}
    print(json.dumps({"seed": given.seed, "worlds": len(gains), **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
