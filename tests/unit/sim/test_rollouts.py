"""Where a table comes with a rollout: changed rarely, when it pays, and never worse than left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.sim.rigs import knobs, plant, steady

from speculative_lab.sim.experiment import run
from speculative_lab.sim.plant import Plant
from speculative_lab.sim.policies.fixed import Fixed
from speculative_lab.sim.policies.ours import Ours
from speculative_lab.sim.score import Run
from speculative_lab.sim.session import Session
from speculative_lab.sim.workload import Workload
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.vllm.adapter import ENGINE
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.tuner import initial_table

ROLLED = (Actuator.TABLE, Actuator.RESTART)
SECONDS = 3600.0
SCRAPE = 30.0
FACTS = PairFacts(
    find_model("meta-llama/Llama-3.1-8B-Instruct"),
    find_model("EAGLE3-LLaMA3.1-Instruct-8B"),
    find_accelerator("H100-SXM"),
)


def speed(found: Run) -> float:
    return float(found.tokens.sum() / found.request_seconds.sum())


def tuned(truth: Plant, load: Workload, actuator: Actuator, **more: object) -> tuple[Run, Ours]:
    """The tuner's run on a deployment whose pods are replaced for a table."""
    space = replace(truth.knobs, actuator=actuator)
    policy = Policy(mode=Mode.AUTO, knobs=space, facts=FACTS, **more)  # type: ignore[arg-type]  # fields by name
    tuner = Ours(Session(ENGINE, policy))
    tuner.interval = SCRAPE
    return run(replace(truth, knobs=space), load, tuner, SECONDS, 1), tuner


def left_alone(truth: Plant, load: Workload, actuator: Actuator) -> Run:
    """The same with the table that the tuner starts with, for ever."""
    space = replace(truth.knobs, actuator=actuator)
    table = initial_table(Policy(mode=Mode.AUTO, knobs=space, facts=FACTS))
    return run(replace(truth, knobs=space), load, Fixed("stay", table), SECONDS, 1)


def rollouts(tuner: Ours) -> list[float]:
    return tuner.journal.writes


@pytest.mark.parametrize("actuator", ROLLED)
def test_where_the_start_is_right_nothing_is_rolled(actuator: Actuator) -> None:
    _, tuner = tuned(plant(noise=0.05), steady(12), actuator)
    assert rollouts(tuner) == []


@pytest.mark.parametrize("actuator", ROLLED)
def test_drafts_that_fail_are_rolled_away_once_and_it_pays(actuator: Actuator) -> None:
    dying = steady(40, drift=((900.0, 0.0),))
    played, tuner = tuned(plant(noise=0.05), dying, actuator)
    (when,) = rollouts(tuner)
    assert 900.0 + 600.0 <= when < 900.0 + 1200.0
    assert speed(played) > 1.02 * speed(left_alone(plant(noise=0.05), dying, actuator))
    assert tuner.decisions[-1][1].table == KTable.constant(0, 64) or tuner.decisions[-1][1].table.k_at(40) == 0


@pytest.mark.parametrize("actuator", ROLLED)
def test_a_restless_load_is_not_followed_by_rollouts(actuator: Actuator) -> None:
    """Between 2 and 60 requests every ten minutes, with a drafter that dies and recovers by the quarter of an hour."""
    course = [(600.0 * n, 2 if n % 2 else 60) for n in range(6)]
    drift = tuple((900.0 * n, 0.3 if n % 2 else 1.0) for n in range(4))
    played, tuner = tuned(plant(noise=0.05), steady(course, drift=drift), actuator)
    assert len(rollouts(tuner)) <= 1
    assert speed(played) > 0.995 * speed(left_alone(plant(noise=0.05), steady(course, drift=drift), actuator))


def test_a_dear_rollout_is_left_when_a_cheap_one_is_made() -> None:
    dying = steady(40, drift=((900.0, 0.0),))
    _, dear = tuned(plant(noise=0.05), dying, Actuator.TABLE, start_seconds=3000.0)
    assert rollouts(dear) == []


@pytest.mark.parametrize("actuator", ROLLED)
def test_nothing_is_tried_by_a_rollout(actuator: Actuator) -> None:
    """A K that the model prices wrongly stays unknown where only a rollout could tell."""
    mispriced = plant(noise=0.05, k_factor=(1.0, 1.0, 1.0, 1.35))
    _, tuner = tuned(mispriced, steady(12), actuator)
    assert all(decision.trials == () for _, decision in tuner.decisions)
    assert len(rollouts(tuner)) <= 1


def test_k_that_may_only_fall_does_so_in_every_table() -> None:
    falling = plant(noise=0.05, knobs=knobs(falling=True))
    _, tuner = tuned(falling, steady([(0.0, 4), (3000.0, 40)]), Actuator.TABLE)
    for _, decision in tuner.decisions:
        ks = [band.k for band in decision.table]
        assert ks == sorted(ks, reverse=True)
