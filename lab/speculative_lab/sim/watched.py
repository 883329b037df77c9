"""What users and Prometheus would have seen of a simulated run: the course of load, K and latency. Used by the command.

`experiment` scores by the truth alone; a controller wrapped in `Watched` also leaves behind what a report draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from speculative_lab.sim.policies.base import Controller
from speculative_lab.sim.surface import first_accepted
from speculative_operator.domain.observation import PodWindow
from speculative_operator.engines.base import Engine
from speculative_operator.engines.exposition import Exposition
from speculative_operator.engines.ring import Ring

if TYPE_CHECKING:
    from speculative_lab.sim.deployment import Deployment

Array = NDArray[np.float64]

EVERY = 5.0
"""Simulated seconds between two looks."""
_EARLY = 1e-6


@dataclass(frozen=True, slots=True)
class Sight:
    """One look: means over the seconds since the last one and over replicas. None: nothing ran, or was drafted."""

    at: float
    """Simulated seconds."""
    requests: float
    """Running and waiting, of all replicas."""
    batch: float
    """Decoding requests of a replica."""
    k: float | None
    """Drafted tokens per request and step."""
    tpot: float | None
    """Seconds per output token."""
    accepted: float | None
    """Chance that the first draft of a step was accepted."""


class Watched:
    """A controller as it is, and what was seen of its run."""

    def __init__(self, controller: Controller, engine: Engine) -> None:
        self.name, self.journal = controller.name, controller.journal
        self.interval = min(controller.interval, EVERY)
        self.sights: list[Sight] = []
        self._controller, self._engine = controller, engine
        self._exposition = Exposition(engine.metric_names)
        self._rings: dict[str, Ring] = {}
        self._act_at = self._look_at = 0.0
        self._tpot: list[Array] = []
        self._ttft: list[Array] = []

    def act(self, deployment: Deployment) -> None:
        """Look at what was, then let the controller act if its time has come."""
        now = deployment.now + _EARLY
        if now >= self._look_at:
            self._look_at += EVERY
            self._look(deployment)
        if now >= self._act_at:
            self._act_at += self._controller.interval
            self._controller.act(deployment)

    @property
    def tpot(self) -> Array:
        """Seconds per output token after the first, of each request that ended."""
        found = np.concatenate([np.zeros(0), *self._tpot])
        return np.asarray(found[np.isfinite(found)])

    @property
    def ttft(self) -> Array:
        """Seconds to the first token, of each request that ended."""
        return np.concatenate([np.zeros(0), *self._ttft])

    def _look(self, deployment: Deployment) -> None:
        now, texts = deployment.now, deployment.exposition()
        self._rings = {pod: self._rings.get(pod) or Ring(pod) for pod in texts}
        for pod, text in texts.items():
            self._rings[pod].add(now, self._exposition.parse(text))
        since = {pod: ring.since for pod, ring in self._rings.items() if ring.since is not None}
        series = [track for ring in self._rings.values() for track in ring.series()]
        results = self._engine.read(series, list(texts), since, now, EVERY)
        for pod, ring in self._rings.items():
            ring.settle(results[pod])
        windows = [result for result in results.values() if isinstance(result, PodWindow)]
        if windows:
            self.sights.append(_sight(now, windows))
        self._ended(deployment)

    def _ended(self, deployment: Deployment) -> None:
        totals = deployment.totals()
        self._tpot.append(totals.tpot)
        self._ttft.append(totals.ttft)


def _sight(now: float, windows: list[PodWindow]) -> Sight:
    decoded = sum(window.decode_request_steps for window in windows)
    tokens = sum(window.generated_tokens - window.first_tokens for window in windows)
    drafted = sum(window.draft_tokens or 0.0 for window in windows)
    steps = sum(window.steps for window in windows)
    accepted = [(window.drafts or 0.0, share) for window in windows if (share := first_accepted(window)) is not None]
    return Sight(
        at=now,
        requests=sum(window.running + window.waiting for window in windows),
        batch=decoded / steps if steps else 0.0,
        k=drafted / decoded if decoded else None,
        tpot=sum(window.step_seconds for window in windows) / tokens if tokens > 0 else None,
        accepted=_mean(accepted),
    )


def _mean(weighted: Iterable[tuple[float, float]]) -> float | None:
    pairs = list(weighted)
    whole = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / whole if whole else None
