"""The plant's step time: physics' own where nothing is added, and each added shape by its exact amount."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sim.rigs import COSTS, knobs, plant

from speculative_lab.sim.plant import perturbed, plant_for
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.table import KnobSpace, KTable
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.step_time import plain_seconds, step_seconds

B = np.array([1.0, 2.0, 7.0, 33.0, 64.0])[:, None]
K = np.array([0, 1, 3, 5])


@pytest.mark.parametrize(
    "space",
    [
        knobs(),
        knobs(drafts_blocks=True),
        knobs(draft_free=True, passes_at_zero=0.0),
        knobs(draft_passes_follow_k=False),
    ],
)
@pytest.mark.parametrize("experts", [0.0, 4e-3])
def test_a_plain_plant_costs_what_physics_says(space: KnobSpace, experts: float) -> None:
    costs = replace(COSTS, expert_fixed=experts, expert_reach=1 / 16)
    own = plant(costs=costs, knobs=space)
    for context, prefill in ((0.0, 0.0), (900.0, 0.0), (900.0, 250.0)):
        expected = step_seconds(costs, space, B, K, context, prefill)
        assert own.step_seconds(B, K, context, prefill) == pytest.approx(expected, rel=1e-9)
        assert own.plain_seconds(B, context, prefill) == pytest.approx(plain_seconds(costs, B, context, prefill))


def extra(**changes: Any) -> Any:
    """Seconds at 8 requests and K = 3 (32 tokens) that the changes add to the plain plant's."""
    return float(plant(**changes).step_seconds(8, 3, 500, 0) - plant().step_seconds(8, 3, 500, 0))


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({"knobs": knobs(capture_sizes=(1, 16, 48))}, 16 * COSTS.per_token),
        ({"knobs": knobs(capture_sizes=(1, 16, 32))}, 0.0),
        ({"knobs": knobs(capture_sizes=(1, 16))}, 0.0),
        ({"knee_tokens": 20, "knee_factor": 1.5}, 12 * 0.5 * COSTS.per_token),
        ({"knee_tokens": 32, "knee_factor": 1.5}, 0.0),
        ({"stairs": ((33, 5e-3), (32, 2e-3), (10, 1e-3))}, 3e-3),
        ({"eager_seconds": 4e-3, "knobs": knobs(capture_ceiling_tokens=31)}, 4e-3),
        ({"eager_seconds": 4e-3, "knobs": knobs(capture_ceiling_tokens=32)}, 0.0),
        ({"k_factor": (1.0, 1.0, 1.1)}, 0.0),
        ({"zero_factor": 1.2}, 0.0),
    ],
)
def test_each_shape_adds_its_own_seconds(changes: dict[str, Any], seconds: float) -> None:
    assert extra(**changes) == pytest.approx(seconds, abs=1e-12)


def test_a_bad_k_and_a_slow_k_0_scale_the_whole_step() -> None:
    odd, plain = plant(k_factor=(1.0, 1.0, 1.0, 1.1), zero_factor=1.2), plant()
    ratio = odd.step_seconds(8, K, 500, 40) / plain.step_seconds(8, K, 500, 40)
    assert ratio == pytest.approx([1.2, 1.0, 1.1, 1.0])
    assert odd.plain_seconds(8, 500, 40) == plain.plain_seconds(8, 500, 40)


@given(st.floats(0, 64), st.floats(0, 5000), st.floats(0, 4000), st.integers(0, 5))
def test_more_work_never_takes_less_time(batch: float, context: float, prefill: float, k: int) -> None:
    own = perturbed(plant(knobs=knobs(capture_sizes=(1, 8, 64, 256))), np.random.default_rng(5))
    here = own.step_seconds(batch, k, context, prefill)
    assert own.step_seconds(batch + 1, k, context, prefill) > here
    assert own.step_seconds(batch, k, context + 1, prefill) >= here
    assert own.step_seconds(batch, k, context, prefill + 1) > here


def test_the_table_is_stretched_and_cut_to_what_the_engine_takes() -> None:
    dense = plant().dense(KTable.from_rows([[1, 2, 9], [3, 4, 2]]))
    assert dense[:6] == [5, 5, 5, 2, 2, 2]
    assert len(dense) == 65


@pytest.mark.parametrize("seed", range(5))
def test_perturbation_stays_within_its_bounds_and_repeats(seed: int) -> None:
    before = plant(eager_seconds=2e-3, zero_factor=1.5)
    after = perturbed(before, np.random.default_rng(seed))
    for field in fields(before.costs):
        old, new = getattr(before.costs, field.name), getattr(after.costs, field.name)
        assert old / 1.3 - 1e-15 <= new <= old * 1.3 + 1e-15, field.name
    assert after.costs != before.costs
    assert len(after.stairs) in {1, 2}
    assert after.knee_factor > 1.1
    assert 0 < after.knee_tokens < 64 * 6
    bad = [factor for factor in after.k_factor if factor != 1.0]
    assert len(bad) == 1
    assert 1.08 <= bad[0] <= 1.12
    assert after.k_factor[0] == 1.0
    assert after == perturbed(before, np.random.default_rng(seed))
    assert after != perturbed(before, np.random.default_rng(seed + 1))
    assert (after.kv_tokens, after.knobs) == (before.kv_tokens, before.knobs)


def test_no_perturbation_by_nothing_but_the_shapes() -> None:
    after = perturbed(plant(), np.random.default_rng(0), amount=0.0)
    assert after.costs == COSTS


def test_a_pair_is_priced_by_calibration_or_roofline_and_not_by_a_guess() -> None:
    pair = PairFacts(find_model("Qwen/Qwen3-8B"), find_model("Qwen/Qwen3-0.6B"), find_accelerator("H100-SXM"))
    own = plant_for(pair, knobs(), kv_tokens=5000)
    assert own.costs.fixed == pytest.approx(7.21e-3)
    assert own.kv_tokens == 5000
    told = replace(pair, kv_capacity_tokens=111, kv_capacity_tokens_without_speculator=222)
    assert (plant_for(told, knobs()).kv_tokens, plant_for(told, knobs()).kv_tokens_without) == (111, 222)
    alone = plant_for(replace(pair, speculator=find_model("Qwen/Qwen3-1.7B")), knobs())
    assert alone.costs.fixed == own.costs.fixed
    assert alone.costs.draft_fixed > own.costs.draft_fixed
    unsized = plant_for(pair, knobs())
    assert unsized.kv_tokens == pytest.approx((0.9 * 80e9 - 3e9 - 17.6e9) / 262_144, rel=0.01)
    assert unsized.kv_tokens_without == pytest.approx((0.9 * 80e9 - 3e9 - 16.4e9) / 147_456, rel=0.01)
    with pytest.raises(ValueError, match="no memory"):
        plant_for(replace(pair, kv_capacity_tokens=0), knobs())
    with pytest.raises(ValueError, match="accelerator"):
        plant_for(replace(pair, accelerator=None), knobs())
    assert plant_for(PairFacts(), knobs(), costs=COSTS).costs == COSTS
