"""A latency target never makes serving slower than it would be without one, unless that meets it."""

from __future__ import annotations

from functools import cache

import pytest
from tests.unit.tuner.plant import run
from tests.unit.tuner.tails import BOUNDS, Lucky, aimed

from speculative_operator.domain.table import KTable

LOOKS = 180
ALLOWED = 0.0125
"""Of the speed: the 18 s that attempts may cost, of 30 minutes, and a quarter for the ways there and back."""


@cache
def lost_without_target(batch: float) -> float:
    plain = run(Lucky(), table=KTable.constant(4, 256))
    plain.play(*[batch] * LOOKS)
    return sum(plain.regret) / LOOKS


@pytest.mark.parametrize("batch", [20.0, 60.0])
@pytest.mark.parametrize(("tpot", "ttft"), [(0.004, None), (0.012, None), (None, 0.001)])
def test_a_target_out_of_reach_slows_nobody(tpot: float | None, ttft: float | None, batch: float) -> None:
    loop = aimed(Lucky(), tpot, ttft)
    loop.play(*[batch] * LOOKS)
    assert loop.memory.targets.missed_index is not None
    assert sum(loop.regret) / LOOKS <= lost_without_target(batch) + ALLOWED


def test_a_target_within_a_bucket_of_the_engine_slows_nobody() -> None:
    """vLLM tells 25 from 50 ms and nothing between: whether 30 ms are met cannot be known."""
    plain, asked = run(Lucky(bounds=BOUNDS), table=KTable.constant(4, 256)), aimed(Lucky(bounds=BOUNDS), tpot=0.03)
    for _ in range(60):
        plain.play(60.0)
        asked.play(60.0)
        assert asked.memory.table == plain.memory.table
