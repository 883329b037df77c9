"""What every controller of K offers, and the frame of those that sit inside an engine.

Used by every other module here and by `sim.experiment`. A rival's law is a small class that is told one step after the
other and says which table it wants; the frame feeds it from the step log, so a test can pin the law with plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from speculative_operator.domain.table import KnobSpace, KTable

if TYPE_CHECKING:
    from speculative_lab.sim.deployment import Deployment


@dataclass(slots=True)
class Journal:
    """What a controller did, for scores. Times in simulated seconds."""

    writes: list[float] = field(default_factory=list)
    """Changes of the table, or of what is tried, after the first table."""
    removals: list[float] = field(default_factory=list)
    """When pods were told to run without the drafter."""
    shares: dict[int, float] = field(default_factory=dict)
    """Request-steps by the K that they verified."""


class Controller(Protocol):
    """Anything that may turn K while a simulated deployment runs."""

    name: str
    interval: float
    """Simulated seconds between two calls of `act`."""
    journal: Journal

    def act(self, deployment: Deployment) -> None:
        """Looks at what it may see, and sets a table if it wants another."""


class Step(NamedTuple):
    """One engine step as a controller inside the engine sees it."""

    batch: int
    """Requests that decoded."""
    scheduled: int
    """Requests in the step, those in prefill included."""
    k: int
    """Drafts for each request; 0 when nothing was drafted."""
    seconds: float
    accepted: float
    """Mean accepted drafts of the requests that had drafts; 0 when none had."""
    emitted: float
    """Output tokens of all requests."""


class Law(Protocol):
    """A rival's rule, one step at a time."""

    changed: bool
    """True when `choose` may answer differently than when `changed` was last set to False."""

    def observe(self, step: Step) -> None: ...

    def choose(self, batch: int) -> int:
        """K wanted at `batch` scheduled requests."""


def snap(k: int, ks: tuple[int, ...]) -> int:
    """The largest K of `ks` that is at most `k`; else, for `k` above 0, the smallest above 0."""
    if k <= 0:
        return min(ks)
    return max((one for one in ks if 0 < one <= k), default=min((one for one in ks if one > 0), default=0))


def tabulate(choose: Callable[[int], int], knobs: KnobSpace) -> KTable:
    """The table whose K at each batch size is the one that `choose` names, brought to one that the engine has."""
    wanted = [choose(batch) for batch in range(1, knobs.max_batch + 1)]
    allowed = {k: snap(k, knobs.ks) for k in set(wanted)}
    return KTable.from_dense([allowed[k] for k in wanted])


class InEngine:
    """Runs a law on the step log. Several replicas share one law: the simulator has one table for all of them."""

    def __init__(self, name: str, law: Law, knobs: KnobSpace, interval: float) -> None:
        self.name = name
        self.interval = interval
        self.journal = Journal()
        self._law = law
        self._knobs = knobs
        self._table: KTable | None = None

    def act(self, deployment: Deployment) -> None:
        for replica in range(deployment.replicas):
            log = deployment.steps(replica)
            rows = zip(
                log.batch.astype(int).tolist(), log.scheduled.astype(int).tolist(), log.k.astype(int).tolist(),
                log.seconds.tolist(), log.accepted_mean.tolist(), log.emitted.tolist(), strict=True,
            )  # fmt: skip
            for row in rows:
                self._law.observe(Step(*row))
        if self._law.changed or self._table is None:
            self._law.changed = False
            table = tabulate(self._law.choose, self._knobs)
            if table != self._table:
                self._table = table
                deployment.set_table(table, delay=0.0)
