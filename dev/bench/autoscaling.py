"""`python -m bench.autoscaling`: an autoscaler of replicas beside the tuner, and beside each fixed K, over an hour of a
recorded load in the simulator. The last line is one JSON object.

The object is examples/autoscaling/object.yaml, the autoscaler that folder's ScaledObject (`sim.scaled`), the load the
Azure trace with each request `--times` times within half a minute, which keeps the shape of its hour.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.tuner.traces import ROOT
from speculative_lab.cli import arena, simulate
from speculative_lab.sim import experiment, score
from speculative_lab.sim.policies.ours import Ours
from speculative_lab.sim.scaled import Autoscaler, Scaled
from speculative_lab.sim.session import Session
from speculative_operator.cli import terminal
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable

OBJECT = ROOT / "examples" / "autoscaling" / "object.yaml"
TRACE = ROOT / "dev" / "data" / "traces" / "azure_llm_2023_conv.csv"
MOST = 8
SPREAD = 30.0
"""Seconds within which the copies of a request arrive."""
SETTLE = 90.0
"""Seconds after a change of replicas from which the tuner has seen the load that it brought."""
WARM_UP = 300.0
"""Seconds at the start whose changes of replicas are not counted: the autoscaler finds its way from one replica."""
HEADERS = ("policy", "changes", "replica hours", "tokens/s per request", "loss", "loss after changes")


@dataclass(frozen=True)
class Figures:
    """Of one policy's run."""

    name: str
    changes: int
    """Of replicas, after WARM_UP."""
    replica_hours: float
    speed: float
    """Output tokens per second that a request was there."""
    loss: float
    """Share of the tokens per second at the load of each moment that the best K there would have served more."""
    loss_after_changes: float
    """The same from SETTLE seconds after each change of replicas to the next one."""


def load(options: argparse.Namespace) -> arena.Arena:
    """The deployment with its load."""
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser)
    wanted = ["--spec", str(OBJECT), "--trace", str(TRACE), "--seconds", options.seconds, "--seed", str(options.seed)]
    found = arena.arena(parser.parse_args(wanted))
    rng, trace = np.random.default_rng([options.seed, 11]), found.workload
    if trace.arrival is None:
        raise ValueError("a trace is an open loop")
    arrival = np.repeat(trace.arrival, options.times) + rng.uniform(0.0, SPREAD, options.times * len(trace.arrival))
    order = np.argsort(arrival)
    rows = np.repeat(np.arange(len(trace.arrival)), options.times)[order]
    more = replace(
        trace, arrival=arrival[order], prompt=trace.prompt[rows], output=trace.output[rows], kind=trace.kind[rows]
    )
    return replace(found, workload=more, replicas=MOST)


def play(found: arena.Arena, k: int | None) -> Figures:
    """One run: tuned, or at a fixed K."""
    policy = replace(found.policy, trials=k is None)
    if k is not None:
        fixed = KTable.constant(k, policy.knobs.max_batch)
        policy = replace(policy, mode=Mode.STATIC, schedule=fixed)
    controller = Scaled(Ours(Session(found.engine, policy, acknowledged=True)), Autoscaler(most=found.replicas))
    run = experiment.run(
        found.plant, found.workload, controller, found.seconds, found.seed, replicas=found.replicas, telemetry=True
    )
    return Figures(
        name="tuned" if k is None else f"K = {k}",
        changes=sum(at > WARM_UP for at, _ in controller.autoscaler.changes),
        replica_hours=controller.replica_seconds / 3600.0,
        speed=score.speed(run),
        loss=controller.loss(WARM_UP),
        loss_after_changes=controller.loss_after_changes(SETTLE),
    )


def judged(figures: list[Figures]) -> dict[str, Any]:
    """The comparison with the fixed K that served fastest."""
    tuned, *others = figures
    best = max(others, key=lambda one: one.speed)
    return {
        "changes": tuned.changes,
        "changes_at_best_fixed_k": best.changes,
        "best_fixed": best.name,
        "speed_over_best_fixed": round(tuned.speed / best.speed, 3),
        "replica_hours_over_best_fixed": round(tuned.replica_hours / best.replica_hours, 3),
        "loss_after_changes": round(tuned.loss_after_changes, 4),
        "ok": tuned.changes <= best.changes and tuned.loss_after_changes <= 0.03,
    }


def main() -> int:
    """Print the table and the comparison; 1 where the two loops disturb each other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", default="60m", help="length of the load; default 60m, which is all of it")
    parser.add_argument("--times", type=int, default=5, help="how often each request comes; default 5")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = load(options)
    figures = [play(found, k) for k in (None, *found.plant.knobs.ks)]
    rows = [
        [one.name, str(one.changes), f"{one.replica_hours:.2f}", f"{one.speed:.1f}", f"{one.loss:.1%}",
         f"{one.loss_after_changes:.1%}"]
        for one in figures
    ]  # fmt: skip
    terminal.write_table(sys.stdout, HEADERS, rows, frozenset(range(1, len(HEADERS))))
    verdict = judged(figures)
    sys.stdout.write(json.dumps(verdict) + "\n")
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
