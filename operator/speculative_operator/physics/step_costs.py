"""Coefficients of a step's time for a pair: fitted to published measurements, else computed from data sheets.

Called by the tuner for its prior, by `pairing` for the order of the catalogue, by the emulator and the laboratory.
`step_time` sums the coefficients, and the tuner corrects them. The calibrated pair is more exact; for any other pair
`roofline` computes

    fixed      = dense weights / bandwidth + host + all-reduces          expert_fixed = expert weights / bandwidth
    per token  = 2 x active weights / FLOP/s + all-reduced bytes / link  per KV token = KV bytes / bandwidth
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from speculative_operator.domain.models import ModelShape, PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.domain.table import KnobSpace
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.draft_costs import draft_costs
from speculative_operator.physics.hardware import REDUCES_PER_LAYER, Rates, rates

HOST_SECONDS = 1.2e-3
"""Seconds of every step outside the accelerator's work: scheduling, sampling, input preparation. 1.207 ms in the
SpecDecode-Bench fit, where it is paid with and without drafts: only so do its own figures come out (AL 2.391 at K = 3
and batch 1 gives 1.81)."""
REJECTION_SECONDS = 0.2e-3
"""Seconds that a drafted step spends on rejection sampling beyond what HOST_SECONDS holds: an assumption."""
EXPERT_SPREAD = 0.8
"""Tokens of a step share experts: n of them reach as many as n ** 0.8 independent ones. DeepSeek-V4-Flash on four B300
gains 0.5 / 1.2 / 2.8 / 4.3 ms from 1 to 16 / 32 / 64 / 128 tokens, where independence says 1.9 / 3.2 / 4.7 / 5.7."""
STANDALONE_LAYERS = 4
"""A speculator with more layers is a model of its own, not a head: its live K needs the runner without full graphs."""
GRAPH_TAX_PER_LAYER = 8e-6
"""Seconds a step loses per dense verifier layer when a live K forces piecewise graphs.

Published: 59.6 -> 50.0 tok/s in one stream of a 122B mixture of experts (vllm#49548), and "on par or marginal" for
Llama-3.1-8B on H100 (vllm#21477). Assumed here: launches hide behind dense layers, a small part shows (0.3 ms for 36
layers). On one H200 in a virtual machine they did not: 66 us a layer at 8 requests (docs/decisions/0015)."""
GRAPH_TAX_PER_EXPERT_LAYER = 100e-6
"""Seconds a step loses per layer with experts when a live K forces piecewise graphs: 3.2 ms a token in one stream over
48 layers is 67 us at one token a step and 170 us at 2.5 (vllm#49548)."""
REQUEST_TAX = 46e-6
"""Seconds that each decoding request adds to a step of such a pod, whatever it drafts: 28 us (docs/decisions/0015, one
H200, 8 to 128 requests, less what 8 have) and 75 us (vllm#49548, H100-NVL, 2 to 189 requests, less the speculator's
pass); here their geometric mean. Lookups were not measured, and pay none of it."""
EAGER_PER_LAYER = 0.12e-3
EAGER_PER_EXPERT_LAYER = 2.4e-3
"""Least time of a layer without graphs: 12 kernels of 10 us; with experts 2.4 ms, by the 104 ms that a step of 43
layers takes anywhere from 1,537 to 2,047 tokens (DeepSeek-V4-Flash on four B300: 20.6 ms at 1,024 in a graph)."""


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
    """One more token through the speculator: arithmetic."""
    draft_per_kv_token: float
    """One token of context read by the speculator's attention, per request and pass."""
    speculative_overhead: float
    """Extra time of a step that verifies drafts."""
    graph_tax: float
    """Extra time of every step while K is live and the runner has no full graphs for it."""
    expert_fixed: float = 0.0
    """Mixture of experts: reading all experts once; a step reads the share that its tokens reach."""
    expert_reach: float = 1.0
    """Share of the experts that one token reaches."""
    expert_spread: float = 1.0
    """Tokens reach experts like `tokens ** expert_spread` independent ones; 1: tokens choose independently."""
    eager_floor: float = 0.0
    """Least time of a step whose decoded tokens exceed the capture ceiling: launching its kernels one by one."""
    request_tax: float = 0.0
    """Like `graph_tax`, for each decoding request: what the host does for it."""
    draft_launch: float = 0.0
    """The part of `draft_fixed` in which the host launches kernels."""


_QWEN3_8B = StepCosts(
    fixed=7.21e-3,
    per_token=2.035e-5,
    per_kv_token=4.333e-8,
    draft_fixed=1.36e-3,
    draft_per_token=1.042e-6,
    draft_per_kv_token=2.838e-8,
    speculative_overhead=1.247e-3,
    graph_tax=36 * GRAPH_TAX_PER_LAYER,
    request_tax=REQUEST_TAX,
    draft_launch=0.92e-3,
)
"""Qwen3-8B + Qwen3-0.6B (draft model, K = 3) on one H100-SXM: fitted to the 16 speed-ups of arXiv 2601.11580 Fig. 1
(vector figure; output tokens per second, end to end; vLLM 0.10-0.11 with full graphs, hence no graph tax in the fit).
Costs were tied to the roofline and to the Llama-3.1-8B fit on the same accelerator (log sd .06 a token, .1 weights and
KV, .25 speculator KV, .5 speculator pass and overhead, .7 speculator token), acceptance lengths to 2.5-3.2 (log sd
.15). Result: median error 4.6 %, largest 7.7 %, both published losses are losses. The residuals bend: the model is
3-8 % low at batch 16 and 64 and 2-7 % high at 128, where a step of 512 verified tokens plus prefill leaves the
captured graphs."""
_CALIBRATED = {("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "H100-SXM"): _QWEN3_8B}
"""(verifier, speculator, accelerator) -> costs. One set per pair serves every data set; only acceptance length and
lengths of prompts and outputs differ between them. docs/tuning-mathematics.md lists the residuals."""


def published_costs(facts: PairFacts) -> StepCosts | None:
    """Published costs of the pair on its single accelerator at 16 bits; None where no publication fits."""
    if facts.verifier is None or facts.speculator is None or facts.accelerator is None or not _as_published(facts):
        return None
    return calibrated_costs(facts.verifier.name, facts.speculator.name, facts.accelerator.name)


def estimated_costs(facts: PairFacts, knobs: KnobSpace) -> StepCosts | None:
    """The roofline of the pair, with its verifier's published costs where there are some; None as `roofline` is."""
    rough = roofline(facts, knobs)
    if rough is None or facts.verifier is None or facts.accelerator is None or not _as_published(facts):
        return rough
    alone = costs_with_verifier(facts.verifier.name, facts.accelerator.name) or rough
    return replace(rough, fixed=alone.fixed, per_token=alone.per_token, per_kv_token=alone.per_kv_token)


def _as_published(facts: PairFacts) -> bool:
    sixteen_bits = all(
        model is None or (model.bytes_per_parameter == 2.0 and model.kv_bytes_per_value == 2.0)
        for model in (facts.verifier, facts.speculator)
    )
    return facts.accelerators == 1 and sixteen_bits


def method_of(facts: PairFacts, knobs: KnobSpace) -> Method:
    """The method that stands for the kind of speculator, inferred from its knobs and shape."""
    if knobs.draft_free:
        return Method.NGRAM
    if knobs.drafts_blocks:
        return Method.DFLASH
    if facts.speculator is not None and facts.speculator.layers > STANDALONE_LAYERS:
        return Method.DRAFT_MODEL
    return Method.EAGLE3


def calibrated_costs(verifier: str, speculator: str, accelerator: str) -> StepCosts | None:
    """Costs of the pair on one accelerator, names as `catalog` takes them; None for a pair without published data."""
    first, second, device = find_model(verifier), find_model(speculator), find_accelerator(accelerator)
    if first is None or second is None or device is None:
        return None
    return _CALIBRATED.get((first.name, second.name, device.name))


def costs_with_verifier(verifier: str, accelerator: str) -> StepCosts | None:
    """Costs of a calibrated pair with this verifier, or None; the verifier's part holds with any or no speculator."""
    first, device = find_model(verifier), find_accelerator(accelerator)
    if first is None or device is None:
        return None
    for (name, _, where), costs in _CALIBRATED.items():
        if (name, where) == (first.name, device.name):
            return costs
    return None


def roofline(facts: PairFacts, knobs: KnobSpace) -> StepCosts | None:
    """Costs from data-sheet rates and model shapes; None when verifier or accelerator is unknown.

    A prior with a wide error (log standard deviation about 0.25 for traffic, 0.4 for arithmetic), made to be corrected.
    """
    verifier, accelerator = facts.verifier, facts.accelerator
    if verifier is None or accelerator is None:
        return None
    rate = rates(accelerator, facts.accelerators)
    experts = expert_parameters(verifier)
    dense = (verifier.parameters - experts) * verifier.bytes_per_parameter / rate.bandwidth
    expert_fixed = experts * verifier.bytes_per_parameter / rate.bandwidth
    draft = draft_costs(verifier, facts, knobs, rate, dense + expert_fixed)
    return StepCosts(
        fixed=dense + HOST_SECONDS + REDUCES_PER_LAYER * rate.reduce_latency * verifier.layers,
        per_token=token_seconds(verifier, rate),
        per_kv_token=verifier.kv_bytes_per_token / rate.kv_bandwidth,
        draft_fixed=draft.fixed,
        draft_per_token=draft.per_token,
        draft_per_kv_token=draft.per_kv_token,
        speculative_overhead=REJECTION_SECONDS,
        graph_tax=verifier.layers * (GRAPH_TAX_PER_EXPERT_LAYER if experts else GRAPH_TAX_PER_LAYER),
        request_tax=0.0 if knobs.draft_free else REQUEST_TAX,
        draft_launch=draft.launch,
        expert_fixed=expert_fixed,
        expert_reach=verifier.experts_per_token / verifier.experts if experts else 1.0,
        expert_spread=EXPERT_SPREAD,
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
    reduced = REDUCES_PER_LAYER * model.layers * model.hidden_size * 2.0
    return 2.0 * model.active_parameters / rate.flops(model) + reduced * rate.reduce_seconds_per_byte
