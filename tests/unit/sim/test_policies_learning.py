"""Laws that learn: goodput argmax, bandit, width search."""

from __future__ import annotations

import numpy as np
import pytest

from speculative_lab.sim.policies.bandit import SWITCHING_COST, Arms, Bandit
from speculative_lab.sim.policies.base import Step
from speculative_lab.sim.policies.goodput import (
    SmartSpec,
    VllmAdaptive,
    chance_of,
    fitted_seconds,
    geometric_length,
)
from speculative_lab.sim.policies.width import BLOCK, PERIODS, WidthSearch

KS = (0, 1, 2, 3, 5)


def linear(batch: np.ndarray, k: np.ndarray, context: np.ndarray) -> np.ndarray:
    return np.asarray(5e-3 + 1e-8 * batch * context + 3e-5 * batch * (k + 1.0) + 1e-3 * k)


def test_geometric_length() -> None:
    assert geometric_length(0.5, 3) == 1.875
    assert geometric_length(0.9, 0) == 1.0


@pytest.mark.parametrize(("k", "a"), [(1, 0.3), (3, 0.7), (8, 0.95)])
def test_chance_is_the_inverse_of_length(k: int, a: float) -> None:
    assert chance_of(geometric_length(a, k) - 1.0, k) == pytest.approx(a, abs=1e-3)


def test_the_offline_profile_of_a_linear_plant_is_exact() -> None:
    seconds = fitted_seconds(linear, 1000.0, 64, KS)
    batch = np.array([1.0, 10.0, 64.0])
    assert seconds(batch, 3) == pytest.approx(linear(batch, np.full(3, 3.0), np.full(3, 1000.0)))


def test_smartspec_takes_the_argmax_at_its_chance() -> None:
    law = SmartSpec(KS, 64, fitted_seconds(linear, 1000.0, 64, KS))
    for _ in range(400):
        law.observe(Step(8, 8, 3, 0.01, 1.2, 17.6))
    a = chance_of(1.2, 3)
    for batch in (1, 8, 64):
        cost = {k: linear(np.array(batch), np.array(k), np.array(1000.0)) for k in KS}
        assert law.choose(batch) == max(KS, key=lambda k: geometric_length(a, k) / cost[k])


def test_smartspec_does_not_learn_while_off() -> None:
    law = SmartSpec(KS, 8, fitted_seconds(linear, 1000.0, 8, KS))
    before = [law.choose(batch) for batch in range(1, 9)]
    law.changed = False
    law.observe(Step(8, 8, 0, 0.01, 0.0, 8.0))
    assert not law.changed
    assert [law.choose(batch) for batch in range(1, 9)] == before


class Never(np.random.Generator):
    """A generator that never explores."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def random(self, *_: object, **__: object) -> float:  # type: ignore[override]
        return 1.0


def test_vllm_adaptive_ignores_batch_and_moves_by_more_than_one() -> None:
    law = VllmAdaptive((0, 1, 2, 3, 4, 5), Never(), cost=0.1, overhead=0.0)
    for _ in range(300):
        law.observe(Step(8, 8, 3, 0.01, 3.0, 32.0))
    assert {law.choose(batch) for batch in (1, 50, 200)} == {5}
    near = VllmAdaptive((3, 4), Never())
    for _ in range(300):
        near.observe(Step(8, 8, 3, 0.01, 3.0, 32.0))
    assert near.choose(8) == 3


def test_the_bandit_tries_every_arm_of_a_bin_and_keeps_the_best() -> None:
    law, speed = Bandit((0, 1, 3), episode=5), {0: 100.0, 1: 150.0, 3: 120.0}
    pulled = []
    for _ in range(200):
        k = law.choose(6)
        pulled.append(k)
        for _ in range(5):
            law.observe(Step(6, 6, k, 0.01, 0.0, 6 * speed[k] * 0.01))
    assert pulled[:3] == [0, 1, 3]
    assert pulled[50:].count(1) > 0.9 * 150
    assert law.choose(100) == 0


def test_going_from_none_to_drafts_costs_the_bandit_a_share() -> None:
    arms = Arms(2, 1)
    arms.tokens, arms.seconds, arms.steps = 10.0, 1.0, 50
    arms.close(SWITCHING_COST)
    assert arms.means[1] == pytest.approx(9.8)


def rounds(law: WidthSearch, batch: int, count: int, speed: dict[int, float], new: int = 0) -> list[int]:
    found = []
    for _ in range(count):
        k = law.choose(batch)
        found.append(k)
        law.observe(Step(batch, batch + new, k, 0.01, 0.0, batch * speed[k] * 0.01))
    return found


def test_width_climbs_while_it_pays_and_freezes() -> None:
    law, speed = WidthSearch((0, 1, 2, 3)), {0: 100.0, 1: 140.0, 2: 170.0, 3: 160.0}
    found = rounds(law, 4, 1000, speed)
    assert found[: BLOCK + 2] == [1] * (BLOCK + 1) + [2]
    assert found[-1] == 2
    assert set(rounds(law, 4, 200, {0: 900.0, 1: 1.0, 2: 1.0, 3: 1.0})) == {2}


def test_no_speculation_wins_unless_beaten() -> None:
    law = WidthSearch((0, 1, 2))
    assert rounds(law, 4, 1000, {0: 150.0, 1: 140.0, 2: 130.0})[-1] == 0


def test_bursts_are_dropped() -> None:
    law = WidthSearch((0, 1, 2))
    assert set(rounds(law, 8, 10 * PERIODS, {0: 1.0, 1: 1.0, 2: 1.0}, new=2)) == {1}


def test_a_larger_batch_is_never_wider_than_a_smaller_one() -> None:
    law = WidthSearch((0, 1, 2, 3))
    assert rounds(law, 4, 1000, {0: 100.0, 1: 140.0, 2: 130.0, 3: 120.0})[-1] == 1
    assert max(rounds(law, 64, 1000, {0: 100.0, 1: 110.0, 2: 170.0, 3: 180.0})) == 1
