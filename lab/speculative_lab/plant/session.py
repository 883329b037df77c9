"""Turns scrapes of all pods into decisions, for the accelerator kit and the tests of the tuner.

The reading, the hold on gaps and the decision are those of the operator (`engine.read`, `tuner.decide`); only the
Prometheus server between pods and operator is replaced by a short memory of scrapes.

    exposition text -> samples -> ring of each pod -> engine.read -> Observation -> decide -> active table
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from speculative_operator.domain.decision import Decision, Policy, State
from speculative_operator.domain.observation import Gap, Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable, Trial
from speculative_operator.engines.base import Engine
from speculative_operator.engines.exposition import Exposition, ExpositionError, SeriesKey
from speculative_operator.engines.ring import Ring
from speculative_operator.tuner import Memory, decide, initial_table, initial_trials
from speculative_operator.tuner.allowed import fit, fit_trials, lawful

SHORTEST_WINDOW = 3.5
"""seconds: with scrapes every second a decision waits for four of them, else most windows would hold too few steps."""
SAME_SCRAPE = 0.5
"""seconds: a scrape that follows sooner is a repetition."""
STALE_AFTER = 30.0
"""seconds, as the operator's default; all pods of a scrape carry its time, so only a pod that fails grows old."""
CLOCK_STEP = 300.0
CLOCK_SCRAPES = 3
"""So many scrapes in a row, each later than the last but this many seconds behind the newest one, are a clock that
was set back; fewer are late arrivals."""
LATEST_TIME = 1e11
"""unix seconds: beyond the year 5000, or milliseconds."""

Scrape = str | Mapping[SeriesKey, float] | None
"""The exposition of one pod, or its parsed samples; None when the scrape failed."""


class Session:
    """A tuning session of one object. `table` is the active table: the first one, then that of each lawful decision."""

    def __init__(
        self, engine: Engine, policy: Policy, memory: Memory | None = None, *, acknowledged: bool = False
    ) -> None:
        """`acknowledged`: pods are told each table with its `version`, and their scrapes say which one they run."""
        self.memory = memory
        self.version = 1
        """Version of `table` and `trials`; grows by one with each change."""
        self.trials: tuple[Trial, ...] = () if memory is not None else initial_trials(policy)
        """Trials that pods may run while `table` is active, where their plug-in can."""
        self._acknowledged = acknowledged
        self.table: KTable = fit(memory.table, policy) if memory is not None else initial_table(policy)
        self._engine = engine
        self._policy = policy
        self._exposition = Exposition(engine.metric_names)
        self._rings: dict[str, Ring] = {}
        self._newest: float | None = None
        self._decided: float | None = None
        self._behind: list[float] = []
        self._last = self._holding(Reason.STARTING, "no scrape was seen yet")

    def feed(self, time: float, pods: Mapping[str, Scrape]) -> Decision:
        """The decision after a scrape of every ready pod at unix time `time`.

        Between windows, and for a repeated scrape, the last decision stands, with `changed` False. A scrape older
        than one already seen changes nothing. Never raises for what was scraped.
        """
        if not 0 <= time < LATEST_TIME:
            return self._holding(Reason.METRICS_ABSURD, f"the scrape says {time:g}, which is no unix time in seconds")
        if self._newest is not None and time < self._newest and not self._clock_was_set_back(time):
            return self._holding(Reason.METRICS_STALE, f"the scrape is {self._newest - time:g} s older than the last")
        if self._newest is not None and time - self._newest < SAME_SCRAPE:
            return self._repeat()
        self._newest, self._behind = time, []
        gaps = self._take(time, pods)
        if self._decided is not None and time - self._decided < SHORTEST_WINDOW:
            return self._repeat()
        self._decided = time
        version = self.version if self._acknowledged else None
        observation = Observation(time, {**self._read(time, set(pods) - set(gaps)), **gaps}, table_version=version)
        self._last = self._decide_on_mix(observation) or self._decide(observation)
        return self._last

    def _clock_was_set_back(self, time: float) -> bool:
        """True for the last of CLOCK_SCRAPES in the past: then all scrapes are forgotten, but not the memory."""
        if self._newest is None or time > self._newest - CLOCK_STEP:
            return False
        if self._behind and time <= self._behind[-1]:
            self._behind = []
        self._behind.append(time)
        if len(self._behind) < CLOCK_SCRAPES:
            return False
        self._rings.clear()
        self._newest = self._decided = None
        return True

    def _take(self, time: float, pods: Mapping[str, Scrape]) -> dict[str, Gap]:
        """Keeps the scrapes of `pods`; returns a gap for each pod whose scrape holds no metric or cannot be parsed."""
        self._rings = {pod: ring for pod, ring in self._rings.items() if pod in pods}
        gaps = {}
        for pod, scrape in pods.items():
            try:
                values = scrape if isinstance(scrape, Mapping) else self._exposition.parse(scrape or "")
            except ExpositionError as problem:
                gaps[pod] = Gap(Reason.METRICS_ABSURD, str(problem))
                continue
            if values:
                self._rings.setdefault(pod, Ring(pod)).add(time, values)
            else:
                gaps[pod] = Gap(Reason.METRICS_MISSING, "the scrape holds no metric of the engine")
        return gaps

    def _read(self, time: float, pods: set[str]) -> dict[str, PodWindow | Gap]:
        rings = {pod: self._rings[pod] for pod in sorted(pods)}
        since = {pod: ring.since for pod, ring in rings.items() if ring.since is not None}
        series = [track for ring in rings.values() for track in ring.series()]
        results = self._engine.read(series, list(rings), since, time, STALE_AFTER)
        for pod, ring in rings.items():
            ring.settle(results[pod])
        return results

    def _decide_on_mix(self, observation: Observation) -> Decision | None:
        """The decision to hold during a rollout, while pods with and without a speculator serve side by side; else
        None."""
        busy = [window for window in observation.windows.values() if window.steps > 0]
        if len({window.drafts is None for window in busy}) < 2:
            return None
        return self._holding(Reason.ROLLING_OUT, "some pods run with a speculator, some without")

    def _decide(self, observation: Observation) -> Decision:
        memory = self.memory or replace(Memory.fresh(self.table, observation.time), trials=self.trials)
        memory, decision = decide(memory, observation, self._policy, observation.time)
        if self._policy.mode in (Mode.AUTO, Mode.STATIC):
            self._carry_out(decision, lawful(decision, observation, self._policy))
        held = (memory.table, memory.trials) == (self.table, self.trials)
        self.memory = memory if held else replace(memory, table=self.table, trials=self.trials)
        return decision

    def _carry_out(self, decision: Decision, allowed: bool) -> None:
        """Activates the table of `decision` where `allowed`, and its trials where they are for the active table."""
        table = decision.table if allowed else self.table
        taken = decision.valid and table == decision.table
        trials = fit_trials(decision.trials, table, self._policy) if taken else self.trials
        if (table, trials) != (self.table, self.trials):
            self.table, self.trials, self.version = table, trials, self.version + 1

    def _repeat(self) -> Decision:
        return replace(self._last, changed=False)

    def _holding(self, reason: Reason, message: str) -> Decision:
        text = f"{message}; the table stays as it is"
        return Decision(State.HOLDING, self.table, reason, text, valid=False, changed=False)
