"""Input and output of the tuner: `decide(memory, observation, policy, now) -> (memory, Decision)`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, Objective, OffPolicy, Workload
from speculative_operator.domain.table import KnobSpace, KTable, Trial


class State(StrEnum):
    """State of speculation."""

    ON = "On"
    OFF = "Off"
    REMOVED = "Removed"
    HOLDING = "Holding"


@dataclass(frozen=True, slots=True)
class Policy:
    """Wishes of the user and abilities of the engine, on which the tuner decides."""

    mode: Mode
    knobs: KnobSpace
    start_k: int | None = None
    schedule: KTable | None = None
    off_policy: OffPolicy = OffPolicy.SKIP
    objective: Objective = field(default_factory=Objective)
    workload: Workload = Workload.MIXED
    facts: PairFacts = field(default_factory=PairFacts)
    trials: bool = True
    """False for pods of a former pair: nobody compares what they measure."""
    start_seconds: float | None = None
    """Measured seconds from the start of an engine's container until its pod is ready. None: not known."""

    @property
    def skips(self) -> bool:
        """True where pods skip the speculator while K stays 0."""
        return self.knobs.can_skip and self.off_policy is OffPolicy.SKIP


class Basis(StrEnum):
    """What a gain over pods without a speculator rests on."""

    MEASURED = "Measured"
    """Blocks of steps, at K and without the speculator, side by side in the same pods."""
    ESTIMATED = "Estimated"
    """The tuner's model of pods that nobody measured."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 80 % interval."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Figures behind a decision at the measured load. None: not known."""

    gain_percent: Interval | None = None
    """Gain in tokens per second of the active table over pods without a speculator, at the measured load."""
    gain_basis: Basis | None = None
    """What `gain_percent` and `proposed_gain_percent` rest on."""
    proposed_gain_percent: Interval | None = None
    """The same gain of the proposed table."""
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    concurrency: float | None = None
    """Scheduled requests per step and replica, request-weighted mean of replicas."""
    k: float | None = None
    """K of the active table at that concurrency."""
    tpot_seconds: float | None = None
    tpot_off_seconds: float | None = None
    """Seconds per output token without a speculator by that gain, at the same concurrency, with the same prompts."""
    tokens_per_second: float | None = None
    """Tokens per second of all replicas together."""
    replicas: int = 0
    """Number of replicas that these are the figures of."""
    removal_gain_percent: Interval | None = None
    """Gain in tokens per second of pods without a speculator over the best table, at the loads of the last hour."""
    cost_per_thousand_tokens: float | None = None
    """Cost at the measured speed, in the currency of spec.accelerator.hourlyCost."""
    load_within_target: float | None = None
    """Scheduled requests per replica up to which a replica is predicted to keep the TPOT target, at most twice the
    measured load."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Answer of the tuner. When `valid` is False nothing may be changed; `table` is then the active one."""

    state: State
    table: KTable
    reason: Reason
    message: str
    valid: bool
    changed: bool
    """True when `table` differs from the active one and is to be applied (or, in Recommend, proposed)."""
    estimate: Estimate = field(default_factory=Estimate)
    trials: tuple[Trial, ...] = ()
    """Trials that the engine may run while `table` is active, ascending and without overlap."""
    removed: bool = False
    """True when pods are to run without any speculator (offPolicy Remove): `table` then waits for their return."""
