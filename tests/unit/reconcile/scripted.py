"""A tuner that answers what it was told to, and clusters whose pods it had rolled without drafter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.reconcile.worlds import SPEC, Cluster, observed, settled, template, window

from speculative_operator.domain.decision import Decision, Estimate, Interval, Policy, State
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import OffPolicy, Speculation
from speculative_operator.domain.table import KTable, Trial
from speculative_operator.tuner import Memory

REMOVABLE = replace(SPEC, speculation=Speculation(off_policy=OffPolicy.REMOVE))
FIGURES = Estimate(
    removal_gain_percent=Interval(6.2, 9.0, 12.4), gain_percent=Interval(-14.0, -11.0, -8.0), acceptance_length=1.02,
    concurrency=41.0, k=0.0,
)  # fmt: skip


class Tuner:
    """Answers what it was told to; each answer counts for one tick."""

    def __init__(self) -> None:
        self.wishes: list[dict[str, Any]] = []
        self.asked = 0
        self.at: float | None = None
        self.wish: dict[str, Any] = {}
        """What it was told to answer at that time, and answers whenever it is asked then."""
        self.told: list[int | None] = []
        """Version of the table in force, at each question."""
        self.trials: tuple[Trial, ...] = ()
        """What pods may try, where an answer does not say."""
        self.rollouts: list[float | None] = []
        """Seconds that a start takes, as it was told."""

    def __call__(self, memory: Memory, observation: Observation, policy: Policy, now: float) -> tuple[Memory, Decision]:
        again = self.at == now
        if not again:
            self.asked += 1
            self.at, self.wish = now, self.wishes.pop(0) if self.wishes else {}
            self.told.append(observation.table_version)
            self.rollouts.append(policy.start_seconds)
        state = State.REMOVED if memory.removed else State.ON
        quiet: dict[str, Any] = {
            "state": state, "table": memory.table, "reason": Reason.TUNED, "message": "best", "valid": True,
            "changed": False, "removed": memory.removed, "trials": self.trials,
        }  # fmt: skip
        decision = Decision(**(quiet | self.wish))
        if decision.changed:
            memory = replace(memory, table=decision.table, removed=decision.removed, changed_at=now)
        return memory, decision

    def remove(self, table: KTable, **change: Any) -> None:
        wish = {"state": State.REMOVED, "table": table, "reason": Reason.DEAD_WEIGHT, "changed": True,
                "removed": True, "message": "the drafter loses at 12 to 60 requests", "estimate": FIGURES}  # fmt: skip
        self.wishes.append(wish | change)

    def bring_back(self, table: KTable, **change: Any) -> None:
        wish = {"state": State.ON, "table": table, "reason": Reason.RESUMED, "changed": True, "removed": False,
                "message": "the load fell to 3 requests"}  # fmt: skip
        self.wishes.append(wish | change)


def active_table(cluster: Cluster) -> KTable:
    return KTable.from_rows(cluster.status["speculation"]["table"])


def drafts(cluster: Cluster) -> bool:
    (container,) = template(cluster.children["Deployment", "demo"])["spec"]["containers"]
    return "--speculative-config" in container["args"]


def without_series(cluster: Cluster) -> Observation:
    """What pods without a speculator show: no figure of drafts at all."""
    bare: dict[str, Any] = {"drafts": None, "draft_tokens": None, "accepted_tokens": None, "accepted_per_position": ()}
    pods = {one["metadata"]["name"]: replace(window(cluster.now, 20, 0), **bare) for one in cluster.pods}
    return Observation(cluster.now, pods)


def removed(tuner: Tuner, spec: Any = REMOVABLE) -> Cluster:
    """A cluster whose pods were rolled without drafter, and are ready again."""
    cluster = settled(spec=spec)
    tuner.remove(active_table(cluster))
    cluster.tick(observed(cluster))
    cluster.roll()
    cluster.settle()
    return cluster
