"""An autoscaler of replicas beside the tuner: the ScaledObject of examples/autoscaling, as KEDA and an HPA do it.

A controller wrapped in `Scaled` serves with as many replicas as the autoscaler wants, by the operator's two gauges:
requests, and the load within the target of TPOT. `dev/bench/autoscaling.py` prints figures, tests hold them.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from speculative_lab.sim.oracle import goodput, present_share, true_lengths, typical_context, typical_prompts
from speculative_lab.sim.policies.ours import Ours

if TYPE_CHECKING:
    from speculative_lab.sim.deployment import Deployment

SYNC = 15.0
"""Simulated seconds between two looks of an HPA, its default."""
TOLERANCE = 0.1
"""Of an HPA: nearer to its target it changes nothing."""
UP, DOWN = 60.0, 600.0
"""Simulated seconds that the least, or the most, replicas wanted are believed: `stabilizationWindowSeconds`."""
DOWN_PAUSE = 120.0
"""One replica goes in so many seconds."""
LOOK_BACK, UNKNOWN_LOAD, THRESHOLD = 600.0, 32.0, 0.8
"""Of the ScaledObject's query: `max_over_time`, the load where none is told, and `threshold`."""


@dataclass
class Autoscaler:
    """What a HorizontalPodAutoscaler makes of requests and the load per replica. Times in simulated seconds."""

    least: int = 1
    most: int = 8
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
        up = min(one for at, one in self._wanted if at > now - UP)
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


class Scaled:
    """The tuner, in whatever mode, with an autoscaler beside it. The deployment has the most replicas there may be."""

    def __init__(self, tuner: Ours, autoscaler: Autoscaler) -> None:
        self.name, self.interval, self.journal = tuner.name, tuner.interval, tuner.journal
        self.autoscaler = autoscaler
        self.losses: list[tuple[float, float, float]] = []
        """Simulated seconds, requests that run, and the share of the tokens per second at their load that another K
        would have served more; by the truth."""
        self.replica_seconds = 0.0
        self._tuner = tuner
        self._sync_at = 0.0

    def act(self, deployment: Deployment) -> None:
        now = deployment.now
        if now == 0.0:
            deployment.scale(self.autoscaler.replicas)
        self._tuner.act(deployment)
        decision = self._tuner.last
        if now >= self._sync_at and decision is not None:
            self._sync_at = now + SYNC
            requests = sum(sum(deployment.load(one)) for one in range(deployment.replicas))
            deployment.scale(self.autoscaler.look(now, requests, decision.estimate.load_within_target))
        self.replica_seconds += self.interval * self.autoscaler.replicas
        self._judge(deployment)

    def _judge(self, deployment: Deployment) -> None:
        loads = [deployment.load(one)[0] for one in deployment.pods().values()]
        if not any(loads):
            return
        plant, workload, now = deployment.plant, deployment.workload, deployment.now
        load = min(max(round(sum(loads) / len(loads)), 1), plant.knobs.max_batch)
        lengths = true_lengths(plant.knobs.ks, workload, now)
        speeds = goodput(
            plant, lengths, present_share(workload, now), typical_context(workload), typical_prompts(workload)
        )[load - 1]
        own = speeds[plant.knobs.ks.index(self._tuner.table.k_at(load))]
        self.losses.append((now, float(sum(loads)), float(1.0 - own / speeds.max())))

    def loss(self, since: float) -> float:
        """Mean of `losses` by requests, from `since` simulated seconds on."""
        return _mean([(weight, loss) for at, weight, loss in self.losses if at > since])

    def loss_after_changes(self, settle: float) -> float:
        """The same from `settle` seconds after each change of replicas to the next one."""
        moments = [at for at, _ in self.autoscaler.changes]
        last = [max((one for one in moments if one <= at), default=math.inf) for at, _, _ in self.losses]
        kept = zip(self.losses, last, strict=True)
        return _mean([(weight, loss) for (at, weight, loss), change in kept if at - change >= settle])


def _mean(weighted: list[tuple[float, float]]) -> float:
    whole = sum(weight for weight, _ in weighted)
    return sum(weight * value for weight, value in weighted) / whole if whole else math.nan
