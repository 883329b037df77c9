"""Runs: when a controller is called, that they repeat, and that the oracle's arithmetic is what the simulator does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from speculative_lab.sim import score
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.experiment import run
from speculative_lab.sim.oracle import (
    TableOracle,
    best_table,
    drift_factor,
    goodput,
    present_mix,
    present_share,
    true_lengths,
    typical_context,
    typical_prompts,
)
from speculative_lab.sim.pairs import PAIRS
from speculative_lab.sim.policies.base import Journal
from speculative_lab.sim.policies.fixed import Removed, constant
from speculative_lab.sim.policies.registry import RIVALS, references
from speculative_lab.sim.profiles import MIXED, classes
from speculative_lab.sim.scenarios import SHORT
from speculative_lab.sim.workload import Lengths, Phase, Workload, closed_loop, open_loop
from speculative_operator.domain.table import KTable

PLANT = PAIRS["eagle_h100"].plant()
CLASSES = classes(PAIRS["eagle_h100"].method)


def load(concurrency: int = 16, mix: tuple[float, ...] = MIXED) -> Workload:
    return closed_loop([(0.0, concurrency)], CLASSES, [Phase(0.0, mix, *SHORT)], np.random.default_rng(3))


class Watcher:
    """Notes when it was called."""

    name = "watcher"
    interval = 7.0

    def __init__(self) -> None:
        self.journal = Journal(writes=[30.0], removals=[40.0], shares={1: 2.0})
        self.times: list[float] = []

    def act(self, deployment: Deployment) -> None:
        self.times.append(deployment.now)


def test_a_controller_is_called_at_zero_and_then_in_its_pace() -> None:
    watcher = Watcher()
    found = run(PLANT, load(), watcher, 30.0, 1)
    assert watcher.times == [0.0, 7.0, 14.0, 21.0, 28.0]
    assert found.ends.tolist() == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
    assert found.request_seconds == pytest.approx([80.0] * 6)
    assert (found.writes, found.removals, found.shares) == ((30.0,), (40.0,), {1: 2.0})


@pytest.mark.parametrize("name", ["oracle", "off", "static_3", *RIVALS])
def test_every_policy_runs_and_repeats(name: str) -> None:
    def once() -> score.Run:
        maker = (references(PLANT) | dict(RIVALS))[name]
        work = load()
        return run(PLANT, work, maker(PLANT, work, 1), 30.0, 1)

    first, again = once(), once()
    assert first.tokens.tolist() == again.tokens.tolist()
    assert first.tokens.sum() > 0


def test_a_crash_costs_its_time() -> None:
    plant = replace(PLANT, restart_seconds=20.0)
    found = run(plant, load(), constant(0, plant.knobs), 60.0, 1, restarts=[(20.0, 0)])
    assert found.tokens[2:4].min() > 0
    assert found.tokens[5:7].sum() == 0
    assert found.tokens[9:].min() > 0


def test_pods_that_never_had_a_drafter_beat_those_that_unload_it() -> None:
    never = run(PLANT, load(), constant(0, PLANT.knobs), 300.0, 1, off=True)
    unloaded = run(PLANT, load(), Removed(), 300.0, 1)
    kept = run(PLANT, load(), constant(0, PLANT.knobs), 300.0, 1)
    assert score.speed(never) > 1.05 * score.speed(kept)
    assert score.speed(unloaded) < score.speed(never)
    assert score.speed(unloaded, 200.0) == pytest.approx(score.speed(never, 200.0), rel=0.02)


@pytest.mark.parametrize(("concurrency", "pair"), [(8, "eagle_h100"), (96, "eagle_h100"), (48, "ngram_h100")])
def test_the_oracles_goodput_is_what_the_simulator_gives(concurrency: int, pair: str) -> None:
    """Expected tokens per second against runs of constant K: within 3 %, all K of the deployment alike."""
    plant = replace(PAIRS[pair].plant(), noise=0.0)
    own = classes(PAIRS[pair].method)
    work = closed_loop(
        [(0.0, concurrency)], own, [Phase(0.0, MIXED, Lengths(400, 0.2), Lengths(300, 0.2))],
        np.random.default_rng(5),
    )  # fmt: skip
    lengths = true_lengths(plant.knobs.ks, work, 0.0)
    expected = goodput(plant, lengths, present_share(work, 0.0), typical_context(work), typical_prompts(work))
    for place, k in enumerate(plant.knobs.ks):
        measured = score.speed(run(plant, work, constant(k, plant.knobs), 200.0, 1))
        assert measured == pytest.approx(expected[concurrency - 1, place], rel=0.03), k


def test_the_oracle_takes_the_best_k_of_each_batch() -> None:
    work = load()
    lengths = true_lengths(PLANT.knobs.ks, work, 0.0)
    table = best_table(PLANT, lengths, 1.0, 650.0, 1.7)
    assert table.k_at(1) == 3
    assert table.k_at(256) == 1
    nothing = best_table(PLANT, np.ones(len(PLANT.knobs.ks)), 1.0, 650.0, 1.7)
    assert nothing == KTable.constant(0, 256)


def test_the_oracle_is_not_beaten_by_a_constant() -> None:
    work = load(150)
    oracle = run(PLANT, work, TableOracle(PLANT, work), 180.0, 1)
    for k in PLANT.knobs.ks:
        assert score.speed(run(PLANT, work, constant(k, PLANT.knobs), 180.0, 1)) < 1.005 * score.speed(oracle)


def test_the_present_mix_follows_arrivals_and_pools() -> None:
    phases = [Phase(0.0, (1, 0, 0, 0, 0, 0), *SHORT), Phase(300.0, (0, 0, 1, 0, 0, 0), *SHORT)]
    flow = open_loop(((0.0, 5.0),), 600.0, CLASSES, phases, np.random.default_rng(1), ((0.0, 1.0), (400.0, 0.25)))
    loop = closed_loop([(0.0, 8)], CLASSES, phases, np.random.default_rng(1))
    for work in (flow, loop):
        assert present_mix(work, 250.0).tolist() == [1, 0, 0, 0, 0, 0]
        assert present_mix(work, 365.0).tolist() == [0, 0, 1, 0, 0, 0]
    assert (drift_factor(flow, 399.0), drift_factor(flow, 400.0), drift_factor(loop, 9.0)) == (1.0, 0.25, 1.0)
    assert present_share(flow, 0.0) == 1.0
