"""Rollouts that cannot deadlock on an accelerator, nor interrupt serving where they need not."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import SPEC

from speculative_operator.domain.spec import AcceleratorRequest, RolloutStrategy
from speculative_operator.reconcile.strategy import NEW_FIRST, OLD_FIRST, RECREATE, choose

AUTO, ROLLING, RECREATED = RolloutStrategy.AUTO, RolloutStrategy.ROLLING_UPDATE, RolloutStrategy.RECREATE


@pytest.mark.parametrize(
    ("asked", "replicas", "spare", "expected"),
    [
        (AUTO, 1, None, RECREATE),
        (AUTO, 2, None, OLD_FIRST),
        (AUTO, 1, 1, RECREATE),
        (AUTO, 2, 1, OLD_FIRST),
        (AUTO, 1, 2, NEW_FIRST),
        (AUTO, 2, 2, NEW_FIRST),
        (AUTO, 0, None, RECREATE),
        (ROLLING, 1, None, NEW_FIRST),
        (ROLLING, 1, 2, NEW_FIRST),
        (ROLLING, 1, 0, OLD_FIRST),
        (ROLLING, 3, 0, OLD_FIRST),
        (RECREATED, 3, 9, RECREATE),
    ],
)
def test_choice(asked: RolloutStrategy, replicas: int, spare: int | None, expected: dict[str, Any]) -> None:
    spec = replace(SPEC, rollout_strategy=asked, replicas=replicas, accelerator=AcceleratorRequest(per_replica=2))
    assert choose(spec, spare) == expected


def test_no_strategy_waits_for_an_accelerator_that_is_not_there() -> None:
    for asked in RolloutStrategy:
        for replicas in (1, 2, 5):
            chosen = choose(replace(SPEC, rollout_strategy=asked, replicas=replicas), 0)
            assert chosen.get("rollingUpdate", {}).get("maxSurge", 0) == 0
