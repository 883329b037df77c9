"""Do the figures that act on a gain do harm? `python -m bench.tuner.harm --seed 771 --count 40` (ten minutes).

Alert: random worlds of many requests serve a constant K of 5 (`mode: Static`); the alert for slower objects must fire
where that is slower than no speculator, and stay silent where it is faster. Remove: random worlds of half an hour under
`offPolicy: Remove`, whose removals are held against the same requests served on with the speculator and without. One
line a world; the last one is JSON. Status 1 where a useful speculator was removed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench.tuner.gains import totals, true_gain, without_speculator
from speculative_lab.plant import draw
from speculative_lab.plant import law as laws
from speculative_lab.plant.world import World
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import Mode, OffPolicy

CONSTANT_K = 5
MANY = 24.0
"""Requests at once from which a load is high."""
SLOWER, ALERT = 0.05, -5.0
"""Log speed from which a constant K is clearly slower or faster; per cent of the gain below which the alert fires."""
LASTING = 0.9
"""Share of the decisions after which an alert that must last for 15 minutes fires."""


def serve(world: World, policy: Policy) -> tuple[laws.Run, float | None]:
    """A run under `policy`, and its true gain over pods without a speculator."""
    run = laws.run(world, policy, laws.PLUG_IN)
    return run, true_gain(totals(world, run.states, run.early), without_speculator(world))


def alert(world: World) -> tuple[float, bool] | None:
    """The true gain of the constant K and whether the alert fires; None where nothing can be judged."""
    run, truth = serve(world, replace(world.policy, mode=Mode.STATIC, start_k=CONSTANT_K))
    gains = [one.estimate.gain_percent for moment, one in run.every if moment > laws.STARTING]
    mids = [one.mid for one in gains if one is not None]
    return None if truth is None or not mids else (truth, float(np.mean(np.array(mids) < ALERT)) >= LASTING)


def removal(world: World) -> float | None:
    """The true gain of the speculator that was removed; None where none was."""
    policy = replace(world.policy, off_policy=OffPolicy.REMOVE)
    if not any(one.removed for _, one in laws.run(world, policy, laws.PLUG_IN).every):
        return None
    return serve(world, replace(policy, off_policy=OffPolicy.KEEP_RUNNING))[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge many random worlds."""
    parser = argparse.ArgumentParser(prog="bench.tuner.harm", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    options = parser.parse_args(arguments)
    alerts, removals = [], []
    for number in range(options.count):
        world = draw.world(options.seed, number, 1800.0)
        told = "none removed"
        if (gain := removal(world)) is not None:
            removals.append(gain)
            told = f"removed, true gain {gain:+.3f}"
        if float(str(world.traits["concurrent"])) >= MANY and CONSTANT_K in world.policy.knobs.ks:
            found = alert(world)
            alerts += [found] if found is not None else []
            told += f"; K = {CONSTANT_K}: {found}"
        print(f"{world.name} ({world.traits['method']}): {told}", file=sys.stderr, flush=True)
    slow = [fired for truth, fired in alerts if truth < -SLOWER]
    fast = [fired for truth, fired in alerts if truth > SLOWER]
    useful = sum(gain > 0.0 for gain in removals)
    print(json.dumps({
        "worlds": options.count, "removed": len(removals), "removed_useful": useful,
        "slower": len(slow), "fired": sum(slow), "faster": len(fast), "fired_wrongly": sum(fast),
    }))  # fmt: skip
    return 1 if useful else 0


if __name__ == "__main__":
    sys.exit(main())
