"""Does the pair fit the accelerator? Weights and KV cache of both models, and room left for requests. Pure.

Called by `reconcile` for the condition MemoryFits, by `speculative check` and, through `shapes`, for the tuner's facts.

    room for KV = memory x gpuMemoryUtilizationPercent - weights of verifier and speculator - reserve
    requests    = room / (KV of verifier and speculator for one request)

Both as `physics.draft_costs` has them, with real bytes and per accelerator. A verdict is `False` only where the pair
cannot fit by the most generous reading: data-sheet gigabytes taken as gibibytes (an "80 GB" H100 has 79.6 GiB), and a
reserve of 1 GB. In between `fits` is None: pods are made, and the engine has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from speculative_operator.domain.models import Accelerator, ModelFacts
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.pairing.fit_advice import Suggestion, describe_fit, product_names, suggestions
from speculative_operator.pairing.fit_config import decoder, number
from speculative_operator.pairing.fit_room import Holding, Room, room, speculator_holding, verifier_holding
from speculative_operator.pairing.fit_weights import AT_LOAD
from speculative_operator.pairing.shapes import pair_facts, shape_of

__all__ = ["Fit", "Suggestion", "fit", "pair_facts", "shape_of"]

LEAST_RESERVE_BYTES = 1e9
_GENEROUS = 2**30 / 1e9
_OWN_MEMORY = ("offload", "hf-overrides", "kv-cache-memory", "language-model-only", "load-format")
"""Parts of flags in `engine.args` that move memory in ways that `fit` does not follow: then `fits` is never False."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The arithmetic of one replica on one accelerator product. All `_bytes` are of the fullest accelerator."""

    fits: bool | None
    """None: unknown, or too close to call."""
    message: str
    suggestions: tuple[Suggestion, ...] = ()
    memory_bytes: float = 0.0
    budget_bytes: float = 0.0
    """The share of the accelerator's memory that the engine may use."""
    verifier_bytes: float = 0.0
    speculator_bytes: float = 0.0
    reserve_bytes: float = 0.0
    kv_bytes: float = 0.0
    """Bytes left for the KV cache; below 0 where the weights do not fit."""
    request_bytes: float = 0.0
    """Bytes of KV cache that both models need for one request of `max_model_len` tokens."""
    request_speculator_bytes: float = 0.0
    max_model_len: int = 0
    longest: int = 0
    """Tokens of the longest request that fits."""
    requests: float = 0.0
    """Number of requests of `max_model_len` tokens at once, not rounded; vLLM prints it at start."""
    context: int | None = None
    requests_at_context: float | None = None
    tokens: int | None = None
    """KV cache of one engine in tokens, in requests of `context`, or of `max_model_len`."""
    tokens_without_speculator: int | None = None
    unsure: tuple[str, ...] = ()
    """Unknowns of the arithmetic, a clause each; each keeps `fits` from being False."""


def fit(
    verifier: ModelFacts,
    speculator: ModelFacts | None,
    spec: DeploymentSpec,
    accelerator: Accelerator | None,
    *,
    context: int | None = None,
) -> Fit:
    """The arithmetic for `spec`; `context` is the observed length of a request in tokens."""
    own = verifier_holding(verifier, spec)
    speculator_held = speculator_holding(verifier, speculator, spec)
    length = spec.verifier.max_model_len or number(decoder(verifier.config), "max_position")
    if own is None or length is None:
        return Fit(None, _untold(verifier, length))
    if accelerator is None:
        return _unknown_accelerator(own[0], speculator_held or Holding(), spec)
    unsure = _unsure(verifier, speculator_held, spec, counted=own[1].counted)
    device = room(accelerator, own[0], speculator_held or Holding(), spec)
    fits = _verdict(device, length, certain=not unsure)
    each = min(context or length, length)
    without = device.without_speculator
    figures = Fit(
        fits=fits,
        message="",
        memory_bytes=device.memory_bytes,
        budget_bytes=device.memory_bytes * device.share,
        verifier_bytes=device.verifier.weight_bytes,
        speculator_bytes=device.speculator.weight_bytes,
        reserve_bytes=device.reserve_bytes,
        kv_bytes=device.cache_bytes,
        request_bytes=device.request_bytes(length),
        request_speculator_bytes=device.speculator_request_bytes(length),
        max_model_len=length,
        longest=device.longest(),
        requests=device.requests(length),
        context=context,
        requests_at_context=device.requests(each) if context else None,
        tokens=device.tokens(each),
        tokens_without_speculator=without.tokens(each),
        unsure=unsure,
    )
    advice = suggestions(device, length, each, spec, accelerator, fits=fits)
    return replace(
        figures, message=describe_fit(device, length, each, spec, accelerator, fits, unsure), suggestions=advice
    )


def _verdict(device: Room, length: int, *, certain: bool) -> bool | None:
    if device.request_bytes(length) <= device.cache_bytes:
        return True
    generous = replace(device, memory_bytes=device.memory_bytes * _GENEROUS, reserve_bytes=LEAST_RESERVE_BYTES)
    if certain and generous.request_bytes(length) > generous.cache_bytes:
        return False
    return None


def _unsure(
    verifier: ModelFacts, speculator: Holding | None, spec: DeploymentSpec, *, counted: bool
) -> tuple[str, ...]:
    config = decoder(verifier.config)
    asked = spec.verifier.quantization.lower()
    size_known = isinstance(config.get("quantization_config"), dict) or not asked or asked in AT_LOAD
    arguments = [one for one in spec.engine.args if any(part in one for part in _OWN_MEMORY)]
    found = [
        ("" if speculator is not None else "the size of the speculator is unknown"),
        ("" if size_known else f"the size of the weights under quantization {asked} is unknown"),
        ("" if not counted else "the weights were counted from config.json, not read from the files"),
        ("" if "compress_ratios" not in config else "pages of compressed caches are larger than their content"),
        *(f"engine.args has {one.split('=')[0]}" for one in arguments),
    ]
    return tuple(one for one in found if one)


def _untold(verifier: ModelFacts, length: int | None) -> str:
    named = verifier.pin.location or "the verifier"
    if length is None:
        return f"{named}: config.json does not state the longest context; set verifier.maxModelLen to check memory."
    return f"{named}: config.json states layers and KV heads in an unknown form; memory is not checked."


def _unknown_accelerator(own: Holding, speculator: Holding, spec: DeploymentSpec) -> Fit:
    asked = spec.accelerator.product
    held = (own.weight_bytes + speculator.weight_bytes) / 2**30
    why = f"accelerator.product {asked} is not in the table" if asked else "accelerator.product is not set"
    message = (
        f"{why}, so memory is not checked: the weights need {held:.1f} GiB on each accelerator; "
        f"set it to one of {', '.join(product_names(spec))}."
    )
    return Fit(None, message, verifier_bytes=own.weight_bytes, speculator_bytes=speculator.weight_bytes)
