"""Shapes of models from their own files, for the physics of a step: real facts in place of the catalogue of shapes.

Called by `reconcile` and `speculative plan` to fill the tuner's `PairFacts`. Bytes are those of the files; values and
layers those of the config.
"""

from __future__ import annotations

from speculative_operator.domain.models import Accelerator, ModelFacts, ModelShape, PairFacts
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.pairing.fit_caches import CacheGroup, layer_kinds
from speculative_operator.pairing.fit_room import Holding, room, speculator_holding, verifier_holding, widths
from speculative_operator.pairing.fit_weights import Counts, Weights, counts, elements, weights
from speculative_operator.pairing.reading import decoder, number

_PACKED = 0.9
"""Bytes of a weight below which several lie in one element of a tensor."""
USUAL_CONTEXT = 4096
"""Tokens of context at which windows are averaged into a figure per token."""


def shape_of(facts: ModelFacts, spec: DeploymentSpec, *, as_speculator: bool = False) -> ModelShape | None:
    """The model as the step-time model sees it; None where its files do not tell enough.

    `kv_heads` x `head_dim` is what all ranks together cache for a token in a layer, at USUAL_CONTEXT: more than the
    config says where ranks hold copies (latents, fewer KV heads than ranks), less where layers keep windows only.
    """
    requested = spec.speculator if as_speculator else None
    config = decoder(facts.config)
    dtype, quantization = (
        spec.verifier.dtype,
        spec.verifier.quantization if requested is None else requested.quantization,
    )
    sizes = weights(facts, dtype, quantization)
    kinds = layer_kinds(config)
    if sizes is None or kinds is None:
        return None
    holding = speculator_holding(facts, facts, spec) if as_speculator else verifier_holding(facts, spec)
    size = widths(config, spec).value
    kv_heads, head_dim = _cache_layout(holding, len(kinds), size, USUAL_CONTEXT)
    parameters, active, each = _parameters(facts, sizes)
    return ModelShape(
        name=facts.pin.location,
        parameters=parameters,
        active_parameters=active,
        layers=len(kinds),
        hidden_size=number(config, "hidden") or 0,
        kv_heads=kv_heads,
        head_dim=head_dim,
        bytes_per_parameter=each,
        kv_bytes_per_value=size,
        experts=number(config, "experts") or 0,
        experts_per_token=(number(config, "experts_per_token") or 0) if number(config, "experts") else 0,
        max_position=number(config, "max_position") or 0,
    )


def pair_facts(
    verifier: ModelFacts, speculator: ModelFacts | None, spec: DeploymentSpec, accelerator: Accelerator | None
) -> PairFacts:
    """The tuner's facts of the pair, from real files. Capacities are those of one engine, None where files do not tell
    or the weights alone seem not to fit."""
    capacity, whole = _capacities(verifier, speculator, spec, accelerator)
    return PairFacts(
        verifier=shape_of(verifier, spec),
        speculator=shape_of(speculator, spec, as_speculator=True) if speculator is not None else None,
        accelerator=accelerator,
        accelerators=max(spec.verifier.tensor_parallel_size, 1),
        kv_capacity_tokens=capacity,
        kv_capacity_tokens_without_speculator=whole,
        method=spec.speculator.method if spec.speculator is not None else None,
    )


def _capacities(
    verifier: ModelFacts, speculator: ModelFacts | None, spec: DeploymentSpec, accelerator: Accelerator | None
) -> tuple[int | None, int | None]:
    own, speculator_held = verifier_holding(verifier, spec), speculator_holding(verifier, speculator, spec)
    if own is None or accelerator is None:
        return None, None
    context = min(spec.verifier.max_model_len or USUAL_CONTEXT, USUAL_CONTEXT)
    both = room(accelerator, own, speculator_held or Holding(), spec)
    held = both.tokens(context) if speculator_held is not None else None
    return held or None, both.without_speculator.tokens(context) or None


def _cache_layout(holding: Holding | None, layers: int, size: float, context: int) -> tuple[int, int]:
    """(KV heads, values of a key in each): the config's own where all layers are alike, else one head of the mean."""
    if holding is None or not holding.groups or not layers:
        return 0, 0
    (first, *others) = holding.groups
    if not others and _plain(first, holding.ranks):
        return first.heads, round(first.token_bytes / size / 2.0)
    grown = sum(one.bytes(context, holding.ranks, copies=0) for one in holding.groups)
    return 1, round(grown * holding.ranks / context / layers / size / 2.0)


def _plain(group: CacheGroup, ranks: int) -> bool:
    return not group.window and group.tokens_per_entry == 1 and group.heads >= ranks and not group.state_bytes


def _parameters(facts: ModelFacts, found: Weights) -> tuple[float, float, float]:
    """(all weights, those of one token, bytes of each). Sizes of 1 byte and more are whole, because the physics tells
    rates by them; the count then carries scales and what is left wider, so that the bytes are exact."""
    counted = counts(decoder(facts.config))
    each = found.verifier / _elements(facts, counted)
    each = float(max(round(each), 1)) if each > _PACKED else each
    parameters = found.verifier / each
    share = counted.active / counted.total if counted and counted.experts else 1.0
    return parameters, parameters * share, each


def _elements(facts: ModelFacts, counted: Counts | None) -> float:
    """Weights in the files: those of the headers, but counted from the config where several lie in one element; 16-bit
    ones where files tell nothing."""
    if counted and any(name in facts.weights.parameters for name in ("I32", "U8")):
        return counted.total
    return elements(facts.weights) or facts.weights.bytes / 2.0
