"""Turns scrapes of pods into decisions, for the accelerator kit and tests: an operator without a cluster.

The reading and the decision are those of the operator (`engine.read`, `tuner.decide`); only the Prometheus server
between pods and operator is replaced by a short memory of scrapes.

    exposition text -> samples -> ring of each pod -> engine.read -> Observation -> decide -> active table
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from speculative_lab.plant.ring import Ring
from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.table import KTable, Trial
from speculative_operator.engines.base import Engine
from speculative_operator.engines.exposition import parse
from speculative_operator.tuner import Memory, decide, initial_table, initial_trials
from speculative_operator.tuner.allowed import fit_trials, lawful

STALE_AFTER = 30.0
"""seconds, as the operator's default; all pods of a scrape carry its time, so only a pod that fails grows old."""


class Session:
    """A tuning session of one object. `table` is the active table: the first one, then that of each lawful decision."""

    def __init__(self, engine: Engine, policy: Policy) -> None:
        self.table: KTable = initial_table(policy)
        self.trials: tuple[Trial, ...] = initial_trials(policy)
        """Trials that pods may run while `table` is active, where their plug-in can."""
        self.memory: Memory | None = None
        self._engine, self._policy = engine, policy
        self._names = frozenset(engine.metric_names)
        self._rings: dict[str, Ring] = {}

    def feed(self, time: float, pods: Mapping[str, str]) -> Decision:
        """The decision after a scrape of every ready pod at unix time `time`, at least 3.5 s after the one before."""
        for pod, text in pods.items():
            self._rings.setdefault(pod, Ring(pod)).add(time, parse(text, self._names))
        since = {pod: ring.since for pod, ring in self._rings.items() if ring.since is not None}
        series = [track for ring in self._rings.values() for track in ring.series()]
        found = self._engine.read(series, list(self._rings), since, time, STALE_AFTER)
        for pod, ring in self._rings.items():
            ring.settle(found[pod])
        return self._decide(Observation(time, found))

    def _decide(self, observation: Observation) -> Decision:
        memory = self.memory or replace(Memory.fresh(self.table, observation.time), trials=self.trials)
        memory, decision = decide(memory, observation, self._policy, observation.time)
        if lawful(decision, observation, self._policy):
            self.table = decision.table
        if decision.valid and decision.table == self.table:
            self.trials = fit_trials(decision.trials, self.table, self._policy)
        self.memory = replace(memory, table=self.table, trials=self.trials)
        return decision
