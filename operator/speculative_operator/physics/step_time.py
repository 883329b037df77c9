"""Seconds that one engine step takes, as a linear sum of what it must move and compute.

Called by the tuner (predictions for every K and batch size), the emulator (its clock) and the calibration.

    T(b, K, c, p) = fixed + expert(n) + per_token * n + per_kv_token * b * c            n = b (K + 1) + p
                  + passes * (draft_fixed + draft_per_kv_token * b * c) + draft_per_token * m
                  + speculative_overhead [K >= 1] + graph_tax [K is live]

b requests decode, each drafts K tokens and holds c tokens of context; p prompt tokens are prefilled in the same step.
Weight traffic and arithmetic are added, not maximised: a fit of Llama-3.1-8B on H100 over batch 1..64 (SpecDecode-Bench
simulator, predictor.py @32fdccb: 5.886 ms + 21.01 us a token + 39.26 ns a KV token) has that form.
The drafter's first pass takes in what was verified, m = b (K + 1) + p tokens, each further pass adds b tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.knobs import Actuator, KnobSpace
from speculative_operator.domain.models import Accelerator, ModelShape, PairFacts

Array = NDArray[np.float64]

BANDWIDTH_EFFICIENCY = 0.8
"""Share of peak memory bandwidth that decoding reaches. H100, Llama-3.1-8B: 0.81 (SpecDecode-Bench fit)."""
COMPUTE_EFFICIENCY = 0.6
"""Share of peak dense FLOP/s that a step reaches. H100, Llama-3.1-8B: 0.77; MI355X, 27B: 0.35. Widely spread."""
SPECULATIVE_OVERHEAD = 1.2e-3
"""Seconds a drafted step spends on rejection sampling and bookkeeping (SpecDecode-Bench fit: 1.207 ms)."""
PASS_LAUNCH = 0.25e-3
LAYER_LAUNCH = 20e-6
"""Seconds for one draft pass, and for each of its layers, beyond reading weights: small kernels are bound by launches.
Chosen so that the 28 layers of Qwen3-0.6B cost what the calibrated pair shows (1.36 ms a pass, 0.45 ms of it weights)
and one EAGLE layer stays near the 0.71 ms a pass of the SpecDecode-Bench fit."""
HEAD_SHARE = 0.12
"""A speculator of unknown shape is priced as one extra layer and output head on the verifier (EAGLE-like):
0.71 ms of 5.89 ms on Llama-3.1-8B and H100."""
HEAD_TOKEN_SHARE = 0.04
"""The same for arithmetic: 0.84 us of 21.0 us a token."""
LOOKUP_SHARE = 0.006
"""Looking drafts up in the text costs this share of verification (SpecDecode-Bench fit, n-gram)."""
REDUCE_PER_LAYER = 20e-6
"""Seconds for the two all-reduces of a layer under tensor parallelism: an assumption, two latency-bound calls."""
STANDALONE_LAYERS = 4
"""A speculator with more layers is a model of its own, not a head: its live K needs the runner without full graphs."""
GRAPH_TAX_PER_LAYER = 8e-6
"""Seconds a step loses per verifier layer when a live K forces piecewise graphs.

Published: 59.6 -> 50.0 tok/s in one stream of a 122B mixture of experts (vllm#49548), and "on par or marginal" for
Llama-3.1-8B on H100 (vllm#21477). Assumed here: launches hide behind dense layers, a small part shows (0.3 ms for 36
layers). The tuner's measured correction replaces it."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Coefficients of the step-time sum, all in seconds."""

    fixed: float
    """One step of the verifier without any token: reading its dense weights, launches, scheduling."""
    per_token: float
    """One more verified or prefilled token: its arithmetic."""
    per_kv_token: float
    """One token of context read by the verifier's attention, per decoding request."""
    draft_fixed: float
    """One draft pass."""
    draft_per_token: float
    """One more token through the drafter: arithmetic."""
    draft_per_kv_token: float
    """One token of context read by the drafter's attention, per request and pass."""
    speculative_overhead: float
    """Extra time of a step that verifies drafts."""
    graph_tax: float
    """Extra time of every step while K is live and the runner has no full graphs for it."""
    expert_fixed: float = 0.0
    """Mixture of experts: reading all experts once; a step reads the share that its tokens reach."""
    expert_reach: float = 1.0
    """Share of the experts that one token reaches."""


def step_seconds(
    costs: StepCosts, knobs: KnobSpace, batch: ArrayLike, k: ArrayLike, context: ArrayLike, prefill: ArrayLike
) -> Array:
    """Seconds of a step of a pod that runs with its speculator, at `k` drafts per request; arguments broadcast.

    `batch` decoding requests, `k` drafts each, `context` tokens held per request, `prefill` prompt tokens in the step.
    """
    return np.asarray(sum(step_parts(costs, knobs, batch, k, context, prefill)))


def hard_off_seconds(costs: StepCosts, batch: ArrayLike, context: ArrayLike, prefill: ArrayLike) -> Array:
    """Seconds of a step of a pod without any speculator; arguments as in `step_seconds`."""
    return np.asarray(sum(hard_off_parts(costs, batch, context, prefill)))


def step_parts(
    costs: StepCosts, knobs: KnobSpace, batch: ArrayLike, k: ArrayLike, context: ArrayLike, prefill: ArrayLike
) -> tuple[Array, Array, Array, Array, Array]:
    """The same in parts that add up and broadcast: (fixed, decoded tokens, context, drafting, prefill)."""
    b, drafts, c, p = (np.asarray(value, dtype=float) for value in (batch, k, context, prefill))
    passes = draft_passes(knobs, drafts)
    tokens = b * (drafts + 1.0)
    fixed, decoded, attended, _, filled = _verifier_parts(costs, tokens, b * c, p)
    drafted = np.where(passes > 0, tokens + b * np.maximum(passes - 1.0, 0.0), 0.0)
    drafting = (
        passes * (costs.draft_fixed + costs.draft_per_kv_token * (b * c))
        + costs.draft_per_token * drafted
        + np.where(drafts > 0, costs.speculative_overhead, 0.0)
    )
    if pays_graph_tax(knobs):
        fixed = fixed + costs.graph_tax
    return fixed, decoded, attended, drafting, filled + np.where(passes > 0, costs.draft_per_token, 0.0) * p


def hard_off_parts(
    costs: StepCosts, batch: ArrayLike, context: ArrayLike, prefill: ArrayLike
) -> tuple[Array, Array, Array, Array, Array]:
    """`hard_off_seconds` in the parts of `step_parts`; nothing is drafted."""
    b, c, p = (np.asarray(value, dtype=float) for value in (batch, context, prefill))
    return _verifier_parts(costs, b, b * c, p)


def draft_passes(knobs: KnobSpace, k: ArrayLike) -> Array:
    """Drafter passes in a step at `k` drafts per request: 1 for a whole block, else one for each draft."""
    drafts = np.asarray(k, dtype=float)
    if knobs.block_drafter or knobs.draft_free:
        busy = np.ones_like(drafts)
    elif knobs.draft_passes_follow_k:
        busy = drafts
    else:
        busy = np.full_like(drafts, max(knobs.ks))
    return np.where(drafts > 0, busy, 0.0 if knobs.draft_free else knobs.passes_at_zero)


def pays_graph_tax(knobs: KnobSpace) -> bool:
    """True when the engine was started with a schedule that it honours in the drafter too."""
    return knobs.actuator in (Actuator.LIVE, Actuator.TABLE) and knobs.draft_passes_follow_k


def roofline(facts: PairFacts, knobs: KnobSpace) -> StepCosts | None:
    """Costs from data-sheet rates and model shapes; None when verifier or accelerator is unknown.

    A prior with a wide error (log standard deviation about 0.25 for traffic, 0.4 for arithmetic), made to be corrected.
    """
    verifier, accelerator = facts.verifier, facts.accelerator
    if verifier is None or accelerator is None:
        return None
    bandwidth = accelerator.memory_bandwidth * BANDWIDTH_EFFICIENCY * facts.accelerators
    experts = _expert_parameters(verifier)
    fixed = (verifier.parameters - experts) * verifier.bytes_per_parameter / bandwidth
    if facts.accelerators > 1:
        fixed += REDUCE_PER_LAYER * verifier.layers
    per_token = _token_seconds(verifier, accelerator, facts.accelerators)
    whole = fixed + experts * verifier.bytes_per_parameter / bandwidth
    draft = _draft_costs(facts, knobs, whole, per_token, bandwidth)
    standalone = facts.speculator is not None and facts.speculator.layers > STANDALONE_LAYERS
    return StepCosts(
        fixed=fixed,
        per_token=per_token,
        per_kv_token=verifier.kv_bytes_per_token / bandwidth,
        draft_fixed=draft[0],
        draft_per_token=draft[1],
        draft_per_kv_token=draft[2],
        speculative_overhead=SPECULATIVE_OVERHEAD,
        graph_tax=GRAPH_TAX_PER_LAYER * verifier.layers if standalone and not knobs.draft_free else 0.0,
        expert_fixed=experts * verifier.bytes_per_parameter / bandwidth,
        expert_reach=verifier.experts_per_token / verifier.experts if verifier.experts else 1.0,
    )


def _verifier_parts(
    costs: StepCosts, tokens: Array, kv_tokens: Array, prefill: Array
) -> tuple[Array, Array, Array, Array, Array]:
    fixed, filled = np.asarray(costs.fixed), costs.per_token * prefill
    if costs.expert_fixed:
        missed = 1.0 - costs.expert_reach
        reached = costs.expert_fixed * (1.0 - missed**tokens)
        fixed = fixed + reached
        filled = filled + costs.expert_fixed * (1.0 - missed ** (tokens + prefill)) - reached
    return fixed, costs.per_token * tokens, costs.per_kv_token * kv_tokens, np.zeros(()), filled


def _expert_parameters(model: ModelShape) -> float:
    """Weights in experts, solved from total = dense + experts, active = dense + experts * reached share."""
    if not model.experts or not 0 < model.experts_per_token < model.experts:
        return 0.0
    return (model.parameters - model.active_parameters) / (1.0 - model.experts_per_token / model.experts)


def _token_seconds(model: ModelShape, accelerator: Accelerator, count: int) -> float:
    peak = accelerator.fp8_flops if model.bytes_per_parameter <= 1.0 else accelerator.bf16_flops
    return 2.0 * model.active_parameters / (peak * COMPUTE_EFFICIENCY * count)


def _draft_costs(
    facts: PairFacts, knobs: KnobSpace, whole: float, per_token: float, bandwidth: float
) -> tuple[float, float, float]:
    """(per pass, per token, per KV token) of the drafter, in seconds."""
    speculator, accelerator = facts.speculator, facts.accelerator
    if knobs.draft_free:
        return LOOKUP_SHARE * whole, LOOKUP_SHARE * per_token, 0.0
    if speculator is None or accelerator is None:
        return HEAD_SHARE * whole, HEAD_TOKEN_SHARE * per_token, 0.0
    launches = PASS_LAUNCH + LAYER_LAUNCH * speculator.layers
    return (
        launches + speculator.weight_bytes / bandwidth,
        _token_seconds(speculator, accelerator, facts.accelerators),
        speculator.kv_bytes_per_token / bandwidth,
    )
