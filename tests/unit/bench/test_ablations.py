"""The variants of `make bench-ablations`: each takes out what it names, and leaves nothing behind."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bench.tuner.ablations import figures, main
from bench.tuner.variants import VARIANTS, WHOLE, Variant, applied, owner_of
from speculative_operator.cli.subject import subject
from speculative_operator.tuner.acceptance import AcceptanceEvidence
from speculative_operator.tuner.outlook import Outlook, outlook

PAIR = {
    "verifier": {"model": "hf://Qwen/Qwen3-8B"},
    "speculator": {"method": "ngram"},
    "accelerator": {"product": "H100-SXM"},
}


def look() -> Outlook:
    """Evidence at K = 3 of drafts that come in runs, so that another K differs by what is thought of runs."""
    reached, accepted = (10_000.0, 1441.0, 1069.0), (1441.0, 1069.0, 827.0)
    return outlook(subject(PAIR).policy, None, AcceptanceEvidence(reached, accepted, 100_000.0, 3.0))


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


def row(regret: float, unsafe: list[float]) -> dict[str, Any]:
    return {"regret": regret, "unsafe": unsafe, "writes": 12.0}


def test_cost_is_the_mean_difference_and_negative_regret_counts_as_none() -> None:
    worlds = [
        {WHOLE: row(2.0, [0.0]), "no_guard": row(5.0, [3.0, 1.0])},
        {WHOLE: row(-3.0, []), "no_guard": row(1.0, [])},
    ]
    found = figures("no_guard", worlds)
    assert (found["lost"], found["worst"], found["cost"], found["cost_error"]) == (3.0, 5.0, 2.0, 1.0)
    assert (found["unsafe_percent"], found["unsafe_worst"]) == (50.0, 3.0)
    assert figures(WHOLE, worlds)["cost"] == 0.0


def test_variants_run_in_the_same_world(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--variant", "no_tries", "--count", "1", "--minutes", "4", "--jobs", "1"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["variant"] for one in told["variants"]] == [WHOLE, "no_tries"]
