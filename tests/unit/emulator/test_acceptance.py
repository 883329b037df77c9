"""Acceptance follows the published survival, whatever differs between requests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_lab.emulator.acceptance import TENDENCIES, WORKLOADS, AcceptanceTable, accepted, centred
from speculative_operator.domain.spec import Method, Workload
from speculative_operator.physics.acceptance import prior_survival

SHIFTS = np.linspace(-1.0, 1.0, TENDENCIES)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_mean_over_drafts_is_the_published_survival(values: list[float]) -> None:
    survival = np.array(sorted(values, reverse=True))
    profile = centred(survival, SHIFTS)
    steps = 1.0 / (1.0 + profile.sum(axis=1))
    assert np.allclose(np.average(profile, axis=0, weights=steps), survival, atol=2e-3)
    assert (np.diff(profile, axis=1) <= 1e-12).all(), "survival falls with position"
    assert (np.diff(profile, axis=0) >= -1e-9).all(), "a better tendency is never worse"


def test_no_spread_is_one_profile() -> None:
    survival = np.array([0.7, 0.5])
    assert (centred(survival, np.zeros(TENDENCIES)) == survival).all()


def _accepted(table: AcceptanceTable, drafts: int, workload: Workload, draws: int) -> np.ndarray:
    row = WORKLOADS.index(workload)
    table.prepare(row)
    rng = np.random.default_rng(3)
    rows = np.full(draws, row)
    return accepted(table.survival(rows, rng.integers(TENDENCIES, size=draws), np.full(draws, drafts)), rng)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_counts_follow_survival(k: int) -> None:
    survival = prior_survival(Method.DRAFT_MODEL, Workload.CODE, 5)
    table = AcceptanceTable(5, lambda _: survival, 0.0, looks_up=False)
    draws = 40_000
    accepted = _accepted(table, k, Workload.CODE, draws)
    assert accepted.max() <= k
    for position in range(1, k + 1):
        expected = survival[position - 1]
        bound = 4.5 * np.sqrt(expected * (1 - expected) / draws)
        assert (accepted >= position).mean() == pytest.approx(expected, abs=bound)


def test_look_ups_split_survival_into_matches_and_their_acceptance() -> None:
    survival = np.array([0.3, 0.2])
    table = AcceptanceTable(2, lambda _: survival, 0.0, looks_up=True)
    accepted = _accepted(table, 2, Workload.CHAT, 40_000)
    row = np.full(40_000, WORKLOADS.index(Workload.CHAT))
    drafts = table.drafted(row, 2, np.random.default_rng(1))
    share = (drafts > 0).mean()
    assert share == pytest.approx(0.5, abs=0.015)
    assert set(drafts.tolist()) == {0, 2}
    assert share * (accepted >= 1).mean() == pytest.approx(0.3, abs=0.015)
    assert share * (accepted >= 2).mean() == pytest.approx(0.2, abs=0.015)


@pytest.mark.parametrize(("rate", "accepted"), [(0.0, 0), (1.0, 3)])
def test_useless_and_perfect_speculators(rate: float, accepted: int) -> None:
    table = AcceptanceTable(3, lambda _: np.full(3, rate), 0.5, looks_up=False)
    assert set(_accepted(table, 3, Workload.CHAT, 200).tolist()) == {accepted}


def test_no_speculation_drafts_nothing() -> None:
    table = AcceptanceTable(0, lambda _: np.zeros(0), 0.4, looks_up=False)
    table.prepare(0)
    assert table.drafted(np.zeros(3, dtype=np.int64), 0, np.random.default_rng(1)).tolist() == [0, 0, 0]
