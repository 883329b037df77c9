"""The regression of step time recovers what it can see and keeps the prior where it cannot."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuner.plant import FACTS, KNOBS

from speculative_operator.domain.models import PairFacts
from speculative_operator.physics.catalog import find_accelerator
from speculative_operator.physics.step_time import hard_off_seconds, step_seconds
from speculative_operator.tuner.costs import (
    CostEvidence,
    CostModel,
    StepSample,
    learn_costs,
    off_terms,
    posterior,
    step_terms,
)
from speculative_operator.tuner.prior import Prior, cost_prior

PRIOR = cost_prior(FACTS, KNOBS)


def sample(batch: float, k: int, factors: tuple[float, ...], context: float = 1000.0) -> StepSample:
    terms = step_terms(PRIOR.costs, KNOBS, batch, k, context, batch * 5.0)
    return StepSample(tuple(terms.tolist()), float(terms @ np.array(factors)), 1.0, k)


def taught(samples: list[StepSample], prior: Prior = PRIOR, elapsed: float = 0.0) -> CostModel:
    evidence = CostEvidence()
    for one in samples:
        evidence = learn_costs(evidence, (one,), elapsed, prior, KNOBS)
    return posterior(evidence, prior, KNOBS)


@given(st.integers(1, 256), st.sampled_from(KNOBS.ks), st.floats(0, 1e5), st.floats(0, 1e5))
@settings(max_examples=50)
def test_terms_add_up_to_the_step(batch: int, k: int, context: float, prefill: float) -> None:
    terms = step_terms(PRIOR.costs, KNOBS, batch, k, context, prefill)
    assert terms.sum() == pytest.approx(float(step_seconds(PRIOR.costs, KNOBS, batch, k, context, prefill)))
    assert np.all(terms >= -1e-12)
    off = off_terms(PRIOR.costs, batch, context, prefill)
    assert off.sum() == pytest.approx(float(hard_off_seconds(PRIOR.costs, batch, context, prefill)))


def test_without_evidence_the_prior_speaks() -> None:
    model = taught([])
    assert model.theta == pytest.approx(np.zeros(5))
    terms = step_terms(PRIOR.costs, KNOBS, 8, 3, 500, 0)
    assert math.exp(float(model.log_seconds(terms))) == pytest.approx(float(terms.sum()))


def test_a_machine_twice_as_slow_is_learned_from_one_load() -> None:
    model = taught([sample(16, 3, (2.0,) * 5)] * 20)
    elsewhere = step_terms(PRIOR.costs, KNOBS, 100, 1, 1000, 500)
    assert math.exp(float(model.log_seconds(elsewhere))) == pytest.approx(2 * float(elsewhere.sum()), rel=0.15)


def test_each_term_is_told_apart_when_load_and_k_vary() -> None:
    factors = (1.2, 0.8, 1.3, 1.5, 0.9)
    samples = [
        sample(batch, k, factors, context)
        for _ in range(12)
        for batch in (1, 8, 60, 200)
        for k in (0, 2, 5)
        for context in (200.0, 4000.0)
    ]
    assert np.exp(taught(samples).theta) == pytest.approx(factors, rel=0.15)


def test_doubt_shrinks_with_evidence_and_returns_with_time() -> None:
    terms = step_terms(PRIOR.costs, KNOBS, 16, 3, 1000, 80)

    def doubt(model: CostModel) -> float:
        return float(model.deviation(model.shares(terms)))

    samples = (sample(16, 3, (1.0,) * 5),) * 10
    evidence = learn_costs(CostEvidence(), samples, 0.0, PRIOR, KNOBS)
    old = learn_costs(evidence, (), 9000.0, PRIOR, KNOBS)
    none, much, faded = (doubt(posterior(known, PRIOR, KNOBS)) for known in (CostEvidence(), evidence, old))
    assert much < faded < none
    assert faded - much > 0.3 * (none - much)


def test_one_wild_window_moves_little() -> None:
    wild = replace(sample(16, 3, (1.0,) * 5), seconds=100.0)
    model = taught([sample(16, 3, (1.0,) * 5)] * 20 + [wild])
    assert np.all(np.abs(model.theta) < 0.15)


def test_what_one_k_deviates_is_kept_apart() -> None:
    model = taught([sample(16, 2, (1.0,) * 5), sample(16, 3, (1.0,) * 5), sample(16, 4, (1.3,) * 5)] * 20)
    terms = step_terms(PRIOR.costs, KNOBS, 16, np.array([2, 3, 4]), 1000, 80)
    ratio = np.exp(model.log_seconds(terms, np.array([2, 3, 4]))) / terms.sum(axis=-1)
    assert ratio[2] == pytest.approx(1.3, rel=0.06)
    assert ratio[:2] == pytest.approx([1.0, 1.0], rel=0.06)


def test_a_weaker_prior_yields_sooner() -> None:
    unknown = cost_prior(PairFacts(), KNOBS)
    terms = step_terms(unknown.costs, KNOBS, 16, 3, 1000, 80)
    slow = StepSample(tuple(terms.tolist()), 4 * float(terms.sum()), 1.0, 3)
    model = taught([slow] * 8, unknown)
    assert math.exp(float(model.log_seconds(terms))) == pytest.approx(slow.seconds, rel=0.1)
    assert not unknown.known


def test_priors_are_chosen_by_what_is_known() -> None:
    other = replace(FACTS, accelerator=find_accelerator("L40S"))
    eight_bit = replace(FACTS, verifier=replace(FACTS.verifier, bytes_per_parameter=1.0)) if FACTS.verifier else FACTS
    costs = [cost_prior(facts, KNOBS).costs for facts in (FACTS, other, eight_bit, replace(FACTS, accelerators=2))]
    assert len({cost.fixed for cost in costs}) == 4
    assert cost_prior(FACTS, KNOBS).precision[0, 0] > cost_prior(other, KNOBS).precision[0, 0]
