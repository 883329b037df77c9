"""Computes what a speculator costs beside its verifier: the time of a draft pass, and the memory that contexts lose.

`step_costs` calls it for the time. The engine adapters, the memory check of `pairing` and the laboratory ask how many
tokens of context fit: metrics do not show what a speculator holds, and to judge removal the tuner must be told both
capacities.

    tokens = (memory x share - weights of verifier [and speculator] - reserve) / (KV bytes of both, a token)

One pass reads the speculator's weights and its output head and launches its kernels; how many
passes a step makes is `step_time.draft_passes`. Shapes that are not given are derived from the verifier's:

| method | shape of a pass |
|---|---|
| draft_model | the given model; unknown: 1/13 of the verifier's weights (Qwen3-0.6B to Qwen3-8B), bf16 |
| eagle, eagle3 | one dense layer (13 h^2) and a head over the whole vocabulary, EAGLE-3: over 32k tokens |
| mtp | one layer of the verifier: its attention and as many experts as eight tokens reach; and the head |
| medusa | per draft one h x h layer and the head: all heads in one pass |
| dflash, dspark | five dense layers and the head, one pass for the whole block |
| ngram, suffix | looked up in the text: 0.6 % of a verification step, no pass at K = 0 |
"""

from __future__ import annotations

from dataclasses import dataclass

from speculative_operator.domain.models import ModelShape, PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.domain.table import KnobSpace
from speculative_operator.physics.hardware import REDUCES_PER_LAYER, Rates

PASS_LAUNCH = 0.25e-3
LAYER_LAUNCH = 36e-6
"""Seconds for one draft pass, and for each of its layers, beyond reading weights: small kernels are bound by launches.
The 28 layers of Qwen3-0.6B launched in 0.9 ms on one host (the calibrated pair) and in 4.9 ms on another
(docs/decisions/0015): this is 1.26 ms, nearer to the first, which more published rows share. One layer lies near the
0.71 ms a pass of the SpecDecode-Bench fit (2.135 ms for K = 3): EAGLE .83, EAGLE-3 .55."""
LOOKUP_SHARE = 0.006
"""Looking drafts up in the text costs this share of verification (SpecDecode-Bench fit, n-gram: 0.5875 %)."""
HEAD_VOCABULARY = 128_000
DRAFT_VOCABULARY = 32_000
"""Output tokens of a head, and of an EAGLE-3 head, which covers the frequent ones only (Llama-3.1-8B, its EAGLE-3)."""
BLOCK_LAYERS = 5
"""Layers of a block speculator (DFlash checkpoints)."""
DRAFT_MODEL_SHARE = 1.0 / 13.0
_DENSE_LAYER = 13.0
"""Weights of a dense decoder layer over h^2: 13.0 in Llama-3.1-8B, 11.6 in Qwen3-8B."""
_MTP_TOKENS = 8.0
RESERVE_BYTES = 3e9
"""Bytes an accelerator keeps for activations, graphs and the communication library, within its share: an assumption;
vLLM profiles 1-4 GB for models of 8B to 70B."""
_ASSUMED_K = 3


@dataclass(frozen=True, slots=True)
class DraftCosts:
    """Seconds of one pass, of one more token in it, of one token of context read in it."""

    fixed: float
    launch: float
    """The part of `fixed` in which the host launches kernels."""
    per_token: float
    per_kv_token: float


def draft_costs(
    verifier: ModelShape, facts: PairFacts, knobs: KnobSpace, rates: Rates, weights_seconds: float
) -> DraftCosts:
    """Costs of a draft pass beside `verifier`, whose weights take `weights_seconds` to read once."""
    if knobs.draft_free:
        return DraftCosts(
            LOOKUP_SHARE * weights_seconds, 0.0, LOOKUP_SHARE * 2.0 * verifier.active_parameters / rates.bf16, 0.0
        )
    shape = facts.speculator or speculator_shape(verifier, facts.method or _method(knobs), max(knobs.ks, default=1))
    launches = PASS_LAUNCH + LAYER_LAUNCH * shape.layers
    reduces = rates.reduce_latency * REDUCES_PER_LAYER * shape.layers
    return DraftCosts(
        launches + reduces + shape.weight_bytes / rates.bandwidth,
        launches,
        2.0 * shape.active_parameters / rates.flops(shape),
        shape.kv_bytes_per_token / rates.kv_bandwidth,
    )


def speculator_shape(verifier: ModelShape, method: Method, k: int) -> ModelShape:
    """The shape of a speculator of `method` for `verifier` where none is given, by the module's table."""
    h = float(verifier.hidden_size)
    head = h * HEAD_VOCABULARY
    if method is Method.DRAFT_MODEL:
        weights = verifier.active_parameters * DRAFT_MODEL_SHARE
        return _shape(verifier, "draft model", max(round(verifier.layers * 0.75), 1), weights, weights, 2.0)
    if method is Method.MTP:
        layer, active = _own_layer(verifier)
        return _shape(verifier, "mtp", 1, layer + head, active + head, verifier.bytes_per_parameter)
    if method in (Method.DFLASH, Method.DSPARK):
        weights = BLOCK_LAYERS * _DENSE_LAYER * h * h + head
        return _shape(verifier, "block speculator", BLOCK_LAYERS, weights, weights, 2.0)
    if method is Method.MEDUSA:
        weights = max(k, 1) * (h * h + head)
        return _shape(verifier, "heads", 0, weights, weights, 2.0)
    weights = _DENSE_LAYER * h * h + (head if method is Method.EAGLE else h * DRAFT_VOCABULARY)
    return _shape(verifier, "head", 1, weights, weights, 2.0)


def kv_tokens(facts: PairFacts, *, with_speculator: bool, memory_share: float = 0.9) -> int | None:
    """Tokens of context that all accelerators of one replica hold together; 0 when the weights leave no room.

    A capacity stated in `facts` (`kv_capacity_tokens`, `..._without_speculator`) comes first. None when verifier or
    accelerator is unknown. A speculator of unknown shape is derived from the method.
    """
    stated = facts.kv_capacity_tokens if with_speculator else facts.kv_capacity_tokens_without_speculator
    if stated is not None:
        return stated
    verifier, accelerator = facts.verifier, facts.accelerator
    if verifier is None or accelerator is None:
        return None
    speculator = speculator_of(facts) if with_speculator else None
    weights = verifier.weight_bytes + (speculator.weight_bytes if speculator else 0.0)
    a_token = verifier.kv_bytes_per_token + (speculator.kv_bytes_per_token if speculator else 0.0)
    room = facts.accelerators * (accelerator.memory_bytes * memory_share - RESERVE_BYTES) - weights
    return max(int(room / a_token), 0) if a_token > 0.0 else None


def speculator_of(facts: PairFacts) -> ModelShape | None:
    """The speculator's shape, given or derived; None without a verifier, for lookups and when no method is known."""
    if facts.speculator is not None:
        return facts.speculator
    if facts.verifier is None or facts.method is None or facts.method.draft_free:
        return None
    return speculator_shape(facts.verifier, facts.method, _ASSUMED_K)


def _method(knobs: KnobSpace) -> Method:
    return Method.DFLASH if knobs.drafts_blocks else Method.EAGLE3


def _own_layer(verifier: ModelShape) -> tuple[float, float]:
    """(weights read, weights used by a token) of one layer of the verifier."""
    active = verifier.active_parameters / verifier.layers
    if not verifier.experts:
        return active, active
    missed = (1.0 - verifier.experts_per_token / verifier.experts) ** _MTP_TOKENS
    return max((1.0 - missed) * verifier.parameters / verifier.layers, active), active


def _shape(verifier: ModelShape, name: str, layers: int, parameters: float, active: float, size: float) -> ModelShape:
    return ModelShape(
        name=name,
        parameters=parameters,
        active_parameters=active,
        layers=layers,
        hidden_size=verifier.hidden_size,
        kv_heads=verifier.kv_heads,
        head_dim=verifier.head_dim,
        bytes_per_parameter=size,
        kv_bytes_per_value=verifier.kv_bytes_per_value,
    )
