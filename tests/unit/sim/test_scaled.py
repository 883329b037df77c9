"""An autoscaler of replicas beside the tuner: the loops do not excite each other, and K is the best one soon after each
step. A short form of `python -m bench.autoscaling`, and the autoscaler alone."""

from __future__ import annotations

import argparse
from itertools import pairwise

import pytest

from bench import autoscaling
from bench.autoscaling import MOST, judged
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.scaled import DOWN, DOWN_PAUSE, SYNC, UNKNOWN_LOAD, UP, Autoscaler

BEST_FIXED = 2


def played(autoscaler: Autoscaler, requests: float, seconds: float, load: float | None, since: float = 0.0) -> int:
    """Replicas after so long under the same load."""
    for look in range(round(seconds / SYNC)):
        autoscaler.look(since + look * SYNC, requests, load)
    return autoscaler.replicas


def test_an_autoscaler_finds_its_number_and_stays() -> None:
    one = Autoscaler(most=MOST)
    assert played(one, 100.0, UP + 3600.0, load=32.0) == 4
    assert [replicas for _, replicas in one.changes] == [4]


def test_a_load_that_is_not_told_counts_as_the_fixed_one() -> None:
    known = played(Autoscaler(most=MOST), 100.0, 300.0, UNKNOWN_LOAD)
    assert played(Autoscaler(most=MOST), 100.0, 300.0, None) == known == 4


def test_replicas_go_late_and_one_at_a_time() -> None:
    one = Autoscaler(most=MOST, replicas=4)
    played(one, 100.0, 600.0, 32.0)
    played(one, 20.0, DOWN + 900.0, 32.0, since=600.0)
    went = [at for at, _ in one.changes]
    assert [replicas for _, replicas in one.changes] == [3, 2, 1]
    assert went[0] >= 600.0 + DOWN - SYNC
    assert min(after - before for before, after in pairwise(went)) >= DOWN_PAUSE


@pytest.fixture(scope="module")
def figures() -> list[autoscaling.Figures]:
    """Tuned, and at the fixed K that serves fastest, over 25 minutes."""
    found = autoscaling.load(argparse.Namespace(seconds="25m", seed=0, times=5))
    return [autoscaling.play(found, k) for k in (None, BEST_FIXED)]


def test_replicas_change_no_more_often_than_with_a_fixed_k_and_k_is_the_best(
    figures: list[autoscaling.Figures],
) -> None:
    verdict = judged(figures)
    assert verdict["ok"], (verdict, figures)
    assert verdict["speed_over_best_fixed"] > 0.97
    assert figures[0].changes > 0, "nothing was shown"


def test_replicas_that_come_and_go_lose_no_request() -> None:
    found = autoscaling.load(argparse.Namespace(seconds="5m", seed=0, times=1))
    deployment = Deployment(found.plant, found.workload, 3)
    for at, count in ((0.0, 2), (30.0, 3), (60.0, 1), (90.0, 3), (400.0, 2)):
        deployment.advance(at)
        deployment.scale(count)
        if at == 60.0:
            assert len(deployment.pods()) == 1, "the third had not come yet, the second is gone"
    assert len(deployment.pods()) == 2
    deployment.advance(4000.0)
    totals = deployment.totals()
    assert totals.finished == len(found.workload.prompt)
    assert totals.alive == 0
