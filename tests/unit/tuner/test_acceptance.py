"""The acceptance posterior, and the exposure of positions when K was mixed in a window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tuner.plant import FACTS, KNOBS

from speculative_operator.domain.spec import Workload
from speculative_operator.domain.table import KTable
from speculative_operator.tuner.acceptance import (
    AcceptanceEvidence,
    DraftSample,
    acceptance,
    draft_sample,
    learn_acceptance,
    limited,
    usable_positions,
)
from speculative_operator.tuner.prior import acceptance_prior

PRIOR = acceptance_prior(FACTS, KNOBS, Workload.CHAT)
MIXED = KTable.from_rows([[1, 10, 4], [11, 40, 2], [41, 256, 0]])


def after(*samples: DraftSample) -> AcceptanceEvidence:
    evidence = AcceptanceEvidence()
    for sample in samples:
        evidence = learn_acceptance(evidence, sample, len(PRIOR))
    return evidence


def constant(conditional: float, drafts: float, k: int = 5) -> DraftSample:
    return draft_sample(drafts, tuple(drafts * conditional**j for j in range(1, k + 1)), k, 0.0)


def test_without_drafts_the_prior_speaks() -> None:
    model = acceptance(AcceptanceEvidence(), PRIOR)
    assert model.survival == pytest.approx(np.cumprod(PRIOR))
    assert model.length[0] == 1.0
    assert model.deviation[0] == 0.0


def test_evidence_wins_over_the_prior() -> None:
    model = acceptance(after(*[constant(0.9, 20_000)] * 3), PRIOR)
    assert model.survival[0] == pytest.approx(0.9, abs=0.01)
    assert model.length[5] == pytest.approx(1 + sum(0.9**j for j in range(1, 6)), rel=0.02)


def test_nothing_accepted_leaves_nothing() -> None:
    model = acceptance(after(*[constant(0.0, 20_000)] * 3), PRIOR)
    assert model.length[5] < 1.06


def test_unseen_positions_follow_the_seen_ones() -> None:
    good, bad = (acceptance(after(*[constant(a, 20_000, k=2)] * 3), PRIOR) for a in (0.9, 0.3))
    prior = acceptance(AcceptanceEvidence(), PRIOR)
    conditional = [float(model.survival[3] / model.survival[2]) for model in (good, prior, bad)]
    assert conditional[0] > conditional[1] > conditional[2]


def test_old_drafts_fade() -> None:
    evidence = after(*[constant(0.9, 20_000)] * 5, *[constant(0.5, 20_000)] * 4)
    assert acceptance(evidence, PRIOR).survival[0] == pytest.approx(0.5, abs=0.03)
    assert evidence.drafts < 20_000 / (1 - np.exp(-1)) + 1


def test_doubt_shrinks_with_drafts() -> None:
    few, many = (acceptance(after(constant(0.67, drafts)), PRIOR).deviation[3] for drafts in (100, 20_000))
    assert many < few / 2


@pytest.mark.parametrize(
    ("mean", "batch", "table", "expected"),
    [
        (4.0, 5, MIXED, (4, 0.0)),  # one K near this load
        (2.0, 30, MIXED, (2, 0.0)),
        (4.01, 10, MIXED, (4, 0.0)),  # both near, the mean says the larger throughout
        (2.0, 10, MIXED, (2, 0.0)),
        (3.0, 10, MIXED, (2, 0.0)),  # half 4 and half 2, or all 3: only two positions are sure
        (2.6, 10, MIXED, (2, 0.0)),
        (1.4, 30, KTable.from_rows([[1, 30, 2], [31, 256, 1]]), (1, pytest.approx(0.4))),  # two neighbours: solvable
        (3.0, 30, KTable.constant(5, 256), (3, 0.0)),  # the pods still run the table before
        (2.5, 30, KTable.constant(5, 256), (2, 0.0)),
        (0.7, 30, KTable.constant(0, 256), (0, 0.0)),
    ],
)
def test_only_positions_that_every_step_drafted_count(
    mean: float, batch: float, table: KTable, expected: tuple[int, float]
) -> None:
    assert usable_positions(mean, batch, (table,)) == expected


def test_a_recent_table_may_still_be_running() -> None:
    old, new = KTable.constant(4, 256), KTable.constant(1, 256)
    assert usable_positions(2.5, 30, (new, old)) == (1, 0.0)


def test_mixed_neighbours_do_not_look_like_rejections() -> None:
    # 400 drafts at K=1 and 600 at K=2, all accepted
    sample = draft_sample(1000.0, (1000.0, 600.0), 1, 0.6)
    assert sample.reached == pytest.approx((1000.0, 600.0))
    assert sample.accepted == pytest.approx((1000.0, 600.0))


def test_limiting_keeps_the_rate() -> None:
    evidence = after(*[constant(0.6, 20_000)] * 3)
    small = limited(evidence, 25.0)
    assert max(small.reached) == pytest.approx(25.0)
    assert small.accepted[0] / small.reached[0] == pytest.approx(0.6)
    assert limited(small, 100.0) == small


@given(
    st.lists(
        st.tuples(st.floats(0, 1e5), st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 6)), max_size=5
    )
)
def test_posteriors_are_survival_curves(windows: list[tuple[float, list[float], int]]) -> None:
    samples = [
        draft_sample(drafts, tuple(drafts * np.cumprod(conditional)), certain, 0.0)
        for drafts, conditional, certain in windows
    ]
    model = acceptance(after(*samples), PRIOR)
    assert np.all((model.survival >= 0) & (model.survival <= 1))
    assert np.all(np.diff(model.survival) <= 1e-12)
    assert np.all(np.isfinite(model.deviation))
    assert np.all(np.diff(model.length) >= 0)
