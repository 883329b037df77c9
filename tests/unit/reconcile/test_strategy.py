"""Rollouts that cannot deadlock on an accelerator, nor interrupt serving where they need not."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import SPEC

from speculative_operator.domain.spec import RolloutStrategy
from speculative_operator.reconcile.desired import NEW_FIRST, OLD_FIRST, RECREATE, choose_strategy, possible_strategies
from speculative_operator.reconcile.room import Room

AUTO, ROLLING, RECREATED = RolloutStrategy.AUTO, RolloutStrategy.ROLLING_UPDATE, RolloutStrategy.RECREATE


@pytest.mark.parametrize(
    ("asked", "replicas", "room", "expected"),
    [
        (AUTO, 1, None, RECREATE),
        (AUTO, 2, None, OLD_FIRST),
        (AUTO, 1, Room.TAKEN, RECREATE),
        (AUTO, 2, Room.TAKEN, OLD_FIRST),
        (AUTO, 1, Room.FREE, NEW_FIRST),
        (AUTO, 2, Room.FREE, NEW_FIRST),
        (AUTO, 1, Room.NOWHERE, NEW_FIRST),
        (ROLLING, 1, Room.NOWHERE, NEW_FIRST),
        (AUTO, 0, None, RECREATE),
        (ROLLING, 1, None, NEW_FIRST),
        (ROLLING, 1, Room.FREE, NEW_FIRST),
        (ROLLING, 1, Room.TAKEN, OLD_FIRST),
        (ROLLING, 3, Room.TAKEN, OLD_FIRST),
        (RECREATED, 3, Room.FREE, RECREATE),
    ],
)
def test_choice(asked: RolloutStrategy, replicas: int, room: Room | None, expected: dict[str, Any]) -> None:
    spec = replace(SPEC, rollout_strategy=asked, replicas=replicas)
    assert choose_strategy(spec, room) == expected


@pytest.mark.parametrize("asked", list(RolloutStrategy))
def test_whatever_is_chosen_is_possible(asked: RolloutStrategy) -> None:
    for replicas in (0, 1, 5):
        spec = replace(SPEC, rollout_strategy=asked, replicas=replicas)
        assert all(choose_strategy(spec, room) in possible_strategies(spec) for room in (None, *Room))


def test_no_strategy_waits_for_an_accelerator_that_is_not_there() -> None:
    for asked in RolloutStrategy:
        for replicas in (1, 2, 5):
            chosen = choose_strategy(replace(SPEC, rollout_strategy=asked, replicas=replicas), Room.TAKEN)
            assert chosen.get("rollingUpdate", {}).get("maxSurge", 0) == 0
