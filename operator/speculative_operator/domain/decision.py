"""What the tuner is asked and what it answers: `decide(memory, observation, policy, now) -> (memory, Decision)`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from speculative_operator.domain.knobs import KnobSpace
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, Objective, OffPolicy, Workload
from speculative_operator.domain.table import KTable, Try


class State(StrEnum):
    """State of speculation."""

    ON = "On"
    SOFT_OFF = "SoftOff"
    HARD_OFF = "HardOff"
    HOLDING = "Holding"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user asks and what the engine allows."""

    mode: Mode
    knobs: KnobSpace
    start_k: int | None = None
    schedule: KTable | None = None
    off_policy: OffPolicy = OffPolicy.SOFT
    objective: Objective = field(default_factory=Objective)
    workload: Workload = Workload.MIXED
    facts: PairFacts = field(default_factory=PairFacts)
    pod_hourly_cost: float | None = None
    """Of all accelerators of one pod, in the user's currency; None when no price was given."""
    tries: bool = True
    """False while some pod would refuse a table file that names tries."""
    start_seconds: float | None = None
    """From the start of an engine's container until its pod is ready, as measured. None: not known."""

    @property
    def rests(self) -> bool:
        """Whether nothing of the speculator runs at K = 0, which is then called off."""
        return self.knobs.rests and self.off_policy is OffPolicy.LIVE


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 80 % interval."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Numbers behind a decision, at the load seen. None: not known."""

    gain_percent: Interval | None = None
    """Tokens per second of the table in force against no speculation, at the load seen."""
    proposed_gain_percent: Interval | None = None
    """The same of the table decided for."""
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    concurrency: float | None = None
    """Scheduled requests per step and replica, request-weighted mean of replicas."""
    k: float | None = None
    """K of the table in force at that concurrency."""
    tpot_seconds: float | None = None
    tpot_off_seconds: float | None = None
    """Predicted seconds per output token without speculation at the same concurrency, with the same prompts."""
    tokens_per_second: float | None = None
    """Of all replicas together."""
    hard_off_gain_percent: Interval | None = None
    """Tokens per second of pods without any speculator against the table in force, over the loads of late."""
    cost_per_thousand_tokens: float | None = None
    """In the currency of spec.accelerator.hourlyCost, at the speed seen."""
    load_within_target: float | None = None
    """Scheduled requests per replica up to which the target of TPOT is predicted to be kept, as far as that can be told
    from the load seen."""
    throughput_within_target: float | None = None
    """Tokens per second at that load over those at the load seen."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Answer of the tuner. When `valid` is False nothing may be changed; `table` is then the one in force."""

    state: State
    table: KTable
    reason: Reason
    message: str
    valid: bool
    changed: bool
    """True when `table` differs from the one in force and is to be applied (or, in Recommend, proposed)."""
    estimate: Estimate = field(default_factory=Estimate)
    tries: tuple[Try, ...] = ()
    """What the engine may try while `table` is in force, ascending and without overlap."""
    hard_off: bool = False
    """True when pods are to run without any speculator (offPolicy Hard): `table` then waits for their return."""
