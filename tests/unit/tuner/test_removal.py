"""Pods without a speculator: only after lasting evidence, never where it is of use, and back when it would pay."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tests.unit.tuner.plant import FACTS, TICK, USELESS, Plant, Run, policy, run

from speculative_operator.domain.decision import Basis, Policy, State
from speculative_operator.domain.observation import Gap, Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import KTable
from speculative_operator.tuner import Memory, rollout
from speculative_operator.tuner.gain import Gain, removal_gain
from speculative_operator.tuner.outlook import outlook
from speculative_operator.tuner.persistence import from_status, to_status
from speculative_operator.tuner.rollout import (
    FIRST_SECONDS,
    LASTING_SECONDS,
    RETURN_SECONDS,
    to_remove,
    track_dead_weight,
)

REMOVABLE = policy(off_policy=OffPolicy.REMOVE)
MINUTES_30 = int(1800 / TICK)


def over(mid: float, wide: float) -> Gain:
    """Pods without a speculator over those with it."""
    return Gain(mid - wide, mid, mid + wide, Basis.ESTIMATED)


WORSE = over(0.3, 0.02)
COST = rollout.cost(REMOVABLE)


@cache
def _useless(asked: Policy) -> Run:
    loop = run(Plant(conditional=USELESS), asked)
    loop.play(*[30] * MINUTES_30)
    return loop


def useless(asked: Policy = REMOVABLE) -> Run:
    """Half an hour with a speculator of which nothing is accepted."""
    played = _useless(asked)
    return replace(played, decisions=list(played.decisions))


class TestDoom:
    """Since when the speculator has been dead weight."""

    memory = Memory.fresh(KTable.constant(0, 256), 0.0)

    def test_it_begins_lasts_and_ends(self) -> None:
        began = track_dead_weight(self.memory, WORSE, COST, 10.0)
        assert began.doomed_since == 10.0
        assert track_dead_weight(began, WORSE, COST, 500.0).doomed_since == 10.0
        assert track_dead_weight(began, over(-0.1, 0.02), COST, 500.0).doomed_since is None

    @pytest.mark.parametrize("found", [over(0.02, 0.0), over(0.3, 1.0), None])
    def test_a_small_or_doubtful_gain_is_none(self, found: Gain | None) -> None:
        assert track_dead_weight(self.memory, found, COST, 10.0).doomed_since is None

    def test_a_dear_rollout_asks_for_more(self) -> None:
        slow = rollout.cost(replace(REMOVABLE, start_seconds=1200.0))
        assert track_dead_weight(self.memory, over(0.1, 0.01), COST, 10.0).doomed_since == 10.0
        assert track_dead_weight(self.memory, over(0.1, 0.01), slow, 10.0).doomed_since is None

    def test_a_quick_start_makes_no_rollout_cheap(self) -> None:
        assert (
            rollout.cost(replace(REMOVABLE, start_seconds=5.0))
            == rollout.cost(REMOVABLE)
            == rollout.RESTART_SECONDS / 3600
        )

    def test_only_hard_and_auto_remove_and_only_what_has_lasted(self) -> None:
        now = 10 * (FIRST_SECONDS + LASTING_SECONDS)
        bad = replace(self.memory, doomed_since=now - LASTING_SECONDS)
        assert to_remove(bad, outlook(REMOVABLE), now)
        assert not to_remove(replace(bad, doomed_since=now - LASTING_SECONDS + 1), outlook(REMOVABLE), now)
        assert not to_remove(replace(bad, since=now - FIRST_SECONDS + 1), outlook(REMOVABLE), now)
        assert not to_remove(replace(bad, removed=True), outlook(REMOVABLE), now)
        for asked in (policy(), policy(off_policy=OffPolicy.NEVER), replace(REMOVABLE, mode=Mode.RECOMMEND)):
            assert not to_remove(bad, outlook(asked), now)


def test_a_useless_speculator_is_removed_within_half_an_hour_and_not_at_once() -> None:
    loop = useless()
    first = next(n for n, decision in enumerate(loop.decisions) if decision.removed)
    assert first * TICK >= LASTING_SECONDS
    decision = loop.decisions[first]
    assert (decision.state, decision.reason, decision.changed) == (State.REMOVED, Reason.DEAD_WEIGHT, True)
    assert "without the speculator are expected to serve +" in decision.message
    later = loop.decisions[first + 1 :]
    assert all(d.removed and not d.changed and d.state is State.REMOVED for d in later)


def test_soft_policy_never_removes() -> None:
    assert not any(decision.removed for decision in useless(policy()).decisions)


@pytest.mark.parametrize(("level", "seed"), [(0.5, 0), (0.5, 1), (0.7, 2)])
def test_one_that_helps_at_some_load_is_never_removed(level: float, seed: int) -> None:
    loop = run(Plant(conditional=(level,) * 5, noise=0.05, seed=seed), REMOVABLE)
    loop.play(*[2] * 30, *[20] * 70, *[60] * 30)
    assert not any(decision.removed for decision in loop.decisions)


def test_memory_that_the_drafter_holds_is_a_reason_where_requests_wait_for_it() -> None:
    """A drafter that is worth little, in pods of whose KV memory it takes more than half."""
    facts = replace(FACTS, kv_capacity_tokens=100_000, kv_capacity_tokens_without_speculator=250_000)

    def gain(waiting: float) -> float:
        loop = run(Plant(conditional=(0.35,) * 5, noise=0.02), replace(REMOVABLE, facts=facts))
        for _ in range(MINUTES_30 // 6):
            loop.now += TICK
            full = replace(loop.window(30), waiting=waiting, kv_usage=0.99)
            loop.see(Observation(loop.now, {"pod": full}))
        found = removal_gain(outlook(loop.policy, loop.memory.costs, loop.memory.acceptance, loop.memory.traffic))
        assert found is not None
        return found.mid

    assert gain(0.0) < rollout.GAIN < gain(10.0)


class TestWithout:
    """Once pods run without it."""

    def test_a_gap_keeps_the_flag(self) -> None:
        loop = useless()
        decision = loop.see(Observation(loop.now, {}, Gap(Reason.PROMETHEUS_ERROR, "down")))
        assert (decision.valid, decision.changed, decision.removed) == (False, False, True)
        assert loop.memory.removed

    def test_it_survives_a_restart_of_the_operator(self) -> None:
        loop = useless()
        loop.memory = from_status(to_status(loop.memory), loop.policy)
        assert loop.memory.removed
        assert loop.play(30).removed

    @pytest.mark.parametrize(
        "asked",
        [
            policy(),
            policy(off_policy=OffPolicy.NEVER),
            replace(REMOVABLE, mode=Mode.STATIC),
            replace(REMOVABLE, mode=Mode.RECOMMEND),
        ],
    )
    def test_another_policy_brings_it_back(self, asked: Policy) -> None:
        loop = useless()
        loop.policy = asked
        decision = loop.see(Observation(loop.now, {}, Gap(Reason.PROMETHEUS_ERROR, "down")))
        assert not decision.removed
        assert not loop.memory.removed

    def test_no_speculator_where_it_would_not_pay_stays_away(self) -> None:
        loop = useless()
        loop.memory = replace(loop.memory, removed_at=loop.now - RETURN_SECONDS)
        loop.play(*[30] * MINUTES_30)
        assert loop.memory.removed

    def test_it_returns_when_the_load_is_one_at_which_it_paid(self) -> None:
        """Removed for a load that is far too high; an hour at one request brings it back."""
        slow = policy(off_policy=OffPolicy.REMOVE, facts=FACTS)
        loop = run(Plant(conditional=(0.75,) * 5), slow)
        loop.play(*[2] * 30)
        loop.memory = replace(loop.memory, removed=True, removed_at=loop.now - RETURN_SECONDS + 10 * TICK)
        loop.play(*[2] * 8)
        assert loop.memory.removed
        loop.play(*[2] * 10)
        returned = next(decision for decision in loop.decisions if decision.reason is Reason.RESUMED)
        assert returned.changed
        assert not returned.removed
        assert not loop.memory.removed
