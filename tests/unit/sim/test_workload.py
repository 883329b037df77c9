"""Workloads: arrivals at their rates, lengths at their means, faults named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.sim.rigs import CODE, plant

from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.drafts import Drafts
from speculative_lab.sim.workload import Lengths, Phase, Workload, closed_loop, open_loop, poisson

OTHER = Drafts(0.5, 0.4, 0.1)


def test_lengths_have_their_mean_and_bounds() -> None:
    draws = Lengths(500.0, 0.8, longest=4000).sample(200_000, np.random.default_rng(0))
    assert draws.mean() == pytest.approx(500, rel=0.02)
    assert np.std(np.log(draws)) == pytest.approx(0.8, rel=0.03)
    assert 1 <= draws.min() < draws.max() <= 4000
    assert set(Lengths(7).sample(5, np.random.default_rng(0)).tolist()) == {7}


def test_arrivals_follow_the_rate_piece_by_piece() -> None:
    times = poisson(((0.0, 50.0), (100.0, 0.0), (200.0, 200.0), (900.0, 9.0)), 300.0, np.random.default_rng(1))
    counts = np.histogram(times, [0, 100, 200, 300])[0]
    assert counts[0] == pytest.approx(5000, rel=0.05)
    assert counts[1] == 0
    assert counts[2] == pytest.approx(20_000, rel=0.03)
    assert np.all(np.diff(times) >= 0)
    assert times.max() < 300.0


PHASES = (
    Phase(0.0, (1.0, 0.0), Lengths(10), Lengths(30)),
    Phase(50.0, (0.25, 0.75), Lengths(20), Lengths(40)),
)


def test_phases_of_an_open_loop_change_mix_and_lengths_in_time() -> None:
    load = open_loop(((0.0, 20.0),), 100.0, (CODE, OTHER), PHASES, np.random.default_rng(2))
    assert load.arrival is not None
    late = load.arrival >= 50.0
    assert set(load.prompt[~late].tolist()) == {10}
    assert set(load.output[late].tolist()) == {40}
    assert set(load.kind[~late].tolist()) == {0}
    assert load.kind[late].mean() == pytest.approx(0.75, abs=0.05)


def test_phases_of_a_closed_loop_change_what_is_drawn() -> None:
    load = closed_loop(((0.0, 10),), (CODE, OTHER), PHASES, np.random.default_rng(3))
    run = Deployment(plant(), load)
    run.advance(50.0)
    assert set(load.prompt[run.totals().row].tolist()) == {10}
    run.advance(100.0)
    totals = run.totals()
    later = totals.row[totals.end > 52.0]
    assert set(load.prompt[later].tolist()) == {20}
    assert load.kind[later].mean() == pytest.approx(0.75, abs=0.08)


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"output": np.array([1])}, "as many"),
        ({"prompt": np.array([0, 1])}, "at least 1 token"),
        ({"kind": np.array([0, 2])}, "places of the classes"),
        ({"concurrency": ((0.0, 2),)}, "either arrival"),
        ({"arrival": None}, "either arrival"),
        ({"arrival": np.array([2.0, 1.0])}, "ascending"),
        ({"drift": ((0.0, 1.5),)}, "drift"),
    ],
)
def test_a_workload_that_makes_no_sense_is_refused(changes: dict[str, Any], fragment: str) -> None:
    good: dict[str, Any] = {
        "prompt": np.array([3, 4]),
        "output": np.array([5, 6]),
        "kind": np.array([0, 1]),
        "classes": (CODE, OTHER),
        "arrival": np.array([0.0, 1.0]),
    }
    assert not Workload(**good).closed
    with pytest.raises(ValueError, match=fragment):
        Workload(**{**good, **changes})


def test_no_arrival_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="no request arrives"):
        open_loop(((0.0, 0.0),), 10.0, (CODE,), (Phase(0.0, (1.0,), Lengths(1), Lengths(1)),), np.random.default_rng(0))
