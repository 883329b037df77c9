"""The tuner in the simulator: it sees exposition text every few seconds and nothing else, and its word is carried out.

Named in `registry`. `sim.session` is the path from text to decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from speculative_lab.sim.policies.base import Journal
from speculative_lab.sim.session import Session
from speculative_operator.domain.decision import Decision
from speculative_operator.domain.table import Actuator, KTable

if TYPE_CHECKING:
    from speculative_lab.sim.deployment import Deployment

SCRAPE_SECONDS = 5.0
DELIVERY_SECONDS = 0.5
EPOCH = 1_800_000_000.0
"""unix seconds at simulated second 0."""


class Act(NamedTuple):
    """What the tuner did to the deployment."""

    time: float
    """Simulated seconds."""
    what: KTable | bool
    """A table to bring into force, or whether pods are to be without the drafter."""
    delay: float = 0.0


class Ours:
    """A session fed from the deployment. `clock` measures how long an answer takes, in seconds; None: not measured.

    `delivery`: seconds until pods have a table that was written.
    """

    name = "ours"
    interval = SCRAPE_SECONDS

    def __init__(
        self, session: Session, clock: Callable[[], float] | None = None, delivery: float = DELIVERY_SECONDS
    ) -> None:
        self.journal = Journal()
        self.decisions: list[tuple[float, Decision]] = []
        """Simulated seconds and every answer that differs from the one before."""
        self.feed_seconds: list[float] = []
        self.acts: list[Act] = []
        self.tried = False
        """Whether pods were ever told to try anything."""
        self.last: Decision | None = None
        self._session = session
        self._clock = clock
        self._delivery = delivery
        self._version = session.version
        self._off = False

    def act(self, deployment: Deployment) -> None:
        if deployment.rolling and deployment.plant.knobs.actuator is not Actuator.LIVE:
            count_shares(self.journal, deployment)
            return  # as in the operator, nothing is asked while pods of two tables serve
        now, texts = deployment.now, deployment.exposition()
        began = self._clock() if self._clock else 0.0
        decision = self._session.feed(EPOCH + now, texts)
        if self._clock:
            self.feed_seconds.append(self._clock() - began)
        self._note(now, decision)
        self.last = decision
        if self._session.version != self._version:
            self.journal.writes.append(now)
            self._set_table(deployment, self._delivery)
        elif now == 0.0:
            self._set_table(deployment, 0.0)
        if decision.valid and decision.removed != self._off:
            self._off = decision.removed
            deployment.removed(self._off)
            self.acts.append(Act(now, self._off))
            if self._off:
                self.journal.removals.append(now)
        count_shares(self.journal, deployment)

    @property
    def table(self) -> KTable:
        """In force, or on its way."""
        return self._session.table

    def _set_table(self, deployment: Deployment, delay: float) -> None:
        session = self._session
        self._version = session.version
        self.acts.append(Act(deployment.now, session.table, delay))
        self.tried = self.tried or bool(session.trials)
        deployment.set_table(session.table, delay, session.version, session.trials)

    def _note(self, now: float, decision: Decision) -> None:
        last = self.decisions[-1][1] if self.decisions else None
        if last is None or (last.state, last.reason, last.table) != (decision.state, decision.reason, decision.table):
            self.decisions.append((now, decision))


class Untried:
    """Does what the tuner did in a run of the same scenario, at the same times, and lets nothing be tried: the mark for
    what exploring costs."""

    name = "untried"
    interval = SCRAPE_SECONDS

    def __init__(self, acts: Sequence[Act]) -> None:
        self.journal = Journal()
        self._acts = list(acts)

    def act(self, deployment: Deployment) -> None:
        while self._acts and self._acts[0].time <= deployment.now:
            _, what, delay = self._acts.pop(0)
            if isinstance(what, KTable):
                deployment.set_table(what, delay)
            else:
                deployment.removed(what)


def count_shares(journal: Journal, deployment: Deployment) -> None:
    """Adds the request-steps since the last look to `journal.shares`, by K."""
    for replica in range(deployment.replicas):
        log = deployment.steps(replica)
        for k in set(log.k.tolist()):
            steps = float(log.batch[log.k == k].sum())
            journal.shares[int(k)] = journal.shares.get(int(k), 0.0) + steps
