"""An autoscaler of replicas beside the tuner: the loops do not excite each other, and K follows every step.

The autoscaler is Kubernetes' formula with the query of examples/autoscaling/keda.yaml: requests over the load within
the target, the largest of the last ten minutes; the most replicas of the last five minutes stay.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from tests.unit.tuner.plant import TICK, Run, policy
from tests.unit.tuner.tails import Lucky, aimed

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import Goal, Mode, Objective
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory

TARGET = 0.02
THRESHOLD = 0.8
UNKNOWN_LOAD = 32.0
MOST = 20
TOLERANCE = 0.1
EVERY, STABLE, LOOK_BACK = 2, 30, 60
"""Ticks: between two looks of the autoscaler, until fewer replicas are believed, and that the largest load counts."""


@dataclass
class Scaled:
    """One object with an autoscaler: all its pods share the requests evenly."""

    loop: Run
    replicas: int = 2
    steps: list[int] = field(default_factory=list)
    """Replicas at each tick."""

    def __post_init__(self) -> None:
        self.loads: deque[float] = deque(maxlen=LOOK_BACK)
        self.wanted: deque[int] = deque(maxlen=STABLE // EVERY)

    def serve(self, requests: Sequence[float]) -> None:
        for tick, total in enumerate(requests):
            decision = self.loop.play(max(total / self.replicas, 1.0))
            self.loads.append(decision.estimate.load_within_target or 0.0)
            if tick % EVERY == 0:
                self.scale(total)
            self.steps.append(self.replicas)

    def scale(self, total: float) -> None:
        each = max(self.loads) or UNKNOWN_LOAD
        ratio = total / each / THRESHOLD / self.replicas
        wanted = self.replicas if abs(ratio - 1.0) <= TOLERANCE else math.ceil(total / each / THRESHOLD)
        self.wanted.append(min(max(wanted, 1), MOST))
        self.replicas = max(self.wanted)

    def changes(self, since: int = 0) -> int:
        after = self.steps[since:]
        return sum(one != other for one, other in pairwise(after))


def fixed(k: int) -> Policy:
    return policy(mode=Mode.STATIC, schedule=KTable.constant(k, 256), objective=Objective(Goal.GOODPUT, TARGET))


def tuned() -> Scaled:
    return Scaled(aimed(Lucky(), tpot=TARGET))


def at_k(k: int) -> Scaled:
    return Scaled(Run(Lucky(), fixed(k), Memory.fresh(KTable.constant(k, 256), 1_700_000_000.0)))


HOUR = round(3600 / TICK)
WARM = 90
STEPS = [40.0] * (WARM + HOUR // 3) + [120.0] * (HOUR // 3) + [40.0] * (HOUR // 3)
BEST_K = 2
"""Of the fixed ones at these loads."""


@pytest.fixture(scope="module")
def stepped() -> Scaled:
    scaled = tuned()
    scaled.serve(STEPS)
    return scaled


def test_replicas_come_to_rest_under_a_steady_load() -> None:
    scaled = tuned()
    scaled.serve([60.0] * HOUR)
    assert scaled.changes(since=HOUR // 2) == 0
    load = 60.0 / scaled.replicas
    assert 1 < scaled.replicas < MOST
    assert Lucky().p99(load, scaled.loop.memory.table.k_at(load)) <= TARGET


def test_replicas_change_no_more_often_than_with_the_best_fixed_k(stepped: Scaled) -> None:
    other = at_k(BEST_K)
    other.serve(STEPS)
    assert stepped.changes(since=WARM) <= other.changes(since=WARM) + 1
    assert max(stepped.steps) <= max(other.steps)


def test_k_is_soon_the_best_for_the_load_after_a_change_of_replicas(stepped: Scaled) -> None:
    late = [
        regret
        for tick, regret in enumerate(stepped.loop.regret)
        if tick >= WARM and len(set(stepped.steps[tick - 18 : tick + 1])) == 1
    ]
    assert len(late) > HOUR / 2
    assert sum(late) / len(late) < 0.03
