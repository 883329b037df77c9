"""Fitting the global constants: known ones are found again, and what was left out is told apart."""

from __future__ import annotations

import dataclasses

import pytest

from speculative_lab.cases.fitting import PRIOR_SPREADS, fit, leave_one_out
from speculative_lab.cases.prediction import predict_case
from speculative_lab.cases.rows import Case, read_case
from speculative_operator.physics.hardware import FITTED

ROW = {"model": "Llama-3.1-8B", "gpu": "H100", "method": "eagle3", "K": "3", "load_kind": "batch"}


def cases(launch: float) -> list[Case]:
    """Results of two sources as a machine with that launch factor would show them."""
    truth = dataclasses.replace(FITTED, launch=launch)
    found = []
    for source, dataset in (("one", "GSM8K"), ("two", "CNN")):
        for load in ("1", "4", "16", "64"):
            for method in ("eagle3", "ngram", "draft_model"):
                case = read_case({**ROW, "source": source, "dataset": dataset, "load": load, "method": method})
                found.append(dataclasses.replace(case, speedup=predict_case(case, truth).predicted))
    return found


def test_every_constant_has_a_spread() -> None:
    assert set(PRIOR_SPREADS) <= {field.name for field in dataclasses.fields(FITTED)}


@pytest.mark.parametrize("launch", [0.5, 1.8])
def test_results_move_the_constant_that_made_them(launch: float) -> None:
    found = fit(cases(launch))
    assert (found.launch - 1.0) * (launch - 1.0) > 0.03
    before = sum(abs(predict_case(case).log_error or 0.0) for case in cases(launch))
    after = sum(abs(predict_case(case, found).log_error or 0.0) for case in cases(launch))
    assert after <= before * 0.75  # two sources are two votes against the priors


def test_what_the_constants_explain_leaves_them() -> None:
    assert dataclasses.astuple(fit(cases(1.0))) == pytest.approx(dataclasses.astuple(FITTED), rel=1e-6)


def test_without_results_the_priors_stand() -> None:
    assert fit([]) == FITTED
    assert leave_one_out([])[1] == []


def test_each_source_is_left_out_once_and_judges_only_itself() -> None:
    everything = cases(1.8)
    spoilt = dataclasses.replace(everything[0], source="liar", speedup=20.0)
    simulated = dataclasses.replace(everything[0], source="simulator", simulated=True)
    recalled = dataclasses.replace(everything[0], source="recalled", evidence="unverified")
    found = leave_one_out([*everything, spoilt, simulated, recalled])[1]
    assert [one.source for one in found] == ["one", "two", "liar"]
    assert [one.rows for one in found] == [12, 12, 1]
    assert found[2].error_left_out > 1.0
    honest = leave_one_out(everything)[1]
    assert all(one.error_fitted < one.error_shipped for one in honest)
    assert all(one.error_fitted <= one.error_left_out < one.error_shipped for one in honest)
