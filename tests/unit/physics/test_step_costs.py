"""The calibrated pair reproduces what was published for it; the roofline taxes graphs where they are lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.fitted import FITTED_WORKLOADS, end_to_end_speedup

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Method, Workload
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.physics.acceptance import expected_tokens, prior_survival
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.step_costs import StepCosts, calibrated_costs, roofline
from speculative_operator.physics.step_time import plain_seconds, step_seconds

BATCHES = (1, 16, 64, 128)
# arXiv 2601.11580 Fig. 1, Qwen3-8B with Qwen3-0.6B as draft model, H100, K=3: output tokens per second over no drafts
PUBLISHED = {
    "GSM8K": (1.701, 1.676, 1.469, 1.137),
    "CNN": (1.456, 1.373, 1.153, 0.970),
    "ShareGPT": (1.351, 1.314, 1.134, 0.912),
    "InstructCoder": (1.786, 1.686, 1.401, 1.115),
}
LIVE = KnobSpace(actuator=Actuator.LIVE, ks=(0, 1, 2, 3, 4, 5), max_batch=256)
PROMPT, OUTPUT = 1155.0, 211.0  # means of the Azure 2023 conversation trace


def costs() -> StepCosts:
    found = calibrated_costs("hf://Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "NVIDIA-H100-80GB-HBM3")
    assert found is not None
    return found


def log_errors() -> np.ndarray:
    rows = []
    for name, workload in FITTED_WORKLOADS.items():
        predicted = end_to_end_speedup(costs(), BATCHES, 3, workload.acceptance_length, workload)
        rows.append(np.log(predicted / np.array(PUBLISHED[name])))
    return np.array(rows)


def test_published_speedups_are_reproduced() -> None:
    errors = np.abs(log_errors())
    assert float(np.median(errors)) <= 0.05
    assert float(errors.max()) <= 0.10


@pytest.mark.parametrize("name", ["CNN", "ShareGPT"])
def test_published_losses_are_losses(name: str) -> None:
    workload = FITTED_WORKLOADS[name]
    assert end_to_end_speedup(costs(), 128, 3, workload.acceptance_length, workload) < 1.0


@pytest.mark.parametrize(
    ("workload", "dataset"),
    [
        (Workload.CHAT, "ShareGPT"),
        (Workload.CODE, "InstructCoder"),
        (Workload.SUMMARIZATION, "CNN"),
        (Workload.STRUCTURED, "GSM8K"),
    ],
)
def test_acceptance_prior_is_the_fitted_one(workload: Workload, dataset: str) -> None:
    survival = prior_survival(Method.DRAFT_MODEL, workload, 3)
    assert expected_tokens(survival, 3) == pytest.approx(FITTED_WORKLOADS[dataset].acceptance_length, abs=0.01)


def seconds_per_token(batch: float, k: int | None) -> float:
    survival = prior_survival(Method.DRAFT_MODEL, Workload.CHAT, 5)
    tokens = expected_tokens(survival, k) if k else 1.0
    context, prefill = PROMPT + OUTPUT / 2, batch * tokens * PROMPT / OUTPUT
    if k is None:
        return float(plain_seconds(costs(), batch, context, prefill))
    return float(step_seconds(costs(), LIVE, batch, k, context, prefill)) / tokens


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_conversations_gain_at_low_load(batch: int, k: int) -> None:
    assert seconds_per_token(batch, k) < seconds_per_token(batch, None)


def test_conversations_lose_at_the_top() -> None:
    assert seconds_per_token(200, 5) > 1.2 * seconds_per_token(200, None)
    assert seconds_per_token(200, 1) < seconds_per_token(200, 5) / 1.15


def equilibrium(arrivals: float, k: int | None) -> float:
    """Requests in flight where b = arrivals * output * seconds per token; 256 when nothing below serves the load."""
    for batch in np.linspace(0.5, 256, 1023):
        if arrivals * OUTPUT * seconds_per_token(float(batch), k) <= batch:
            return float(batch)
    return 256.0


def test_a_burst_of_drafts_saturates_where_no_drafts_would_not() -> None:
    assert equilibrium(4.0, 3) < equilibrium(4.0, None)
    assert equilibrium(20.0, 5) == 256.0
    assert equilibrium(20.0, None) < 200.0


def test_unknown_pairs_are_not_guessed() -> None:
    assert calibrated_costs("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "L4") is None
    assert calibrated_costs("nobody/none", "Qwen/Qwen3-0.6B", "H100-SXM") is None


@pytest.mark.parametrize("method", [Method.DRAFT_MODEL, Method.EAGLE3, Method.MTP, Method.NGRAM])
def test_piecewise_graphs_cost_every_method_a_tax(method: Method) -> None:
    """vllm#49548 on an H100-NVL, V1 runner: 0.9 ms at 2 requests and 16.7 ms at 189, the speculator's pass included."""
    piecewise = KnobSpace(Actuator.LIVE, (0, 3), 256, draft_free=method.draft_free, passes_at_zero=0.0)
    full = replace(piecewise, full_graphs=True)
    facts = PairFacts(find_model("google/gemma-4-31B-it"), None, find_accelerator("H100-NVL"), method=method)
    costs = roofline(facts, piecewise)
    assert costs is not None
    two, many = (
        float(step_seconds(costs, piecewise, n, 0, 400, 0) - step_seconds(costs, full, n, 0, 400, 0)) for n in (2, 189)
    )
    assert 0.3e-3 < two < 0.9e-3
    assert many == pytest.approx(two) if method.draft_free else 7e-3 < many < 16.7e-3
