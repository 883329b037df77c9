"""The regression of step time recovers what it can see and keeps the prior where it cannot."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuner.plant import FACTS, KNOBS, policy

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.table import KTable
from speculative_operator.physics.catalog import find_accelerator
from speculative_operator.physics.step_time import plain_seconds, step_seconds
from speculative_operator.tuner import Memory
from speculative_operator.tuner.costs import (
    CostEvidence,
    CostModel,
    StepSample,
    learn_costs,
    off_terms,
    posterior,
    prefill_overlap,
    step_terms,
)
from speculative_operator.tuner.persistence import from_status, to_status
from speculative_operator.tuner.prior import TERMS, Array, Prior, basis_of, cost_prior

PRIOR = cost_prior(FACTS, KNOBS)
BASIS = basis_of(KNOBS)
RIGHT = (1.0,) * len(TERMS)
WIDE = ((1, 8, 60, 200), (0, 2, 5), (200.0, 4000.0))
"""Loads, K and contexts that tell every term apart."""


def terms_of(batch: float, k: float, context: float = 1000.0, prior: Prior = PRIOR) -> Array:
    b, ks, c, p = (np.asarray(value, dtype=float) for value in (batch, k, context, batch * 5.0))
    return step_terms(prior.costs, KNOBS, b, ks, c, p)


def sample(batch: float, k: int, factors: tuple[float, ...] = RIGHT, context: float = 1000.0) -> StepSample:
    terms = terms_of(batch, k, context)
    return StepSample(tuple(terms.tolist()), float(terms @ np.array(factors)), 1.0, batch * (k + 1.0), float(k))


def learned(samples: Iterable[StepSample], prior: Prior = PRIOR) -> CostEvidence:
    evidence = CostEvidence()
    for one in samples:
        evidence = learn_costs(evidence, (one,), 0.0, prior, KNOBS)
    return evidence


def taught(samples: Iterable[StepSample], prior: Prior = PRIOR) -> CostModel:
    return posterior(learned(samples, prior), prior, KNOBS)


def seconds(model: CostModel, batch: float, k: int, context: float = 1000.0) -> float:
    """Predicted step."""
    local = model.basis.local(np.asarray(batch * (k + 1.0)), np.asarray(float(k)))
    return math.exp(float(model.log_seconds(terms_of(batch, k, context, model.prior), local)))


def true_seconds(batch: float, k: int, factors: tuple[float, ...], context: float = 1000.0) -> float:
    return float(terms_of(batch, k, context) @ np.array(factors))


def doubt(model: CostModel, batch: float = 16, k: int = 3) -> float:
    local = model.basis.local(np.asarray(batch * (k + 1.0)), np.asarray(float(k)))
    return float(model.deviation(model.gradient(terms_of(batch, k), local)))


@given(st.integers(1, 256), st.sampled_from(KNOBS.ks), st.floats(0, 1e5), st.floats(0, 1e5))
@settings(max_examples=40, derandomize=True)
def test_terms_add_up_to_the_step(batch: int, k: int, context: float, prefill: float) -> None:
    b, ks, c, p = (np.asarray(value, dtype=float) for value in (batch, k, context, prefill))
    terms = step_terms(PRIOR.costs, KNOBS, b, ks, c, p)
    assert terms.sum() == pytest.approx(float(step_seconds(PRIOR.costs, KNOBS, b, ks, c, p * prefill_overlap(b))))
    assert np.all(terms >= -1e-12)
    off = off_terms(PRIOR.costs, b, c, p)
    assert off.sum() == pytest.approx(float(plain_seconds(PRIOR.costs, b, c, p * prefill_overlap(b))))


def test_a_prompt_that_meets_nobody_delays_nobody() -> None:
    shares = prefill_overlap(np.array([0.5, 1.0, 2.0, 8.0, 256.0]))
    assert shares[:2].tolist() == [0.0, 0.0]
    assert np.all(np.diff(shares[1:]) > 0)
    assert 0.99 < shares[-1] <= 1.0


@given(st.floats(0, 1e5), st.floats(0, 9))
@settings(max_examples=40, derandomize=True)
def test_columns_of_form_are_shares(tokens: float, k: float) -> None:
    columns = BASIS.local(np.asarray(tokens), np.asarray(k))
    assert columns.shape == (BASIS.knots + len(BASIS.ks),)
    assert np.all(columns >= 0)
    assert columns[: BASIS.knots].sum() == pytest.approx(1.0)
    assert columns[BASIS.knots :].sum() == pytest.approx(1.0) if k <= 5 else columns[BASIS.knots :].sum() <= 1.0
    assert np.all(BASIS.local(np.asarray(tokens), None)[BASIS.knots :] == 0)


def test_a_size_of_a_power_of_two_is_one_knot_and_a_mean_k_a_share_of_two() -> None:
    columns = BASIS.local(np.asarray(64.0), np.asarray(2.25))
    assert np.flatnonzero(columns[: BASIS.knots]).tolist() == [6]
    assert columns[BASIS.knots :].tolist() == [0, 0, 0.75, 0.25, 0, 0]


def test_the_basis_covers_the_fullest_step() -> None:
    for knobs in (KNOBS, replace(KNOBS, max_batch=1), replace(KNOBS, ks=(0,), max_batch=1), replace(KNOBS, ks=())):
        basis = basis_of(knobs)
        assert 2 ** (basis.knots - 1) >= knobs.max_batch * (max((*knobs.ks, 0)) + 1)
        assert basis.prior_precision(np.eye(len(TERMS))).shape == (basis.size, basis.size)


def test_without_evidence_the_prior_speaks() -> None:
    assert seconds(taught([]), 8, 3, 500.0) == pytest.approx(true_seconds(8, 3, RIGHT, 500.0))


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_machine_of_another_speed_is_learned_from_one_load(factor: float) -> None:
    factors = (factor,) * len(TERMS)
    model = taught([sample(16, 3, factors)] * 20)
    assert seconds(model, 16, 3) == pytest.approx(true_seconds(16, 3, factors), rel=0.03)
    assert seconds(model, 100, 1) == pytest.approx(true_seconds(100, 1, factors), rel=0.2)


@given(st.tuples(*[st.floats(0.7, 1.4)] * len(TERMS)))
@settings(max_examples=8, derandomize=True, deadline=None)
def test_true_factors_are_recovered_from_several_loads(factors: tuple[float, ...]) -> None:
    batches, ks, contexts = WIDE
    model = taught(sample(b, k, factors, c) for _ in range(8) for b in batches for k in ks for c in contexts)
    for batch, k, context in [(1, 1, 1000.0), (30, 3, 500.0), (120, 4, 2000.0), (250, 0, 3000.0)]:
        assert seconds(model, batch, k, context) == pytest.approx(true_seconds(batch, k, factors, context), rel=0.06)


def test_factors_go_to_their_terms_when_load_and_k_vary() -> None:
    factors = (1.2, 0.8, 1.3, 1.5, 0.9)
    batches, ks, contexts = WIDE
    model = taught(sample(b, k, factors, c) for _ in range(12) for b in batches for k in ks for c in contexts)
    found = np.exp(model.mean[: len(TERMS)])
    assert found[[1, 2]] == pytest.approx([0.8, 1.3], rel=0.15)
    assert found[3] > 1.15


def spells(seed: int, k: int, count: int, slow: float = 1.5) -> list[StepSample]:
    """Windows of one load and K of which a third, in runs of four, took `slow` times as long."""
    rng = np.random.default_rng(seed)
    runs = np.repeat(rng.random(count // 4 + 1) < 0.33, 4)[:count]
    return [replace(sample(16, k), seconds=sample(16, k).seconds * (slow if run else 1.0)) for run in runs]


def test_on_a_restless_engine_a_slow_spell_is_not_the_k_that_ran_in_it() -> None:
    slow = [replace(sample(16, 2), seconds=1.5 * sample(16, 2).seconds)] * 4
    calm, restless = (taught([*before, *slow]) for before in ([sample(16, 3)] * 60, spells(1, 3, 60)))
    true = true_seconds(16, 2, RIGHT) / true_seconds(16, 3, RIGHT)
    assert calm.unrest < 0.12 < restless.unrest < 0.4
    booked = [math.log(seconds(one, 16, 2) / seconds(one, 16, 3) / true) for one in (calm, restless)]
    assert booked[0] > 0.1
    assert abs(booked[1]) < 0.75 * booked[0]
    assert doubt(restless) > 1.5 * doubt(calm)


def test_unrest_passes() -> None:
    after = learned([*spells(1, 3, 60), *[sample(16, 3)] * 200])
    assert math.sqrt(after.unrest) < 0.03


def test_a_k_that_is_dearer_than_thought_is_no_unrest() -> None:
    dear = replace(sample(16, 3), seconds=1.3 * sample(16, 3).seconds)
    assert math.sqrt(learned([*[sample(16, 2)] * 20, *[dear] * 20]).unrest) < 0.08


def test_a_bad_k_is_learned_as_that_k_alone() -> None:
    bad = replace(sample(16, 4), seconds=1.3 * sample(16, 4).seconds)
    model = taught([sample(16, 2), sample(16, 3), bad] * 20)
    ratio = [seconds(model, 16, k) / true_seconds(16, k, RIGHT) for k in (2, 3, 4)]
    assert ratio == pytest.approx([1.0, 1.0, 1.3], rel=0.05)
    at_k = dict(zip(KNOBS.ks, model.mean[len(TERMS) + BASIS.knots :], strict=True))
    assert max(at_k, key=lambda k: at_k[k]) == 4
    # the same K at another load is taken to be bad too, K elsewhere is not
    assert seconds(model, 60, 4) > 1.1 * true_seconds(60, 4, RIGHT)
    assert seconds(model, 60, 2) == pytest.approx(true_seconds(60, 2, RIGHT), rel=0.06)


def test_a_knee_is_learned_as_a_size() -> None:
    """Above 128 verified tokens steps take half as long again, whatever the K."""

    def seen(batch: float, k: int) -> StepSample:
        plain = sample(batch, k)
        return replace(plain, seconds=plain.seconds * (1.5 if plain.tokens > 128 else 1.0))

    pairs = [(8, 1), (16, 3), (40, 1), (64, 1), (64, 3), (100, 1), (100, 3), (200, 1), (200, 3)]
    model = taught(seen(b, k) for _ in range(15) for b, k in pairs)
    for batch, k in pairs:
        assert seconds(model, batch, k) == pytest.approx(seen(batch, k).seconds, rel=0.08)
    assert seconds(model, 32, 2) == pytest.approx(true_seconds(32, 2, RIGHT), rel=0.12)
    assert seconds(model, 150, 2) == pytest.approx(1.5 * true_seconds(150, 2, RIGHT), rel=0.12)


@pytest.mark.parametrize("absurd", [1e-5, 100.0, 1e6])
def test_one_wild_window_moves_little(absurd: float) -> None:
    before = [sample(16, 3)] * 20
    sane, shaken = taught(before), taught([*before, replace(sample(16, 3), seconds=absurd)])
    assert seconds(shaken, 16, 3) == pytest.approx(seconds(sane, 16, 3), rel=0.05)
    assert seconds(shaken, 100, 1) == pytest.approx(seconds(sane, 100, 1), rel=0.1)


def test_a_lasting_change_is_believed_all_the_same() -> None:
    slower = replace(sample(16, 3), seconds=1.5 * sample(16, 3).seconds)
    model = taught([sample(16, 3)] * 20 + [slower] * 40)
    assert seconds(model, 16, 3) == pytest.approx(slower.seconds, rel=0.06)


def test_time_takes_certainty_and_leaves_the_estimate() -> None:
    samples = [sample(16, 3, (1.3,) * 5)] * 10
    evidence = learned(samples)
    old = learn_costs(evidence, (), 9000.0, PRIOR, KNOBS)
    assert old.mean == pytest.approx(evidence.mean)
    none, much, faded = (doubt(posterior(known, PRIOR, KNOBS)) for known in (CostEvidence(), evidence, old))
    assert much < faded < none
    ancient = posterior(learn_costs(evidence, (), 1e9, PRIOR, KNOBS), PRIOR, KNOBS)
    assert doubt(ancient) == pytest.approx(none, rel=0.01)


def test_a_clock_that_went_backwards_fades_nothing() -> None:
    evidence = learned([sample(16, 3)])
    assert learn_costs(evidence, (), -1e9, PRIOR, KNOBS).precision == pytest.approx(evidence.precision)


def test_weight_is_worth_windows() -> None:
    once = learned([replace(sample(16, 3), weight=4.0)])
    often = learned([sample(16, 3)] * 4)
    assert once.precision == pytest.approx(often.precision, rel=1e-6)


def test_the_order_of_samples_in_one_look_does_not_matter() -> None:
    samples = tuple(sample(b, k, (1.2, 0.9, 1.1, 1.0, 1.0)) for b in (3, 30, 90) for k in (0, 3))
    there, back = (learn_costs(CostEvidence(), s, 0.0, PRIOR, KNOBS) for s in (samples, samples[::-1]))
    assert there.mean == pytest.approx(back.mean, abs=1e-9)
    assert there.precision == pytest.approx(back.precision, rel=1e-9)


@given(
    st.lists(
        st.tuples(st.integers(1, 256), st.integers(0, 5), st.floats(1e-5, 1e5), st.floats(0.01, 4.0)),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=40, derandomize=True, deadline=None)
def test_whatever_steps_take_predictions_stay_finite(windows: list[tuple[int, int, float, float]]) -> None:
    model = taught(replace(sample(b, k), seconds=took, weight=weight) for b, k, took, weight in windows)
    for batch, k in [(1, 0), (1, 5), (256, 0), (256, 5)]:
        assert 0 < seconds(model, batch, k) < math.inf
        assert 0 < doubt(model, batch, k) < 3.0
    assert np.all(np.linalg.eigvalsh(model.covariance) > 0)


def test_a_weaker_prior_yields_sooner() -> None:
    unknown = cost_prior(PairFacts(), KNOBS)
    terms = terms_of(16, 3, prior=unknown)
    slow = StepSample(tuple(terms.tolist()), 4 * float(terms.sum()), 1.0, 64.0, 3.0)
    assert seconds(taught([slow] * 8, unknown), 16, 3) == pytest.approx(slow.seconds, rel=0.1)
    assert not unknown.from_models


def test_other_knobs_drop_what_was_gathered_in_other_coordinates() -> None:
    evidence = learned([sample(16, 3, (2.0,) * 5)] * 5)
    fewer = replace(KNOBS, ks=(0, 1, 2))
    model = posterior(evidence, cost_prior(FACTS, fewer), fewer)
    assert np.all(model.mean == 0)


class TestRestart:
    """Evidence of costs through status and back."""

    asked = policy()
    factors = (1.3, 0.8, 1.2, 1.4, 0.9)

    def evidence(self) -> CostEvidence:
        batches, ks, contexts = WIDE
        seen = [sample(b, k, self.factors, c) for _ in range(6) for b in batches for k in ks for c in contexts]
        seen += [replace(sample(16, 3), seconds=1.4 * true_seconds(16, 3, self.factors))] * 10
        return learned(seen)

    def through_status(self, change: Mapping[str, object] = {}) -> CostEvidence:  # never written to
        memory = replace(Memory.fresh(KTable.constant(3, 256), 0.0), costs=self.evidence())
        stored = json.loads(json.dumps(to_status(memory) | dict(change)))
        assert change or len(json.dumps(stored)) < 4096
        return from_status(stored, self.asked).costs

    def test_predictions_survive(self) -> None:
        before, after = (posterior(known, PRIOR, KNOBS) for known in (self.evidence(), self.through_status()))
        for batch in (1, 8, 60, 200):
            for k in KNOBS.ks:
                assert seconds(after, batch, k) == pytest.approx(seconds(before, batch, k), rel=0.02)
                assert doubt(after, batch, k) < doubt(taught([]), batch, k)

    @pytest.mark.parametrize(
        "change",
        [
            {"mean": "0 0 0"},
            {"mean": None},
            {"mean": "nan"},
            {"mean": "1e300 " * BASIS.size},
            {"precision": "1 2 3"},
            {"precision": "inf " * 40},
            {"precision": [1.0]},
        ],
        ids=str,
    )
    def test_odd_data_is_the_prior(self, change: dict[str, object]) -> None:
        model = posterior(self.through_status(change), PRIOR, KNOBS)
        assert np.all(model.mean == 0)
        assert doubt(model) == pytest.approx(doubt(taught([])))

    def test_wild_means_are_cut_to_what_a_step_can_cost(self) -> None:
        evidence = self.through_status({"mean": " ".join(["1e6"] * BASIS.size)})
        assert np.all(np.abs(evidence.mean) <= 3.0)

    def test_a_precision_that_is_none_is_made_one(self) -> None:
        stored = self.through_status({"precision": " ".join(["-5"] * (15 + BASIS.size - len(TERMS)))})
        assert np.all(np.linalg.eigvalsh(stored.precision) >= -1e-9)


def test_priors_are_chosen_by_what_is_known() -> None:
    other = replace(FACTS, accelerator=find_accelerator("L40S"))
    eight_bit = replace(FACTS, verifier=replace(FACTS.verifier, bytes_per_parameter=1.0)) if FACTS.verifier else FACTS
    costs = [cost_prior(facts, KNOBS).costs for facts in (FACTS, other, eight_bit, replace(FACTS, accelerators=2))]
    assert len({cost.fixed for cost in costs}) == 4
    assert cost_prior(FACTS, KNOBS).precision[0, 0] > cost_prior(other, KNOBS).precision[0, 0]
