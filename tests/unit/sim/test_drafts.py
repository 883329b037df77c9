"""Acceptance of a class: the closed form against the renewal formula, and against what the simulator counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sim.rigs import plant, steady

from speculative_lab.sim import layout as at
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.drafts import MIX, Drafts, dead, drafts_from, published, published_mix
from speculative_lab.sim.workload import Lengths
from speculative_operator.domain.spec import Method, Workload
from speculative_operator.domain.table import KTable
from speculative_operator.physics.acceptance import RunLengths, expected_tokens, prior_survival

chances = st.floats(0.0, 0.95)


@given(st.floats(0, 1), chances, chances, st.integers(0, 12))
def test_without_spread_it_is_the_renewal_formula(w: float, p: float, q: float, k: int) -> None:
    assert Drafts(w, p, q, spread=0.0).length(k) == pytest.approx(RunLengths(w, p, q).length(k), rel=1e-9)


@given(st.floats(0, 1), st.integers(1, 8))
def test_drift_thins_runs_between_nothing_and_all(factor: float, k: int) -> None:
    own = Drafts(0.8, 0.85, 0.3)
    assert own.length(k, 0.0) == 1.0
    assert 1.0 <= own.length(k, factor) <= own.length(k, 1.0) + 1e-12
    assert dead().length(k) == 1.0


@pytest.mark.parametrize(
    ("drafts", "factor"),
    [
        (Drafts(0.8, 0.85, 0.3, spread=0.0), 1.0),
        (Drafts(0.8, 0.85, 0.3, spread=0.6), 1.0),
        (Drafts(0.4, 0.9, 0.1, spread=0.3, draft_share=0.42), 1.0),
        (Drafts(0.8, 0.85, 0.3, spread=0.3), 0.5),
        (dead(), 1.0),
    ],
)
@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_simulator_counts_the_length_that_is_foretold(drafts: Drafts, factor: float, k: int) -> None:
    """Long answers, so that the last step's truncation does not show; 64 x 2000 tokens are within 1 %."""
    load = steady(64, drafts=drafts, prompt=Lengths(16), output=Lengths(2000), drift=((0.0, factor),))
    run = Deployment(plant(kv_tokens=1_000_000), load, table=KTable.constant(k, 64), seed=1)
    run.advance(300.0)
    seen = run.counters(0)
    tokens = (seen[at.GENERATION] - seen[at.FIRST_TOKENS]) / seen[at.REQUEST_STEPS]
    assert tokens == pytest.approx(drafts.length(k, factor), rel=0.012)
    assert seen[at.DRAFTED] / seen[at.REQUEST_STEPS] == pytest.approx(drafts.draft_share, rel=0.01)


@pytest.mark.parametrize("method", [Method.DFLASH, Method.EAGLE3, Method.DRAFT_MODEL, Method.NGRAM])
@pytest.mark.parametrize("workload", [workload for workload, _ in MIX])
def test_published_classes_keep_their_published_length(method: Method, workload: Workload) -> None:
    """The random effect moves the mean by a little, the two geometrics miss a rising hazard by a little."""
    length = published(method, workload).length(8)
    assert length == pytest.approx(expected_tokens(prior_survival(method, workload, 8), 8), rel=0.05)


def test_look_ups_draft_in_a_share_of_steps() -> None:
    assert published(Method.NGRAM, Workload.CODE).draft_share == pytest.approx(0.42)
    assert published(Method.EAGLE3, Workload.CODE).draft_share == 1.0
    assert drafts_from([0.3, 0.2], share=0.5, spread=0.0).length(2) == pytest.approx(1.5, abs=0.01)


def test_the_mix_is_whole() -> None:
    classes, shares = published_mix(Method.EAGLE3)
    assert len(classes) == len(shares) == 4
    assert sum(shares) == pytest.approx(1.0)
    assert np.all(np.diff([own.length(3) for own in classes[:2]]) < 0), "code is accepted more than JSON"
