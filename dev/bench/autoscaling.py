"""`python -m bench.autoscaling`: an autoscaler of replicas beside the tuner, and beside each fixed K, over an hour of a
recorded load on the plant. The last line is one JSON object.

The object is examples/autoscaling/object.yaml, the autoscaler that folder's ScaledObject, the load the Azure trace with
each request `--times` times within half a minute, which keeps the shape of its hour.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from speculative_lab.cli import simulate
from speculative_lab.plant import law
from speculative_lab.plant import layout as at
from speculative_lab.plant.given import Given, world_of
from speculative_lab.plant.law import Pod, Tuner
from speculative_lab.plant.serving import Outcome, outcome
from speculative_lab.plant.traces import Trace
from speculative_lab.plant.types import State
from speculative_operator.cli import terminal
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable

ROOT = Path(__file__).resolve().parents[2]
OBJECT = ROOT / "examples" / "autoscaling" / "object.yaml"
TRACE = ROOT / "dev" / "data" / "traces" / "azure_llm_2023_conv.csv"
MOST = 8
SPREAD = 30.0
"""Seconds within which the copies of a request arrive."""
START = 150.0
"""Seconds until a new pod serves."""
WARM_UP = 300.0
"""Seconds at the start whose changes of replicas are not counted: the autoscaler finds its way from one replica."""
SYNC = 15.0
"""Seconds between two looks of an HPA, its default."""
TOLERANCE = 0.1
"""Of an HPA: nearer to its target it changes nothing."""
UP, DOWN = 60.0, 600.0
"""Seconds that the least, or the most, replicas wanted are believed: `stabilizationWindowSeconds`."""
DOWN_PAUSE = 120.0
"""One replica goes in so many seconds."""
LOOK_BACK, UNKNOWN_LOAD, THRESHOLD = 600.0, 32.0, 0.8
"""Of the ScaledObject's query: `max_over_time`, the load where none is told, and `threshold`."""
HEADERS = ("policy", "changes", "replica hours", "tokens/s per request", "TPOT p99, ms")


@dataclass
class Autoscaler:
    """What a HorizontalPodAutoscaler makes of requests and the load per replica. Times in simulated seconds."""

    least: int = 1
    most: int = MOST
    replicas: int = 1
    changes: list[tuple[float, int]] = field(default_factory=list)
    """When replicas changed, and to how many."""

    def __post_init__(self) -> None:
        self._loads: deque[tuple[float, float]] = deque()
        self._wanted: deque[tuple[float, int]] = deque()
        self._went = -math.inf

    def look(self, now: float, requests: float, load: float | None) -> int:
        """Replicas from now on. `load`: within the target, per replica; None where none is told."""
        if load is not None:
            self._loads.append((now, load))
        _forget(self._loads, now - LOOK_BACK)
        each = THRESHOLD * max((one for _, one in self._loads), default=UNKNOWN_LOAD)
        near = abs(requests / (each * self.replicas) - 1.0) <= TOLERANCE
        wanted = self.replicas if near else math.ceil(requests / each)
        self._wanted.append((now, min(max(wanted, self.least), self.most)))
        _forget(self._wanted, now - DOWN)
        up = min(one for moment, one in self._wanted if moment > now - UP)
        down = max(one for _, one in self._wanted)
        if up > self.replicas:
            self._change(now, up)
        elif down < self.replicas and now - self._went >= DOWN_PAUSE:
            self._went = now
            self._change(now, self.replicas - 1)
        return self.replicas

    def _change(self, now: float, replicas: int) -> None:
        self.replicas = replicas
        self.changes.append((now, replicas))


def _forget(held: deque[tuple[float, float]] | deque[tuple[float, int]], before: float) -> None:
    while held and held[0][0] <= before:
        held.popleft()


class Fleet:
    """Pods that come and go. A request goes to the pod with the fewest; one that goes serves what it has."""

    def __init__(self, given: Given, tuner: Tuner) -> None:
        self._world = world_of(replace(given, policy=tuner.policy, replicas=1))
        whole = self._world.replicas[0]
        self._rows = whole.requests
        self._blank = replace(whole, requests=np.zeros_like(whole.requests), opened=0)
        self._tuner = tuner
        self._next, self._born = 0, 0
        self.pods: list[Pod] = []
        self._since: dict[str, float] = {}
        self._coming: list[float] = []
        self._leaving: list[Pod] = []
        self._states: list[State] = []

    def scale(self, count: int, moment: float, start: float = START) -> None:
        """Have so many pods, those that come included."""
        while len(self.pods) + len(self._coming) < count:
            self._coming.append(moment + start)
        while len(self.pods) + len(self._coming) > count:
            if self._coming:
                self._coming.pop()
            else:
                self._leaving.append(self.pods.pop())

    def serve(self, moment: float) -> None:
        """Serve a second that ends at that moment."""
        for ready in [one for one in self._coming if one <= moment - 1.0]:
            self._coming.remove(ready)
            self._born += 1
            pod = law.pod_of(
                f"pod-{self._born}", self._blank, self._world, self._tuner.order, law.PLUG_IN, moment - 1.0
            )
            self.pods.append(pod)
            self._states.append(pod.state)
            self._since[f"{pod.name}-{pod.generation}"] = moment
        while self.pods and self._next < len(self._rows) and self._rows[self._next, at.ARRIVE] < moment:
            pod = min(self.pods, key=present)
            pod.state.req[pod.replica.opened] = self._rows[self._next]
            pod.replica = replace(pod.replica, opened=pod.replica.opened + 1)
            self._next += 1
        for pod in [*self.pods, *self._leaving]:
            law.serve(pod, moment)
        self._leaving = [pod for pod in self._leaving if present(pod) > 0]

    def newcomers(self, moment: float) -> frozenset[str]:
        """Pods that became ready a moment ago."""
        return frozenset(name for name, since in self._since.items() if moment - since < 3 * law.TICK)

    @property
    def requests(self) -> float:
        """Requests that are there."""
        return sum(map(present, self.pods))

    def outcome(self) -> Outcome:
        """What all pods that ever were have served."""
        return outcome(self._world, self._states)


def present(pod: Pod) -> float:
    """Requests that a pod has, those that it will take up at once included."""
    now = pod.state.now
    return float(now[at.RUNNING] + now[at.TAIL] - now[at.HEAD] + pod.replica.opened - now[at.OPEN])


@dataclass(frozen=True)
class Figures:
    """Of one policy's run."""

    name: str
    changes: int
    """Of replicas, after WARM_UP."""
    replica_hours: float
    speed: float
    """Output tokens per second that a request was there."""
    tpot_p99: float


def described(seconds: str, times: int, seed: int) -> Given:
    """The deployment with its load."""
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser)
    words = ["--spec", str(OBJECT), "--trace", str(TRACE), "--seconds", seconds, "--seed", str(seed)]
    given = simulate.described(parser.parse_args(words))
    trace, rng = given.trace.until(given.seconds), np.random.default_rng([seed, 11])
    arrival = np.repeat(trace.arrival, times) + rng.uniform(0.0, SPREAD, times * len(trace.arrival))
    order = np.argsort(arrival)
    rows = np.repeat(np.arange(len(trace.arrival)), times)[order]
    return replace(given, trace=Trace(arrival[order], trace.prompt[rows], trace.output[rows]))


def play(given: Given, k: int | None) -> Figures:
    """One run: tuned, or at a fixed K."""
    policy = replace(given.policy, trials=k is None)
    if k is not None:
        policy = replace(policy, mode=Mode.STATIC, schedule=KTable.constant(k, policy.knobs.max_batch))
    tuner, autoscaler = Tuner(policy, law.PLUG_IN), Autoscaler()
    fleet, hours, load = Fleet(given, tuner), 0.0, None
    fleet.scale(1, 0.0, start=0.0)
    for second in range(1, int(given.seconds) + 1):
        moment = float(second)
        fleet.serve(moment)
        if moment % law.TICK == 0:
            decision = tuner.look(fleet.pods, (2.0, 4.0, 3.0), moment, fleet.newcomers(moment))
            load = decision.estimate.load_within_target
        if moment % SYNC == 0:
            fleet.scale(autoscaler.look(moment, fleet.requests, load), moment)
        hours += autoscaler.replicas / 3600.0
    run = fleet.outcome()
    changes = sum(moment > WARM_UP for moment, _ in autoscaler.changes)
    return Figures("tuned" if k is None else f"K = {k}", changes, hours, run.speed, 1e3 * run.p99("tpot"))


def judged(figures: Sequence[Figures]) -> dict[str, Any]:
    """The comparison with the fixed K that served fastest. The loops disturb each other where replicas change more
    often than beside every fixed K."""
    tuned, *others = figures
    best = max(others, key=lambda one: one.speed)
    return {
        "changes": tuned.changes,
        "changes_at_fixed_k": [one.changes for one in others],
        "best_fixed": best.name,
        "speed_over_best_fixed": round(tuned.speed / best.speed, 3),
        "replica_hours_over_best_fixed": round(tuned.replica_hours / best.replica_hours, 3),
        "ok": tuned.changes <= max(one.changes for one in others),
    }


def main() -> int:
    """Print the table and the comparison; 1 where the two loops disturb each other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", default="58m", help="length of the load; default 58m, which is all of it")
    parser.add_argument("--times", type=int, default=2, help="how often each request comes; default 2")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    given = described(options.seconds, options.times, options.seed)
    figures = [play(given, k) for k in (None, *given.policy.knobs.ks)]
    rows = [
        [one.name, str(one.changes), f"{one.replica_hours:.2f}", f"{one.speed:.1f}", f"{one.tpot_p99:.1f}"]
        for one in figures
    ]
    terminal.write_table(sys.stdout, HEADERS, rows, frozenset(range(1, len(HEADERS))))
    verdict = judged(figures)
    sys.stdout.write(json.dumps(verdict) + "\n")
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
