"""What one world is: replicas, their requests, what the law is told of them, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from speculative_lab.plant import layout as at
from speculative_lab.plant.types import Floats, Ints, Machine
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import Method, OffPolicy
from speculative_operator.engines.vllm.arguments import OFF_STEPS
from speculative_operator.payload.speculative_off import SOON

GAP_COST = 1.0
"""Log-odds that a draft loses where the speculator has seen nothing of a request. EAGLE-3 was measured to accept 0.20
instead of 0.25 of its drafts where 180 tokens of some hundreds were missing, a third."""


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

    def with_skip(self) -> World:
        """The same where the speculator is left out once K = 0 has lasted; itself where there is none to leave out."""
        knobs = self.policy.knobs
        if knobs.draft_free:
            return self
        policy = replace(
            self.policy, off_policy=OffPolicy.SKIP, knobs=replace(knobs, can_skip=True, passes_at_zero=0.0)
        )
        catches_up = self.traits.get("method") == Method.DRAFT_MODEL.value
        for replica in self.replicas:
            replica.machine.par[[at.RESTS_AFTER, at.GAP_COST]] = SOON if catches_up else int(OFF_STEPS), GAP_COST
            replica.machine.par[at.CATCHES_UP] = float(catches_up)
        return replace(self, policy=policy)

    @property
    def top_k(self) -> int:
        return max(self.policy.knobs.ks)
