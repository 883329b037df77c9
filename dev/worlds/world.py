"""What one world is: replicas, their requests, what the law is told of them, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from speculative_operator.domain.decision import Policy
from worlds.types import Floats, Ints, Machine


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica before its run."""

    machine: Machine
    requests: Floats
    opened: int
    """First rows of `requests`, in order of time, that come by themselves."""
    users: Ints
    """First row of each user of the closed loop."""
    returns: Floats
    """When each of them asks first."""
    restart: tuple[float, float] | None = None
    """From when to when it is away."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What P99 is asked for, as a share of what is possible; made seconds once the best tables are known."""

    kind: str = "none"
    """none, loose, attainable, unattainable."""
    of: str = "tpot"
    """tpot, ttft."""
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class World:
    """One world, drawn or named."""

    name: str
    seconds: float
    replicas: tuple[Replica, ...]
    policy: Policy
    wish: Wish
    delays: tuple[float, ...]
    """Seconds until a table reaches the pods, in turn."""
    changes: tuple[float, ...] = ()
    """Moments at which load or text changes in one step."""
    traits: dict[str, object] = field(default_factory=dict)
    """What was drawn, for the report."""

    @property
    def top_k(self) -> int:
        return max(self.policy.knobs.ks)
