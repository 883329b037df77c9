"""Computes step costs from data sheets and model shapes: the prior of a pair without published measurements.

Called by the tuner (through `step_time`), the emulator and `cases`.

    fixed      = dense weights / bandwidth + host + all-reduces          expert_fixed = expert weights / bandwidth
    per token  = 2 x active weights / FLOP/s + all-reduced bytes / link  per KV token = KV bytes / bandwidth
"""

from __future__ import annotations

from speculative_operator.domain.knobs import KnobSpace
from speculative_operator.domain.models import ModelShape, PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.physics.draft_costs import draft_costs
from speculative_operator.physics.efficiency import FITTED, Efficiencies
from speculative_operator.physics.hardware import Rates, rates
from speculative_operator.physics.step_costs import StepCosts

STANDALONE_LAYERS = 4
"""A speculator with more layers is a model of its own, not a head: its live K needs the runner without full graphs."""
GRAPH_TAX_PER_LAYER = 8e-6
"""Seconds a step loses per dense verifier layer when a live K forces piecewise graphs.

Published: 59.6 -> 50.0 tok/s in one stream of a 122B mixture of experts (vllm#49548), and "on par or marginal" for
Llama-3.1-8B on H100 (vllm#21477). Assumed here: launches hide behind dense layers, a small part shows (0.3 ms for 36
layers). The tuner's measured correction replaces it."""
GRAPH_TAX_PER_EXPERT_LAYER = 100e-6
"""Seconds a step loses per layer with experts when a live K forces piecewise graphs: 3.2 ms a token in one stream over
48 layers is 67 us at one token a step and 170 us at 2.5 (vllm#49548)."""
EAGER_PER_LAYER = 0.12e-3
EAGER_PER_EXPERT_LAYER = 2.4e-3
"""Least time of a layer without graphs: 12 kernels of 10 us; with experts 2.4 ms, by the 104 ms that a step of 43
layers takes anywhere from 1,537 to 2,047 tokens (DeepSeek-V4-Flash on four B300: 20.6 ms at 1,024 in a graph)."""
_REDUCES_PER_LAYER = 2


def roofline(facts: PairFacts, knobs: KnobSpace, fit: Efficiencies = FITTED) -> StepCosts | None:
    """Costs from data-sheet rates and model shapes; None when verifier or accelerator is unknown.

    A prior with a wide error (log standard deviation about 0.25 for traffic, 0.4 for arithmetic), made to be corrected.
    """
    verifier, accelerator = facts.verifier, facts.accelerator
    if verifier is None or accelerator is None:
        return None
    rate = rates(accelerator, facts.accelerators, fit)
    experts = expert_parameters(verifier)
    dense = (verifier.parameters - experts) * verifier.bytes_per_parameter / rate.bandwidth
    expert_fixed = experts * verifier.bytes_per_parameter / rate.bandwidth
    draft = draft_costs(verifier, facts, knobs, rate, fit, dense + expert_fixed)
    return StepCosts(
        fixed=dense + fit.host + _REDUCES_PER_LAYER * rate.reduce_latency * verifier.layers,
        per_token=token_seconds(verifier, rate),
        per_kv_token=verifier.kv_bytes_per_token / rate.kv_bandwidth,
        draft_fixed=draft.fixed,
        draft_per_token=draft.per_token,
        draft_per_kv_token=draft.per_kv_token,
        speculative_overhead=fit.speculative,
        graph_tax=_graph_tax(facts, knobs, verifier),
        expert_fixed=expert_fixed,
        expert_reach=verifier.experts_per_token / verifier.experts if experts else 1.0,
        expert_spread=fit.expert_spread,
        eager_floor=verifier.layers * (EAGER_PER_EXPERT_LAYER if experts else EAGER_PER_LAYER),
    )


def expert_parameters(model: ModelShape) -> float:
    """Number of weights in experts (0 for a dense model), solved from total = dense + experts, active = dense + experts
    * reached share."""
    if not model.experts or not 0 < model.experts_per_token < model.experts:
        return 0.0
    return (model.parameters - model.active_parameters) / (1.0 - model.experts_per_token / model.experts)


def token_seconds(model: ModelShape, rate: Rates) -> float:
    """Seconds of one token: its arithmetic and its share of the all-reduces (two per layer, 16-bit)."""
    reduced = _REDUCES_PER_LAYER * model.layers * model.hidden_size * 2.0
    return 2.0 * model.active_parameters / rate.flops(model) + reduced * rate.reduce_seconds_per_byte


def _graph_tax(facts: PairFacts, knobs: KnobSpace, verifier: ModelShape) -> float:
    if knobs.draft_free:
        return 0.0
    standalone = facts.speculator.layers > STANDALONE_LAYERS if facts.speculator is not None else False
    if not standalone and facts.method is not Method.DRAFT_MODEL:
        return 0.0
    return verifier.layers * (GRAPH_TAX_PER_EXPERT_LAYER if verifier.experts else GRAPH_TAX_PER_LAYER)
