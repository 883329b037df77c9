"""Acceptance to throughput: the published points, and the shape of the curves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_lab.cases.relation import CAPS, PUBLISHED, curves, decode_gain, end_to_end_gain


@pytest.mark.parametrize(("acceptance", "gain"), PUBLISHED)
def test_published_points_follow_from_the_stated_assumptions(acceptance: float, gain: float) -> None:
    assert end_to_end_gain(acceptance) == pytest.approx(gain, rel=0.01)


def test_decoding_gains_up_to_the_published_cap() -> None:
    assert decode_gain(1.0, cap=10.0) == pytest.approx(CAPS["structured"], rel=0.01)
    assert decode_gain(0.0) == pytest.approx(1.0 / 1.33)
    assert decode_gain([0.5, 0.5], k=1, draft_cost=0.0).tolist() == [1.5, 1.5]


@given(st.floats(0.0, 1.0), st.integers(1, 16), st.floats(0.0, 0.5), st.floats(0.0, 1.0))
def test_whole_requests_gain_less_than_decoding(acceptance: float, k: int, cost: float, share: float) -> None:
    decoding = float(decode_gain(acceptance, k, cost))
    whole = end_to_end_gain(acceptance, k, cost, share)
    assert min(decoding, 1.0) - 1e-9 <= whole <= max(decoding, 1.0) + 1e-9


def test_curves_rise_and_lower_caps_lie_below() -> None:
    found = curves()
    assert set(found) == {"acceptance", *CAPS}
    for name in CAPS:
        assert np.all(np.diff(found[name]) >= 0.0)
    assert np.all(found["structured"] >= found["code"])
    assert np.all(found["code"] >= found["language"])
    assert found["language"][-1] == pytest.approx(1.0 / (0.38 + 0.62 / 2.0))
