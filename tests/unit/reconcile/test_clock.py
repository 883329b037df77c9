"""Until when a reconcile need not be repeated: no comparison with its time comes out otherwise before."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.worlds import NOW, SPEC, Cluster, observed, restart, settled

from speculative_operator.domain.clock import Clock, Moment
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.reconcile.snapshot.writing import should_write
from speculative_operator.reconcile.tick import Outcome, tick

NUMBERS = st.floats(-1e6, 1e6)
LONGEST = 3600.0

QUESTIONS: dict[str, Callable[[float, float, float], bool]] = {
    "later": lambda now, at, span: now >= at + span,
    "age": lambda now, at, span: 0 <= now - at < span,
    "left": lambda now, at, span: at - now > span,
    "between": lambda now, at, span: now < at <= now + span,
    "at least": lambda now, at, span: max(now - at, 0.0) <= span,
    "near": lambda now, at, span: abs(now - at) <= span,
    "share": lambda now, at, span: (now - at) / 60.0 < span,
    "times": lambda now, at, span: 2.0 * (now - at) < span,
    "reversed": lambda now, at, span: span > -(at - now),
}


@pytest.mark.parametrize("question", QUESTIONS)
@settings(deadline=None, max_examples=100)
@given(now=NUMBERS, at=NUMBERS, span=NUMBERS, passes=st.floats(0.0, 1.0))
def test_an_answer_stands_until_then(question: str, now: float, at: float, span: float, passes: float) -> None:
    ask, clock = QUESTIONS[question], Clock()
    answer = ask(Moment(now, clock), at, span)
    assert answer == ask(now, at, span)
    after = now + passes * min(clock.changes_in, 1e7) * 0.999
    assert ask(after, at, span) == answer


def test_it_is_the_first_change_that_counts_and_none_that_has_been() -> None:
    clock = Clock()
    now = Moment(100.0, clock)
    assert now > 50.0
    assert math.isinf(clock.changes_in)
    assert now < 130.0
    assert now < 110.0
    assert now < 120.0
    assert clock.changes_in == 10.0


def test_times_that_were_kept_stand_still() -> None:
    before = Clock()
    kept: Any = Moment(100.0, before) + 30.0
    before.runs = False
    clock = Clock()
    now = Moment(110.0, clock)
    assert kept > now
    assert clock.changes_in == 20.0
    assert kept - now < 25.0
    assert clock.changes_in == 20.0
    assert now + kept < 245.0
    assert clock.changes_in == 5.0
    assert math.isinf(before.changes_in)
    assert type(deepcopy(kept)) is float
    assert json.dumps([kept]) == "[130.0]"


def is_same(before: dict[str, Any], outcome: Outcome) -> bool:
    """True where nothing of the status would ever be written."""
    return not should_write(before, outcome.status, 0.0, math.inf)


def blind(cluster: Cluster) -> Observation:
    return Observation(cluster.now, gap=Gap(Reason.METRICS_MISSING, "no answer"))


def stalled() -> Cluster:
    """Pods that do not come up."""
    cluster = Cluster()
    cluster.tick()
    cluster.children["Deployment", "demo"]["status"] = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2}
    cluster.tick()
    return cluster


def tuned(**change: Any) -> Cluster:
    cluster = settled(**change)
    for _ in range(3):
        cluster.tick(observed(cluster))
    return cluster


WORLDS: dict[str, Callable[[], Cluster]] = {
    "at rest": settled,
    "not ready": stalled,
    "tuned": tuned,
    "tuned by rollouts": lambda: tuned(spec=restart(SPEC)),
}


@pytest.mark.parametrize("told", [None, blind], ids=["unseen", "blind"])
@pytest.mark.parametrize("world", WORLDS)
def test_nothing_happens_before_the_moment_that_is_told(world: str, told: Any) -> None:
    """Over an hour: wherever two reconciles were the same, so are all until the moment that the second one told."""
    cluster = WORLDS[world]()
    end, skipped = cluster.now + LONGEST, 0
    while cluster.now < end:
        observation, before, memory = told(cluster) if told else None, cluster.status, cluster.memory
        outcome = cluster.tick(observation, seconds=0.0)
        same = repr(outcome.memory) == repr(memory)
        quiet = not outcome.actions and not outcome.events and is_same(before, outcome) and same
        stands = min(outcome.stands_for, 600.0) if quiet else 0.0
        for share in (0.3, 0.9, 0.999) if stands > 1.0 else ():
            now = cluster.now + share * stands
            seen = Observation(now, gap=observation.gap) if observation is not None else None
            again = tick(cluster.world(), cluster.memory, seen, now)
            assert again.actions == ()
            assert again.events == ()
            assert is_same(outcome.status, again)
            skipped += 1
        cluster.now += max(stands, 10.0)
    assert skipped > 10, "there is a rest to be had"
    assert cluster.now > NOW
