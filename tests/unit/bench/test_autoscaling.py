"""An autoscaler of replicas beside the tuner: the autoscaler alone, and a fleet on the plant."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from bench.autoscaling import (
    DOWN,
    DOWN_PAUSE,
    SYNC,
    UNKNOWN_LOAD,
    UP,
    Autoscaler,
    Figures,
    Fleet,
    described,
    judged,
    play,
)
from speculative_lab.plant import law
from speculative_lab.plant import layout as at


def played(autoscaler: Autoscaler, requests: float, seconds: float, load: float | None, since: float = 0.0) -> int:
    """Replicas after so long under the same load."""
    for look in range(round(seconds / SYNC)):
        autoscaler.look(since + look * SYNC, requests, load)
    return autoscaler.replicas


def test_an_autoscaler_finds_its_number_and_stays() -> None:
    one = Autoscaler()
    assert played(one, 100.0, UP + 3600.0, load=32.0) == 4
    assert [replicas for _, replicas in one.changes] == [4]


def test_a_load_that_is_not_told_counts_as_the_fixed_one() -> None:
    assert played(Autoscaler(), 100.0, 300.0, None) == played(Autoscaler(), 100.0, 300.0, UNKNOWN_LOAD) == 4


def test_replicas_go_late_and_one_at_a_time() -> None:
    one = Autoscaler(replicas=4)
    played(one, 100.0, 600.0, 32.0)
    played(one, 20.0, DOWN + 900.0, 32.0, since=600.0)
    went = [moment for moment, _ in one.changes]
    assert [replicas for _, replicas in one.changes] == [3, 2, 1]
    assert went[0] >= 600.0 + DOWN - SYNC
    assert min(after - before for before, after in pairwise(went)) >= DOWN_PAUSE


def test_replicas_that_come_and_go_lose_no_request() -> None:
    given = described("4m", 1, 0)
    fleet = Fleet(replace(given, seconds=1200.0), law.Tuner(given.policy, law.PLUG_IN))
    fleet.scale(2, 0.0, start=0.0)
    counts = []
    for second in range(1, 1201):
        for moment, count in ((30, 3), (60, 1), (90, 3)):
            if second == moment:
                fleet.scale(count, float(second))
        fleet.serve(float(second))
        counts.append(len(fleet.pods))
    assert (counts[0], counts[61], counts[-1]) == (2, 1, 3), "the third had not come yet when it was to go"
    assert fleet.requests == 0
    states = fleet._states
    rows = fleet._rows
    assert sum(int(state.counters[at.FINISHED]) for state in states) == int((rows[:, at.ARRIVE] < 1200.0).sum())


def test_the_loops_disturb_each_other_where_replicas_change_more_often_than_beside_every_k() -> None:
    fixed = [Figures("K = 0", 6, 6.0, 70.0, 60.0), Figures("K = 3", 4, 5.8, 112.0, 56.0)]
    calm, restless = Figures("tuned", 5, 4.2, 103.0, 55.0), Figures("tuned", 7, 4.2, 103.0, 55.0)
    assert judged([calm, *fixed])["ok"]
    assert judged([calm, *fixed])["best_fixed"] == "K = 3"
    assert not judged([restless, *fixed])["ok"]


@pytest.mark.parametrize("k", [None, 3])
def test_an_autoscaled_object_is_served(k: int | None) -> None:
    given = described("6m", 2, 0)
    found = play(given, k)
    assert found.speed > 0
    assert 0.1 < found.replica_hours < 0.8
