"""Acceptance priors: shape, order and continuation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.domain.spec import Method, Workload
from speculative_operator.physics.acceptance import conditionals, expected_tokens, extend, prior_survival


@given(st.sampled_from(list(Method)), st.sampled_from(list(Workload)), st.integers(0, 16))
def test_priors_are_survival_curves(method: Method, workload: Workload, k: int) -> None:
    survival = prior_survival(method, workload, k)
    assert survival.shape == (k,)
    assert np.all((survival > 0) & (survival < 1))
    assert np.all(np.diff(survival) <= 0)


def test_expected_tokens_counts_the_verifiers_own() -> None:
    assert expected_tokens([0.5, 0.25], 0) == 1.0
    assert expected_tokens([0.5, 0.25], 1) == 1.5
    assert expected_tokens([0.5, 0.25], 2) == 1.75
    assert expected_tokens([], 3) == 1.0


def test_known_positions_are_kept_and_continued() -> None:
    longer = extend(np.array([0.8, 0.6]), 4)
    conditional = 0.75
    assert longer[:2].tolist() == [0.8, 0.6]
    assert longer[2] == pytest.approx(0.6 * conditional * 0.95)
    assert longer[3] == pytest.approx(longer[2] * conditional * 0.95**2)


def test_nothing_known_stays_nothing() -> None:
    assert extend(np.array([]), 3).tolist() == [0.0, 0.0, 0.0]
    assert extend(np.array([0.0, 0.0]), 3).tolist() == [0.0, 0.0, 0.0]


def test_creative_text_is_harder_than_code() -> None:
    for method in (Method.DRAFT_MODEL, Method.EAGLE3, Method.NGRAM, Method.DFLASH):
        code, creative = (
            expected_tokens(prior_survival(method, workload, 5), 5) for workload in (Workload.CODE, Workload.CREATIVE)
        )
        assert creative < code


def test_conditionals_are_the_steps_of_survival() -> None:
    assert conditionals(np.array([0.8, 0.6, 0.0, 0.0])).tolist() == [0.8, pytest.approx(0.75), 0.0, 0.0]
    assert conditionals(np.zeros(0)).tolist() == []
