"""The interval of a speed over pods without a speculator: against samples, and by what it must not do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuner.plant import FACTS, KNOBS, policy

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.tuner.costs import CostModel
from speculative_operator.tuner.outlook import QUANTILE, outlook
from speculative_operator.tuner.plain_pods import IN_GRAPHS_SD, LAUNCHED_SD, host_deviation, span
from speculative_operator.tuner.prior import TERMS

HEAD = replace(FACTS, speculator=None, method=Method.EAGLE3)
PIECEWISE = replace(KNOBS, full_graphs=False)


OFF = np.array([6e-3, 0.2e-3, 0.3e-3, 0.0, 0.1e-3])
EARNED = 0.2
"""Log standard deviation of the tokens that a step yields."""


def terms_of(host: float) -> np.ndarray:
    """Seconds of a step of 8 requests at K = 3 whose drafting holds `host` seconds of the host; OFF has none of it."""
    return np.array([6e-3, 0.7e-3, 0.3e-3, 1e-3 + host, 0.1e-3])


def sampled(model: CostModel, host: float, host_sd: float) -> tuple[float, float]:
    """Distances of both ends from the middle, from 40,000 draws of the costs."""
    rng, first, on = np.random.default_rng(7), len(TERMS), terms_of(host)
    factors = np.exp(rng.multivariate_normal(np.zeros(first), model.covariance[:first, :first], 40_000))
    longer = np.exp(host_sd * rng.standard_normal(40_000)) - 1.0
    seconds = factors @ on + longer * host * factors[:, TERMS.index("drafting")]
    faster = EARNED * rng.standard_normal(40_000) - np.log(seconds) + np.log(factors @ OFF)
    low, high = np.quantile(faster, [0.1, 0.9])
    middle = np.log(OFF.sum() / on.sum())
    return float(middle - low), float(high - middle)


@pytest.mark.parametrize("host", [0.0, 0.3e-3, 3e-3, 8e-3])
@pytest.mark.parametrize("host_sd", [IN_GRAPHS_SD, LAUNCHED_SD])
def test_the_ends_are_those_of_samples(host: float, host_sd: float) -> None:
    model, on = outlook(policy(facts=HEAD)).costs, terms_of(host)
    apart = np.zeros(len(model.mean))
    apart[: len(TERMS)] = on / on.sum() - OFF / OFF.sum()
    wide = QUANTILE * np.hypot(model.deviation(apart), EARNED)
    found = span(float(wide), host / on.sum(), QUANTILE * host_sd)
    assert found == pytest.approx(sampled(model, host, host_sd), rel=0.2, abs=0.02)


def test_a_host_known_to_a_factor_only_reaches_further_down_than_up() -> None:
    below, above = span(0.2, 0.3, QUANTILE * LAUNCHED_SD)
    assert below > 1.3 * above


@pytest.mark.parametrize(
    ("facts", "knobs", "expected"),
    [
        (HEAD, KNOBS, IN_GRAPHS_SD),
        (HEAD, PIECEWISE, LAUNCHED_SD),
        (FACTS, KNOBS, LAUNCHED_SD),
        (PairFacts(method=Method.DRAFT_MODEL), KNOBS, LAUNCHED_SD),
    ],
)
def test_launching_layer_by_layer_is_the_wider_doubt(facts: PairFacts, knobs: object, expected: float) -> None:
    asked = policy(facts=facts, knobs=knobs)
    assert host_deviation(outlook(asked).costs, asked.facts, asked.knobs) == pytest.approx(expected)


def test_what_was_learned_of_drafting_takes_the_doubt_of_the_host() -> None:
    view = outlook(policy())
    drafting = TERMS.index("drafting")
    covariance = view.costs.covariance.copy()
    covariance[drafting, drafting] /= 100.0
    known = replace(view.costs, covariance=covariance)
    assert host_deviation(known, FACTS, KNOBS) == pytest.approx(LAUNCHED_SD / 10.0)


@settings(max_examples=60, deadline=None)
@given(
    row=st.integers(0, 200), column=st.integers(0, 5), head=st.booleans(), piecewise=st.booleans(), known=st.booleans()
)
def test_every_interval_is_finite_and_holds_its_middle(
    row: int, column: int, head: bool, piecewise: bool, known: bool
) -> None:
    facts = (HEAD if head else FACTS) if known else PairFacts()
    view = outlook(policy(facts=facts, knobs=PIECEWISE if piecewise else KNOBS))
    below, above = view.span_from_off(row % len(view.points), column % len(view.ks))
    assert 0.0 <= above < 3.0
    assert 0.0 <= below < 3.0
