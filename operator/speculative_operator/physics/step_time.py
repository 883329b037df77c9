"""Computes the seconds of one engine step as a linear sum of memory traffic and arithmetic.

Called by the tuner (predictions for every K and batch size), the emulator (its clock) and the published
cases. Coefficients come from `step_costs`.

    T(b, K, c, p) = fixed + expert(n) + per_token * n + per_kv_token * b * c            n = b (K + 1) + p
                  + passes * (draft_fixed + draft_per_kv_token * b * c) + draft_per_token * m
                  + speculative_overhead [K >= 1] + (graph_tax + request_tax * b) [K is live, graphs are piecewise]

b requests decode, each drafts K tokens and holds c tokens of context; p prompt tokens are prefilled in the same step.
Weight traffic and arithmetic are added, not maximised: a fit of Llama-3.1-8B on H100 over batch 1..64 (SpecDecode-Bench
simulator, predictor.py @32fdccb: 5.886 ms + 21.01 us a token + 39.26 ns a KV token, 1.207 ms of host time) has that
form. The speculator's first pass takes in what was verified, m = b (K + 1) + p tokens, each further pass adds b tokens.

CUDA graphs: where the captured sizes are known, the decoded tokens b (K + 1) count as the next size; a step above the
capture ceiling runs kernel by kernel and takes at least `eager_floor`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.physics.step_costs import StepCosts

Array = NDArray[np.float64]


def step_seconds(
    costs: StepCosts, knobs: KnobSpace, batch: ArrayLike, k: ArrayLike, context: ArrayLike, prefill: ArrayLike
) -> Array:
    """Seconds of a step of a pod that runs with its speculator, at `k` drafts per request; arguments broadcast.

    `batch` decoding requests, `k` drafts each, `context` tokens held per request, `prefill` prompt tokens in the step.
    """
    return np.asarray(sum(step_parts(costs, knobs, batch, k, context, prefill)))


def plain_seconds(
    costs: StepCosts, batch: ArrayLike, context: ArrayLike, prefill: ArrayLike, knobs: KnobSpace | None = None
) -> Array:
    """Seconds of a step of a pod that was started without speculator; arguments as in `step_seconds`."""
    return np.asarray(sum(plain_parts(costs, batch, context, prefill, knobs)))


def step_parts(
    costs: StepCosts, knobs: KnobSpace, batch: ArrayLike, k: ArrayLike, context: ArrayLike, prefill: ArrayLike
) -> tuple[Array, Array, Array, Array, Array]:
    """`step_seconds` in parts that add up and broadcast: (fixed, decoded tokens, context, drafting, prefill)."""
    b, drafts, c, p = (np.asarray(value, dtype=float) for value in (batch, k, context, prefill))
    passes = draft_passes(knobs, drafts)
    tokens = b * (drafts + 1.0)
    held = b * c
    fixed, decoded, attended, _, filled = _verifier_parts(costs, tokens, held, p, knobs)
    # The first pass takes in what was verified, each further one a token of every request.
    a_token = costs.draft_per_token * (passes > 0)
    further = costs.draft_per_token * np.maximum(passes - 1.0, 0.0)
    a_step = passes * costs.draft_fixed + costs.speculative_overhead * (drafts > 0)
    drafting = a_step + (passes * costs.draft_per_kv_token) * held + a_token * tokens + further * b
    if pays_graph_tax(knobs):
        fixed, drafting = fixed + costs.graph_tax, drafting + costs.request_tax * b
    return fixed, decoded, attended, drafting, filled + a_token * p


def plain_parts(
    costs: StepCosts, batch: ArrayLike, context: ArrayLike, prefill: ArrayLike, knobs: KnobSpace | None = None
) -> tuple[Array, Array, Array, Array, Array]:
    """`plain_seconds` in the parts of `step_parts`; nothing is drafted. `knobs` tells the captured sizes."""
    b, c, p = (np.asarray(value, dtype=float) for value in (batch, context, prefill))
    return _verifier_parts(costs, b, b * c, p, knobs)


def host_parts(costs: StepCosts, knobs: KnobSpace, batch: float, k: float) -> tuple[float, float]:
    """Seconds of `step_parts` in which the host keeps the accelerator waiting, and would not without a speculator:
    (in the fixed part, in drafting). They are the taxes of piecewise graphs, launches of draft passes, and what drafts
    add to sampling."""
    drafting = float(draft_passes(knobs, k)) * costs.draft_launch + (costs.speculative_overhead if k > 0 else 0.0)
    return (costs.graph_tax, drafting + costs.request_tax * batch) if pays_graph_tax(knobs) else (0.0, drafting)


def draft_passes(knobs: KnobSpace, k: ArrayLike) -> Array:
    """Speculator passes in a step at `k` drafts per request: 1 for a whole block, else one for each draft."""
    drafts = np.asarray(k, dtype=float)
    if knobs.drafts_blocks or knobs.draft_free:
        busy = np.ones_like(drafts)
    elif knobs.draft_passes_follow_k:
        busy = drafts
    else:
        busy = np.full_like(drafts, max(knobs.ks))
    return np.where(drafts > 0, busy, 0.0 if knobs.draft_free else knobs.passes_at_zero)


def pays_graph_tax(knobs: KnobSpace) -> bool:
    """True when the engine was started with a schedule that it honours in the speculator too, and has piecewise graphs
    alone for it, as vLLM's V1 runner does."""
    scheduled = knobs.actuator in (Actuator.LIVE, Actuator.TABLE)
    return scheduled and knobs.draft_passes_follow_k and not knobs.full_graphs


def pad(knobs: KnobSpace, tokens: Array) -> Array:
    """Decoded tokens as the engine runs them: the next captured size, or the number itself above the largest."""
    if not knobs.capture_sizes:
        return tokens
    stairs = _stairs(knobs.capture_sizes)
    return np.asarray(np.maximum(stairs.take(np.ceil(tokens).astype(np.intp), mode="clip"), tokens))


@lru_cache(maxsize=64)
def _stairs(sizes: tuple[int, ...]) -> Array:
    """The captured size for 0, 1, 2, ... tokens; 0 in the last place, which stands for all above the largest size."""
    numbers = np.arange(max(sizes) + 1)
    ascending = np.array(sorted(sizes), dtype=float)
    return np.append(ascending[np.searchsorted(ascending, numbers)], 0.0)


def _independent(tokens: Array, spread: float) -> Array:
    return tokens if spread == 1.0 else np.asarray(tokens**spread)


def _verifier_parts(
    costs: StepCosts, tokens: Array, kv_tokens: Array, prefill: Array, knobs: KnobSpace | None
) -> tuple[Array, Array, Array, Array, Array]:
    fixed, filled = np.asarray(costs.fixed), costs.per_token * prefill
    if costs.expert_fixed:
        missed = np.log(max(1.0 - costs.expert_reach, 1e-300))
        untouched = np.exp(missed * _independent(tokens, costs.expert_spread))
        fixed = fixed + costs.expert_fixed * (1.0 - untouched)
        still = np.exp(missed * _independent(tokens + prefill, costs.expert_spread))
        filled = filled + costs.expert_fixed * (untouched - still)
    decoded = costs.per_token * (tokens if knobs is None else pad(knobs, tokens))
    attended = costs.per_kv_token * kv_tokens
    if knobs is not None and knobs.capture_ceiling_tokens is not None and costs.eager_floor:
        above = tokens > knobs.capture_ceiling_tokens
        if above.any():
            waited = np.maximum(costs.eager_floor - (fixed + decoded + attended), 0.0)
            fixed = fixed + np.where(above, waited, 0.0)
    return fixed, decoded, attended, np.zeros(()), filled
