"""Step times by value and by property."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.domain.models import ModelShape, PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.step_costs import HOST_SECONDS, StepCosts, roofline
from speculative_operator.physics.step_time import host_parts, pad, plain_seconds, step_seconds

DATA = Path(__file__).parents[3] / "dev" / "data" / "published"
UNIT = StepCosts(
    fixed=1000.0,
    per_token=10.0,
    per_kv_token=1.0,
    draft_fixed=100.0,
    draft_per_token=5.0,
    draft_per_kv_token=0.5,
    speculative_overhead=7.0,
    graph_tax=3.0,
    request_tax=0.25,
    draft_launch=60.0,
)
LIVE = KnobSpace(actuator=Actuator.LIVE, ks=(0, 1, 2, 3, 4, 5), max_batch=256)
FIXED = dataclasses.replace(LIVE, actuator=Actuator.RESTART)


def facts(verifier: str = "Qwen/Qwen3-8B", speculator: str = "Qwen/Qwen3-0.6B", count: int = 1) -> PairFacts:
    return PairFacts(find_model(verifier), find_model(speculator), find_accelerator("H100-SXM"), count)


def test_every_term_is_counted_once() -> None:
    # n = 2 * 4 + 6 = 14, kv = 2 * 50 = 100, three passes, m = 14 + 2 * 2 = 18
    expected = 1000 + 140 + 100 + 3 * (100 + 50) + 5 * 18 + 7 + 3 + 2 * 0.25
    assert float(step_seconds(UNIT, LIVE, 2, 3, 50, 6)) == expected


def test_k_0_still_pays_the_speculator_and_removal_does_not() -> None:
    assert float(step_seconds(UNIT, FIXED, 2, 0, 50, 0)) == 1000 + 20 + 100 + (100 + 50) + 5 * 2
    assert float(plain_seconds(UNIT, 2, 50, 0)) == 1000 + 20 + 100


@pytest.mark.parametrize(
    ("change", "passes_at_3", "passes_at_0"),
    [
        ({"draft_passes_follow_k": False}, 5, 1),
        ({"drafts_blocks": True}, 1, 1),
        ({"draft_free": True, "passes_at_zero": 0.0}, 1, 0),
        ({"passes_at_zero": 0.0}, 3, 0),
    ],
)
def test_passes_follow_the_drafter(change: dict[str, object], passes_at_3: int, passes_at_0: int) -> None:
    knobs = dataclasses.replace(FIXED, **change)  # type: ignore[arg-type]  # values are typed by the cases above
    only_passes = dataclasses.replace(UNIT, draft_per_token=0.0, draft_per_kv_token=0.0, speculative_overhead=0.0)
    bare = 1000 + 10 * np.array([4, 1])
    seconds = step_seconds(only_passes, knobs, 1, np.array([3, 0]), 0, 0)
    assert ((seconds - bare) / 100).tolist() == [passes_at_3, passes_at_0]


def test_graph_tax_is_paid_by_a_live_drafter_only() -> None:
    live, fixed = (float(step_seconds(UNIT, knobs, 4, 2, 1, 0)) for knobs in (LIVE, FIXED))
    ignored = dataclasses.replace(LIVE, draft_passes_follow_k=False)
    assert live - fixed == UNIT.graph_tax + 4 * UNIT.request_tax
    full = dataclasses.replace(LIVE, full_graphs=True)
    assert float(step_seconds(UNIT, full, 4, 2, 1, 0)) == fixed
    assert float(step_seconds(UNIT, ignored, 1, 5, 1, 0)) == float(step_seconds(UNIT, FIXED, 1, 5, 1, 0))


def test_the_hosts_part_is_what_drafts_launch_and_piecewise_graphs_cost() -> None:
    assert host_parts(UNIT, LIVE, 4.0, 3.0) == (3.0, 3 * 60 + 7 + 4 * 0.25)
    assert host_parts(UNIT, LIVE, 4.0, 0.0) == (3.0, 60 + 4 * 0.25)
    assert host_parts(UNIT, FIXED, 4.0, 3.0) == (0.0, 3 * 60 + 7)
    without_host = dataclasses.replace(UNIT, draft_fixed=40, speculative_overhead=0, graph_tax=0, request_tax=0)
    seconds = (float(step_seconds(costs, LIVE, 4.0, 3.0, 50, 6)) for costs in (UNIT, without_host))
    assert next(seconds) - next(seconds) == sum(host_parts(UNIT, LIVE, 4.0, 3.0))


def test_roofline_meets_the_published_fit_of_llama() -> None:
    costs = roofline(facts("meta-llama/Llama-3.1-8B-Instruct"), LIVE)
    assert costs is not None
    # SpecDecode-Bench simulator, predictor.py @32fdccb: H100, batch 1..64; 1.207 ms of its step are host time
    assert costs.fixed == pytest.approx(5.886e-3 + 1.207e-3, rel=0.02)
    assert costs.per_token == pytest.approx(21.01e-6, rel=0.02)
    assert costs.per_kv_token == pytest.approx(39.26e-9, rel=0.05)


def test_roofline_needs_verifier_and_accelerator() -> None:
    assert roofline(dataclasses.replace(facts(), verifier=None), LIVE) is None
    assert roofline(dataclasses.replace(facts(), accelerator=None), LIVE) is None


def test_unknown_speculator_is_priced_as_a_head() -> None:
    head = roofline(dataclasses.replace(facts(), speculator=None), LIVE)
    model = roofline(facts(), LIVE)
    assert head is not None
    assert model is not None
    assert head.draft_fixed < model.draft_fixed / 2
    assert head.draft_per_kv_token * 10 < model.draft_per_kv_token
    assert head.draft_launch < model.draft_launch / 4


def test_eagle_pass_lies_near_the_published_fit() -> None:
    llama = facts("meta-llama/Llama-3.1-8B-Instruct")
    passes = [
        roofline(dataclasses.replace(llama, speculator=None, method=method), LIVE)
        for method in (Method.EAGLE, Method.EAGLE3)
    ]
    costs = [found.draft_fixed for found in passes if found is not None]
    assert costs[1] < costs[0]
    # SpecDecode-Bench simulator, predictor.py @32fdccb: 2.135 ms for the three passes of K = 3
    assert sum(costs) / 2 == pytest.approx(2.135e-3 / 3, rel=0.1)


def test_draft_free_costs_next_to_nothing() -> None:
    knobs = dataclasses.replace(LIVE, draft_free=True, passes_at_zero=0.0, full_graphs=True)
    costs = roofline(dataclasses.replace(facts(), speculator=None), knobs)
    assert costs is not None
    assert costs.draft_fixed < 0.01 * costs.fixed
    assert float(step_seconds(costs, knobs, 8, 0, 500, 0)) == float(plain_seconds(costs, 8, 500, 0))


def test_more_accelerators_share_a_step() -> None:
    one, two = roofline(facts(), LIVE), roofline(facts(count=2), LIVE)
    assert one is not None
    assert two is not None
    assert one.fixed / 2 < two.fixed < one.fixed
    assert one.per_token / 2 < two.per_token < 0.65 * one.per_token  # the rest is on the link


def test_experts_make_the_first_tokens_dear_and_the_last_cheap() -> None:
    costs = roofline(facts("Qwen/Qwen3-30B-A3B"), LIVE)
    assert costs is not None
    seconds = plain_seconds(costs, np.array([1, 4, 128, 256]), 0, 0)
    # vs 3.64 if every token chose its 8 of 128 experts independently
    assert (seconds[1] - costs.fixed) / (seconds[0] - costs.fixed) == pytest.approx(2.8, abs=0.1)
    assert seconds[3] / seconds[2] < 1.3


def test_eight_bit_weights_halve_the_traffic() -> None:
    shape = find_model("Qwen/Qwen3-8B")
    assert shape is not None
    small = roofline(dataclasses.replace(facts(), verifier=dataclasses.replace(shape, bytes_per_parameter=1.0)), LIVE)
    full = roofline(facts(), LIVE)
    assert small is not None
    assert full is not None
    assert small.fixed - HOST_SECONDS == pytest.approx((full.fixed - HOST_SECONDS) / 2)
    assert small.per_token == pytest.approx(full.per_token / 1.6)


positive = st.floats(0, 1e6)


@given(st.integers(1, 512), st.integers(0, 7), positive, positive)
def test_time_never_falls_with_load_or_drafts(batch: int, k: int, context: float, prefill: float) -> None:
    costs = roofline(facts(), LIVE)
    assert costs is not None
    base = float(step_seconds(costs, LIVE, batch, k, context, prefill))
    assert np.isfinite(base)
    assert base > float(plain_seconds(costs, batch, context, prefill))
    assert float(step_seconds(costs, LIVE, batch + 1, k, context, prefill)) > base
    if k:
        assert float(step_seconds(costs, LIVE, batch, k + 1, context, prefill)) > base
    assert float(step_seconds(costs, LIVE, batch, k, context + 1, prefill)) >= base


def test_vectors_give_what_scalars_give() -> None:
    batches, ks = np.array([[1.0], [8.0], [200.0]]), np.array([0.0, 1.0, 5.0])
    table = step_seconds(UNIT, LIVE, batches, ks, 100.0, 3.0)
    singles = [[float(step_seconds(UNIT, LIVE, b, k, 100.0, 3.0)) for k in ks] for b in batches.ravel()]
    assert table.tolist() == singles


def test_kv_bytes_of_a_shape() -> None:
    shape = ModelShape("m", 1.0, 1.0, layers=36, hidden_size=4096, kv_heads=8, head_dim=128)
    assert shape.kv_bytes_per_token == 147456


GRAPHS = dataclasses.replace(FIXED, capture_sizes=(1, 2, 4, 8, 16, 32), capture_ceiling_tokens=32)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=20))
def test_decoded_tokens_count_as_the_next_captured_size(tokens: list[int]) -> None:
    asked = np.array(tokens, dtype=float)
    expected = [next((size for size in GRAPHS.capture_sizes if size >= n), n) for n in tokens]
    assert pad(GRAPHS, asked).tolist() == expected
    assert pad(FIXED, asked).tolist() == tokens


def test_steps_climb_stairs_where_sizes_are_known() -> None:
    # 3 requests at K = 2: 9 tokens run as 16, and the drafter takes in the 9 it needs
    assert float(step_seconds(UNIT, GRAPHS, 3, 2, 0, 0)) - float(step_seconds(UNIT, FIXED, 3, 2, 0, 0)) == 10 * (16 - 9)
    assert float(plain_seconds(UNIT, 3, 0, 0, GRAPHS)) - float(plain_seconds(UNIT, 3, 0, 0)) == 10 * (4 - 3)


def test_above_the_ceiling_a_step_takes_at_least_the_launches() -> None:
    slow = dataclasses.replace(UNIT, eager_floor=5000.0)
    at, above, far = (float(plain_seconds(slow, b, 0, 0, GRAPHS)) for b in (32, 33, 900))
    assert at == 1000 + 320
    assert above == 5000
    assert far == 1000 + 9000


def test_measured_cliff_of_a_mixture_of_experts() -> None:
    """DeepSeek-V4-Flash on four B300, cost_curves.csv: 5.1 ms at one token, 20.6 at 1,024, 104 at 1,537."""
    shape = find_model("DeepSeek-V4-Flash")
    assert shape is not None
    eight_bit = dataclasses.replace(shape, bytes_per_parameter=0.56)
    flash = PairFacts(eight_bit, None, find_accelerator("B300"), 4, method=Method.DSPARK)
    knobs = dataclasses.replace(FIXED, drafts_blocks=True, max_batch=16384, capture_ceiling_tokens=1025)
    costs = roofline(flash, knobs)
    assert costs is not None
    with (DATA / "cost_curves.csv").open(encoding="utf-8") as lines:
        measured = [
            (float(row["total_tokens"]), float(row["ms"]))
            for row in csv.DictReader(lines)
            if row["curve_id"] == "dsv4flash_b300tp4_verify"
        ]
    tokens, seconds = np.array(measured).T * np.array([[1.0], [1e-3]])
    predicted = plain_seconds(costs, tokens, 0, 0, knobs)
    errors = np.log(predicted / seconds)
    assert np.median(np.abs(errors)) < 0.15
    cliff = np.searchsorted(tokens, 1500)
    assert predicted[cliff] / predicted[cliff - 1] > 3.0
    assert np.all(np.abs(errors[cliff : cliff + 2]) < 0.1)


def test_coverage_of_experts_is_the_published_one() -> None:
    with (DATA / "moe_expert_coverage.csv").open(encoding="utf-8") as lines:
        table = list(csv.DictReader(lines))
    for row in table:
        reach = float(row["topk"]) / float(row["experts"])
        only_experts = dataclasses.replace(UNIT, fixed=0.0, per_token=0.0, expert_fixed=1.0, expert_reach=reach)
        found = float(plain_seconds(only_experts, float(row["tokens_in_step"]), 0, 0))
        assert found == pytest.approx(float(row["expected_fraction_of_experts_read"]), abs=1e-3)


def test_measured_steps_of_a_dense_model() -> None:
    """A dense 27B on one MI355X, cost_curves.csv: batch 1, 8 and 32, 1 to 32 tokens a request, context 512-1024."""
    facts = PairFacts(find_model("Qwen/Qwen3.6-27B"), None, find_accelerator("MI355X"))
    costs = roofline(facts, FIXED)
    assert costs is not None
    with (DATA / "cost_curves.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["curve_id"] == "qwen38_27b_mi355x_verify"]
    batch, each, seconds = (np.array([float(row[name]) for row in rows]) for name in ("batch", "tokens_per_req", "ms"))
    errors = np.log(1e3 * step_seconds(costs, dataclasses.replace(FIXED, draft_free=True), batch, each - 1, 750, 0))
    errors -= np.log(seconds)
    assert len(rows) == 12
    assert np.median(np.abs(errors)) < 0.08
    assert np.max(np.abs(errors)) < 0.25
