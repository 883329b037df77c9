"""Acceptance: the shape and continuation of priors; across K the closed form, and the fit that must recover it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_lab.cases.workloads import across
from speculative_operator.domain.spec import Method, Workload
from speculative_operator.physics.acceptance import (
    LONGEST,
    RunLengths,
    conditionals,
    expected_tokens,
    extend,
    fit_run_lengths,
    prior_survival,
)

DATA = Path(__file__).parents[3] / "dev" / "data" / "published"

chances = st.floats(0.0, 0.95)
runs = st.builds(lambda w, a, b: RunLengths(w, max(a, b), min(a, b)), st.floats(0.0, 1.0), chances, chances)
curves = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=16).map(lambda values: sorted(values, reverse=True))


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


@given(runs, st.integers(1, 12))
def test_survival_is_the_renewal_sum(lengths: RunLengths, k: int) -> None:
    """`S_j(K) = (E[floor(L/(K+1))] + P(L mod (K+1) >= j)) / E[floor(L/(K+1)) + 1]`, summed over 3000 run lengths."""
    run = np.arange(3000)
    chance = lengths.w * (1 - lengths.p) * lengths.p**run + (1 - lengths.w) * (1 - lengths.q) * lengths.q**run
    whole = float(chance @ (run // (k + 1)))
    by_sum = [(whole + float(chance @ (run % (k + 1) >= j))) / (whole + 1.0) for j in range(1, k + 1)]
    assert lengths.survival(k) == pytest.approx(by_sum, abs=1e-9)
    assert lengths.length(k) == pytest.approx(float(chance @ (run + 1)) / (whole + 1.0), abs=1e-6)


@given(st.floats(0.0, 0.99), st.integers(1, 16), st.integers(0, 16))
def test_independent_acceptance_does_not_depend_on_k(chance: float, seen: int, wanted: int) -> None:
    fitted = fit_run_lengths([chance**j for j in range(1, seen + 1)])
    assert fitted.survival(wanted) == pytest.approx([chance**j for j in range(1, wanted + 1)], abs=0.004)


@given(runs, st.integers(3, 10), st.integers(1, 12))
def test_two_geometrics_are_recovered_at_another_k(lengths: RunLengths, seen: int, wanted: int) -> None:
    fitted = fit_run_lengths(lengths.survival(seen))
    assert fitted.survival(seen) == pytest.approx(lengths.survival(seen), abs=0.03)
    if wanted <= seen:
        assert fitted.length(wanted) == pytest.approx(lengths.length(wanted), rel=0.03)


@given(curves, st.integers(0, 16))
def test_any_curve_gives_a_curve(survival: list[float], k: int) -> None:
    fitted = fit_run_lengths(survival)
    assert 0.0 <= fitted.w <= 1.0
    assert 0.0 <= fitted.q <= fitted.p <= LONGEST
    for found in (fitted.survival(k), across(survival, k)):
        assert found.shape == (k,)
        assert np.all((found >= 0.0) & (found <= 1.0))
        assert np.all(np.diff(found) <= 1e-12)


@given(curves)
def test_across_keeps_what_was_seen(survival: list[float]) -> None:
    fitted = fit_run_lengths(survival).survival(len(survival))
    kept = across(survival, len(survival))
    followed = fitted > 1e-6
    assert kept[followed] == pytest.approx(np.asarray(survival)[followed], abs=1e-9)


def test_nothing_seen_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one position"):
        fit_run_lengths([])


def test_published_example() -> None:
    """CNN, n-gram, K = 3: AL(10) is 1.413; taking the conditionals over gives 1.570."""
    fitted = fit_run_lengths([0.1441, 0.1069, 0.0827])
    assert (fitted.w, fitted.p, fitted.q) == pytest.approx((0.123, 0.774, 0.007), abs=0.003)
    assert fitted.length(10) == pytest.approx(1.413, rel=0.003)


@pytest.mark.parametrize(("method", "mean", "largest"), [("ngram", 0.2, 0.8), ("eagle", 1.5, 7.0)])
def test_errors_across_k_of_published_replays(method: str, mean: float, largest: float) -> None:
    profiles = {row["profile_id"]: row for row in _rows("acceptance_profiles")}
    errors = []
    for row in _rows("crossK_bias"):
        if row["method"] == method:
            seen = int(row["K_observed"])
            profile = profiles[f"llama8b_{method}_{row['dataset']}_K{seen}"]
            survival = [float(profile[f"S{j}"]) for j in range(1, seen + 1)]
            predicted = fit_run_lengths(survival).length(int(row["K_predicted"]))
            errors.append(100.0 * abs(predicted / float(row["AL_true"]) - 1.0))
    assert len(errors) == 48
    assert np.mean(errors) <= mean
    assert max(errors) <= largest


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / f"{name}.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
