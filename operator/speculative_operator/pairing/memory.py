"""Does the pair fit the accelerator? Weights and KV cache of both models, and room left for requests. Pure.

Called by `reconcile` for the condition MemoryFits, and by `speculative plan`.

    room for KV = memory x gpuMemoryUtilizationPercent - weights of verifier and speculator - reserve
    requests    = room / (KV of verifier and speculator for one request)

Both as `physics.draft_costs` has them, with real bytes and per accelerator. A verdict is `False` only where the pair
cannot fit by the most generous reading: data-sheet gigabytes taken as gibibytes (an "80 GB" H100 has 79.6 GiB), and a
reserve of 1 GB. In between `fits` is None: pods are made, and the engine has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from speculative_operator.domain.models import Accelerator, ModelFacts
from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.shares import share_of
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.pairing.fit_room import Holding, Room, room, speculator_holding, verifier_holding
from speculative_operator.pairing.fit_weights import AT_LOAD
from speculative_operator.pairing.reading import decoder, number
from speculative_operator.physics.catalog import find_accelerator, rows

LEAST_RESERVE_BYTES = 1e9
_GENEROUS = 2**30 / 1e9
_OWN_MEMORY = ("offload", "hf-overrides", "kv-cache-memory", "language-model-only", "load-format")
"""Parts of flags in `engine.args` that move memory in ways that `fit` does not follow: then `fits` is never False."""
_GIB = float(2**30)
_MOST_RANKS = 64
_MOST_PERCENT = 95
_FEW = 4
_NO_ROOM = Room(0.0, Holding())
_PREFIXES = {Vendor.AMD: ("MI",), Vendor.INTEL_GPU: ("Intel",), Vendor.NEURON: ("Trainium",), Vendor.TPU: ("TPU",)}
_OTHERS = tuple(prefix for found in _PREFIXES.values() for prefix in found)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One change of the spec that makes the pair fit, or fit better."""

    field: str
    value: str
    why: str

    def __str__(self) -> str:
        return f"{self.field}: {self.value} ({self.why})"


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a pair fits one accelerator product, with the arithmetic of the fullest accelerator of a replica."""

    fits: bool | None
    """None: unknown, or too close to call."""
    message: str
    room: Room = _NO_ROOM
    length: int = 0
    """Tokens of the longest request that the engine takes."""
    tokens: int | None = None
    """KV cache of one engine in tokens, in requests of the observed length, or of the longest."""
    tokens_without_speculator: int | None = None


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
        return Fit(None, _unknown_accelerator(own, speculator_held or Holding(), spec))
    unsure = _unsure(verifier, speculator_held, spec)
    device = room(accelerator, own, speculator_held or Holding(), spec)
    fits = _verdict(device, length, certain=not unsure)
    each = min(context or length, length)
    advice = tuple(remedies(device, length, spec, accelerator)) if fits is not True else ()
    return Fit(
        fits,
        _describe(device, length, each, spec, accelerator, fits, unsure, advice),
        device,
        length,
        tokens=device.tokens(each),
        tokens_without_speculator=device.without_speculator.tokens(each),
    )


def _verdict(device: Room, length: int, *, certain: bool) -> bool | None:
    if device.request_bytes(length) <= device.cache_bytes:
        return True
    generous = replace(device, memory_bytes=device.memory_bytes * _GENEROUS, reserve_bytes=LEAST_RESERVE_BYTES)
    if certain and generous.request_bytes(length) > generous.cache_bytes:
        return False
    return None


def _unsure(verifier: ModelFacts, speculator: Holding | None, spec: DeploymentSpec) -> tuple[str, ...]:
    config = decoder(verifier.config)
    asked = spec.verifier.quantization.lower()
    size_known = isinstance(config.get("quantization_config"), dict) or not asked or asked in AT_LOAD
    arguments = [one for one in spec.engine.args if any(part in one.replace("_", "-") for part in _OWN_MEMORY)]
    found = [
        ("" if speculator is not None else "the size of the speculator is unknown"),
        ("" if size_known else f"the size of the weights under quantization {asked} is unknown"),
        ("" if "compress_ratios" not in config else "pages of compressed caches are larger than their content"),
        *(f"engine.args has {one.split('=')[0]}" for one in arguments),
    ]
    return tuple(one for one in found if one)


def _untold(verifier: ModelFacts, length: int | None) -> str:
    named = verifier.pin.location or "the verifier"
    if not verifier.weights.bytes:
        return f"{named}: its weights are in no known form; memory is not checked."
    if length is None:
        return f"{named}: config.json does not state the longest context; set verifier.maxModelLen to check memory."
    return f"{named}: config.json states layers and KV heads in an unknown form; memory is not checked."


def _unknown_accelerator(own: Holding, speculator: Holding, spec: DeploymentSpec) -> str:
    asked = spec.accelerator.product
    held = own.weight_bytes + speculator.weight_bytes
    why = f"accelerator.product {asked} is not in the table" if asked else "accelerator.product is not set"
    if (share := share_of(spec)) is not None and (not share.gigabytes or find_accelerator(share.product)):
        need = f"the weights need {_gib(held)} GiB on each"
        return f"pods get {share.name}, whose memory no name tells, so memory is not checked: {need}."
    return (
        f"{why}, so memory is not checked: the weights need {_gib(held)} GiB on each accelerator; "
        f"set it to one of {', '.join(_product_names(spec))}."
    )


def _describe(
    device: Room,
    length: int,
    each: int,
    spec: DeploymentSpec,
    accelerator: Accelerator,
    fits: bool | None,
    unsure: tuple[str, ...],
    advice: tuple[Suggestion, ...],
) -> str:
    """One sentence with every term in GiB, one on what the speculator costs, and what would help."""
    ranks = spec.verifier.tensor_parallel_size * spec.verifier.pipeline_parallel_size
    where = f"each of {ranks} x {accelerator.name}" if ranks > 1 else accelerator.name
    speculator = device.speculator.weight_bytes
    weights = f"verifier {_gib(device.verifier.weight_bytes)}"
    weights += f", speculator {_gib(speculator)}" if speculator else ""
    verdict = {True: "Fits", False: "Does not fit", None: "Too close to call"}[fits]
    budget = f"{device.share:.0%} of {_gib(device.memory_bytes)} GiB is {_gib(device.memory_bytes * device.share)} GiB"
    left = device.cache_bytes
    rest = f"minus {weights} and reserve {_gib(device.reserve_bytes)}, leaves {_gib(left)} GiB for the KV cache"
    text = f"{verdict}: on {where} {budget}; that, {rest}; {_memory_sentence(device, length, each)}."
    text += _cost(device, each)
    text += f" Uncertain: {'; '.join(unsure)}." if unsure else ""
    return text + (f" What would fit: {'; '.join(map(str, advice))}." if advice else "")


def _product_names(spec: DeploymentSpec) -> list[str]:
    """Names of the accelerators of the vendor that the spec asks for."""
    vendor = spec.accelerator.vendor
    names = [row["name"] for row in rows("accelerators")]
    if vendor in _PREFIXES:
        return [name for name in names if name.startswith(_PREFIXES[vendor])]
    return [name for name in names if not name.startswith(_OTHERS)]


def _memory_sentence(device: Room, length: int, each: int) -> str:
    one = f"a request of {length:,} tokens (maxModelLen) takes {_gib(device.request_bytes(length))} GiB"
    if device.cache_bytes <= 0.0:
        return f"the weights alone exceed the memory, and {one}"
    held = device.requests(length)
    if held < 1.0:
        return f"{one}, more than that: {device.longest():,} tokens would fit"
    at = f", and {_count(device.requests(each))} of {each:,} tokens" if each < length else ""
    return f"{one}, so {_count(held)} run at once{at}"


def _cost(device: Room, each: int) -> str:
    """A sentence on the tokens that the speculator takes from the KV cache; empty where it takes none."""
    now, without = device.tokens(each), device.without_speculator.tokens(each)
    if now is None or without is None or without <= now:
        return ""
    return (
        f" Without the speculator the KV cache would hold {without:,} tokens instead of {now:,}: "
        f"removal frees {without - now:,} ({(without - now) / without:.1%})."
    )


def remedies(device: Room, length: int, spec: DeploymentSpec, accelerator: Accelerator) -> Iterator[Suggestion]:
    """Changes of the spec that make the pair fit, or fit better, the least change first."""
    longest = device.longest()
    if longest >= 16:
        yield Suggestion("verifier.maxModelLen", str(longest), "the longest request that fits")
    percent = round(device.share * 100)
    if percent < _MOST_PERCENT and _holds(replace(device, share=_MOST_PERCENT / 100), length):
        yield Suggestion("verifier.gpuMemoryUtilizationPercent", str(_MOST_PERCENT), f"{percent} % leaves too little")
    if device.speculator.weight_bytes and _holds(device.without_speculator, length):
        yield Suggestion("speculator", "none, or a smaller one", "the verifier alone fits")
    if share_of(spec) is not None:
        yield Suggestion("accelerator.resource", "a larger slice or a whole accelerator", "pods get a slice")
        return
    if ranks := _ranks(device, length):
        count = f"{ranks * spec.verifier.pipeline_parallel_size} x {accelerator.name}"
        yield Suggestion("verifier.tensorParallelSize", str(ranks), f"on {count} it fits")
    products = [
        (other.memory_bytes, name)
        for name in _product_names(spec)
        if (other := find_accelerator(name)) and _holds(replace(device, memory_bytes=other.memory_bytes), length)
    ]
    if products:
        names = ", ".join(name for _, name in sorted(products)[:_FEW])
        yield Suggestion("accelerator.product", names, "it fits there with as many accelerators")


def _ranks(device: Room, length: int) -> int | None:
    """The least power-of-two multiple of ranks that holds one request; weights and caches are split anew."""
    ranks = device.verifier.ranks
    while (ranks := ranks * 2) <= _MOST_RANKS:
        factor = ranks / device.verifier.ranks
        verifier = replace(device.verifier, weight_bytes=device.verifier.weight_bytes / factor, ranks=ranks)
        own = device.speculator
        if own.ranks == device.verifier.ranks:
            own = replace(own, weight_bytes=own.weight_bytes / factor, ranks=ranks)
        if _holds(replace(device, verifier=verifier, speculator=own), length):
            return ranks
    return None


def _holds(device: Room, length: int) -> bool:
    return device.request_bytes(length) <= device.cache_bytes


def _gib(size: float) -> str:
    return f"{size / _GIB:.1f}"


def _count(requests: float) -> str:
    return "any number" if math.isinf(requests) else f"{int(requests):,}"
