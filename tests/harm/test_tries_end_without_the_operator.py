"""Harm: a K that was to be tried slows serving for as long as operator or Prometheus are away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculative_operator.payload.speculative_blocks import MOST_BEHIND, Blocks
from speculative_operator.payload.speculative_table import BadTableError, parse

ALLOWED = (0, 1, 3, 7)
STEPS = 16


class Engine:
    """Steps at four requests: K 3 is in force, K 7 may be tried. Nobody writes another table."""

    def __init__(self, share: float, slower: float) -> None:
        """`slower`: seconds per token at K 7 over those at K 3."""
        self.blocks, self.k = Blocks(), 3
        self.blocks.put_in_force([(1, 8, 3)], [(1, 8, [7], share)], STEPS)
        self._seconds = {3: 0.04, 7: 0.08 * slower}

    def loss(self, steps: int) -> tuple[float, int]:
        """Of so many steps: seconds lost beside K 3 over seconds, and steps at K 7."""
        spent = lost = 0.0
        tried = 0
        for _ in range(steps):
            k, self.k = self.k, self.blocks.k_for(4)
            self.blocks.count(k, 4, 4, self._seconds[k], 4 * (k + 1), 0)
            tried += k == 7
            spent += self._seconds[k]
            lost += self._seconds[k] - (k + 1) * 0.01
        return lost / spent, tried


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_a_k_that_is_bad_is_never_tried_for_long(share: float) -> None:
    """A tenth slower or more: some blocks, and some again ever more seldom, for texts may have changed."""
    engine = Engine(share, 1.3)
    assert engine.loss(20_000)[0] < 0.006, "five blocks at first, and five more after the first rest"
    engine.loss(200_000)
    lost, tried = engine.loss(200_000)
    assert tried <= 4 * (5 * (STEPS + 2)), "five blocks of each of the three or four rests that end meanwhile"
    assert lost < 0.001


@pytest.mark.parametrize("slower", [2.5, 20.0, 1000.0])
def test_a_k_that_is_disastrous_is_never_tried_for_more_than_one_block(slower: float) -> None:
    engine = Engine(0.4, slower)
    tried = engine.loss(1_000)[1]
    assert tried <= STEPS + 2
    if slower >= 20:
        assert tried <= 5, "it ends as soon as it has taken three times the block before it"


def test_a_k_that_is_a_little_worse_is_tried_ever_more_seldom() -> None:
    engine = Engine(0.1, 1.05)
    shares = [engine.loss(100_000)[1] / 100_000 for _ in range(4)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < shares[0] / 2
    assert shares[-1] < 0.03


@settings(deadline=None)
@given(st.floats(0.01, 0.4), st.floats(0.25, 30.0))
def test_no_k_ever_costs_more_than_its_share(share: float, slower: float) -> None:
    lost, tried = Engine(share, slower).loss(4000)
    assert tried <= 4000 * share + STEPS + 2
    assert lost <= max(0.0, share * (slower - 1)) + 0.06


@pytest.mark.parametrize("slower", [1.0, 1.7, 10.0, 1000.0])
@pytest.mark.parametrize("lasting", [20, 10_000])
def test_a_drafter_that_catches_up_before_each_trial_costs_no_more_than_the_share(slower: float, lasting: int) -> None:
    """K 0 is in force, so that the drafter has missed all; with `lasting` steps it never has caught up. Such a step
    takes `slower` times one at K 0. One trial may cost its bound before the share is known to be spent."""
    blocks, verified, left, spent, extra, longest, run = Blocks(), 0, 0, 0.0, 0.0, 0.0, 0.0
    blocks.put_in_force([(1, 8, 0)], [(1, 8, [7], 0.1)], STEPS)
    for _ in range(20_000):
        k = blocks.k_for(4)
        left = lasting if not k else left - (left > 0)
        behind = k > 0 and left > 0
        seconds = 0.01 * slower if behind else 0.01
        blocks.count(verified, 4, 4, seconds, 4, 0, behind)
        spent, extra, run = spent + seconds, extra + seconds * (k > 0), run + seconds if k else 0.0
        longest, verified = max(longest, run), k
    assert longest <= 0.01 * (MOST_BEHIND + 2 * slower + 2 * STEPS + 2)
    assert extra <= 0.1 * spent + 2 * longest


@pytest.mark.parametrize(
    "tries",
    [
        None, 16, [], {}, {"steps": 16}, {"rows": []}, {"steps": 16, "rows": {}}, {"steps": 16, "rows": [[]]},
        {"steps": 16, "rows": [[1, 8, [7], 0.0]]}, {"steps": 16, "rows": [[1, 8, [7], 0.41]]},
        {"steps": 16, "rows": [[1, 8, [7], 1]]}, {"steps": 16, "rows": [[1, 8, [7], float("nan")]]},
        {"steps": 16, "rows": [[1, 8, [7], True]]}, {"steps": 16, "rows": [[1, 8, [7], "0.1"]]},
        {"steps": 16, "rows": [[1, 8, [2], 0.1]]}, {"steps": 16, "rows": [[1, 8, [], 0.1]]},
        {"steps": 16, "rows": [[1, 8, [7, 7], 0.1]]}, {"steps": 16, "rows": [[1, 8, 7, 0.1]]},
        {"steps": 16, "rows": [[1, 8, [7.0], 0.1]]}, {"steps": 16, "rows": [[1, 8, [[7]], 0.1]]},
        {"steps": 16, "rows": [[0, 8, [7], 0.1]]}, {"steps": 16, "rows": [[5, 4, [7], 0.1]]},
        {"steps": 16, "rows": [[1, 8.0, [7], 0.1]]}, {"steps": 16, "rows": [[1, 8, [7], 0.1, 1]]},
        {"steps": 16, "rows": [[1, 8, [7], 0.1], [8, 9, [7], 0.1]]},
        {"steps": 16, "rows": [[5, 8, [7], 0.1], [1, 4, [7], 0.1]]},
        {"steps": 3, "rows": []}, {"steps": 257, "rows": []}, {"steps": 16.0, "rows": []}, {"steps": True, "rows": []},
        {"steps": 16, "rows": [], "until": 5},
    ],
    ids=repr,
)  # fmt: skip
def test_tries_that_are_not_understood_are_never_carried_out(tries: Any) -> None:
    with pytest.raises(BadTableError, match='"try"'):
        parse(json.dumps({"version": 9, "rows": [[1, 8, 3]], "try": tries}), ALLOWED, 8)
