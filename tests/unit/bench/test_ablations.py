"""The variants of `make bench-ablations`: each takes out what it names, and leaves nothing behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.ablations.measure import figures
from bench.ablations.variants import VARIANTS, WHOLE, Variant, applied, owner_of
from bench.tuner.judge import Row
from speculative_lab.sim.pairs import PAIRS
from speculative_operator.tuner.acceptance import AcceptanceEvidence
from speculative_operator.tuner.outlook import INFEASIBLE, Outlook, outlook

ROW = Row("burst", 1, False, 2.0, 0.0, "static_3", 0, 0, 10, 1.0, 12.0, 0.0, None, (), False, None, False, {}, 1.0)


def look() -> Outlook:
    """Evidence at K = 3 of drafts that come in runs, so that another K differs by what is thought of runs."""
    pair = PAIRS["ngram_h100"]
    reached, accepted = (10_000.0, 1441.0, 1069.0), (1441.0, 1069.0, 827.0)
    return outlook(pair.policy(pair.plant()), None, AcceptanceEvidence(reached, accepted, 100_000.0, 3.0))


def named(name: str) -> Variant:
    return next(one for one in VARIANTS if one.name == name)


def standing(variant: Variant) -> list[Any]:
    return [getattr(*owner_of(path)) for path in variant.patches]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_a_variant_is_in_force_inside_and_gone_outside(variant: Variant) -> None:
    before = standing(variant)
    with applied(variant):
        inside = standing(variant)
    assert all(new != old for new, old in zip(inside, before, strict=True)), "a patch that changes nothing"
    assert all(new is old for new, old in zip(standing(variant), before, strict=True))


def test_a_run_that_fails_leaves_nothing_behind() -> None:
    variant = named("no_margin")
    before = standing(variant)
    with pytest.raises(ZeroDivisionError), applied(variant):
        raise ZeroDivisionError
    assert standing(variant) == before


def test_a_stale_path_is_told() -> None:
    with pytest.raises(AttributeError, match="NO_SUCH"), applied(Variant("x", "", {"pace.NO_SUCH": 1})):
        pass


@pytest.mark.parametrize("name", ["no_facts", "misled", "no_renewal"])
def test_beliefs_differ_inside(name: str) -> None:
    whole = look().speed
    with applied(named(name)):
        assert np.abs(look().speed - whole).max() > 0.005
    np.testing.assert_array_equal(look().speed, whole)


def test_without_capture_limit_no_k_is_out() -> None:
    assert look().speed.min() <= INFEASIBLE
    with applied(named("no_capture_limit")):
        assert look().speed.min() > INFEASIBLE / 2


def test_cost_is_the_mean_difference_and_negative_regret_counts_as_none() -> None:
    case, other = ("burst", 1, False), ("moe", 2, True)
    rows = {
        WHOLE: {case: ROW, other: replace(ROW, regret=-3.0)},
        "no_guard": {case: replace(ROW, regret=5.0, unsafe=1), other: replace(ROW, regret=1.0)},
    }
    found = figures("no_guard", rows)
    assert (found.nominal, found.perturbed, found.worst, found.worst_case) == (5.0, 1.0, 5.0, "burst")
    assert (found.cost, found.cost_error, found.dearest) == (2.0, 1.0, "burst +3.0")
    assert found.unsafe_percent == 5.0
    assert figures(WHOLE, rows).cost == 0.0
