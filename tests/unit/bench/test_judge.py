"""The judge: what it calls regret, unsafe, comparing and cost, on figures made by hand, and a whole world once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.tuner.judge import Row, ask, judge, regret
from bench.tuner.report import page, recipe_of, verdict
from speculative_lab.plant import layout as at
from speculative_lab.plant.comparing import less, lost_request_seconds
from speculative_lab.plant.draw import world
from speculative_lab.plant.law import COUNTERS, PLUG_IN
from speculative_lab.plant.oracle import search
from speculative_lab.plant.serving import Outcome, unsafe
from speculative_lab.plant.world import Wish
from speculative_operator.domain.observation import BlockTotals, Comparison


def outcome(speeds: list[float], residence: float = 100.0) -> Outcome:
    """A run with these speeds by minute."""
    minutes = np.zeros((len(speeds), at.MINUTE_FIELDS))
    minutes[:, at.M_RESIDENCE] = residence
    minutes[:, at.M_TOKENS] = np.array(speeds) * residence
    return Outcome(minutes, np.array([0.01, 0.02]), np.array([0.1, 0.2]))


def test_regret_is_the_share_of_speed_that_was_lost() -> None:
    assert regret(outcome([9.0] * 4), outcome([10.0] * 4)) == 10.0


def test_windows_of_restarts_and_of_hardly_any_load_do_not_count() -> None:
    drawn = world(3, 1, 660.0)
    drawn = replace(drawn, replicas=tuple(replace(r, restart=None) for r in drawn.replicas))
    slow, never = outcome([1.0] * 6 + [9.0] * 5), outcome([1.0] * 6 + [10.0] * 5)
    assert unsafe(drawn, slow, never) == [0.0, 10.0]
    assert unsafe(drawn, outcome([1.0] * 11, 1.0), never) == []
    away = (replace(drawn.replicas[0], restart=(420.0, 460.0)), *drawn.replicas[1:])
    assert unsafe(replace(drawn, replicas=away), slow, never) == [0.0]


def test_exploring_costs_what_tried_blocks_take_longer_for_their_tokens() -> None:
    tried, beside = BlockTotals(16, 2.0, 32, 4.0, 40), BlockTotals(32, 3.0, 64, 6.0, 80)
    first = Comparison(3, 2, 1, 4, 1.0, tried, beside, 0.1, 0.1)
    assert lost_request_seconds([first]) == pytest.approx(1.0)
    twice = replace(first, blocks=2.0, trial=BlockTotals(*(2 * v for v in (16, 2.0, 32, 4.0, 40, 0.0))))
    assert less(twice, first).blocks == 1.0
    assert less(twice, first).trial.tokens == 40


@pytest.mark.parametrize("kind", ["loose", "attainable", "unattainable"])
def test_a_wish_becomes_a_target_of_its_kind(kind: str) -> None:
    drawn = world(3, 11, 180.0)
    best = search(drawn)
    factor = {"loose": 3.0, "attainable": 1.1, "unattainable": 0.5}[kind]
    asked = ask(replace(drawn, wish=Wish(kind, "tpot", factor)), best)
    assert asked.target is not None
    assert asked.policy.objective.tpot_p99_seconds == asked.target
    least = min(run.p99("tpot") for run in best.constants)
    assert asked.reachable == (kind != "unattainable")
    assert (asked.target > least) == asked.reachable
    if asked.reachable:
        assert asked.oracle.p99("tpot") <= asked.target


@pytest.mark.parametrize(
    ("row", "recipe"),
    [
        ({"open": 1.0, "lump": 8.0, "prompt": 6000, "answer": 60}, "open lumps, long prompts"),
        ({"open": 0.5, "lump": 1.0, "prompt": 599, "answer": 60}, "mixed, short prompts"),
        ({"open": 0.0, "lump": 8.0, "prompt": 600, "answer": 60}, "closed, long prompts"),
    ],
)
def test_loads_are_told_apart_by_how_they_come_and_by_their_prompts(row: Row, recipe: str) -> None:
    assert recipe_of(row) == recipe


def test_a_world_is_judged_from_end_to_end() -> None:
    forms = (PLUG_IN, COUNTERS)
    row = judge(world(3, 1, 180.0), forms)
    assert row["off"] >= row["constant"] >= 0
    assert set(row["laws"]) == set(forms)
    for form in forms:
        assert row["laws"][form]["regret"] < 100
    assert "random" in page([row], forms, 3)
    told = verdict([row], forms, 3, 3.0)
    assert told["worlds"] == 1
    assert set(told["laws"]) == {*forms, "constant", "off"}
