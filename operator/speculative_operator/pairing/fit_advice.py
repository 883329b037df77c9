"""The sentence that shows the arithmetic of memory, and changes that make a pair fit. Used by `memory`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from speculative_operator.domain.models import Accelerator
from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.pairing.fit_room import Room
from speculative_operator.physics.catalog import find_accelerator, rows

_GIB = float(2**30)
_MOST_RANKS = 64
_MOST_PERCENT = 95
_FEW = 4
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


def describe_fit(
    device: Room,
    length: int,
    each: int,
    spec: DeploymentSpec,
    accelerator: Accelerator,
    fits: bool | None,
    unsure: tuple[str, ...],
) -> str:
    """One sentence with every term in GiB, and one on what the speculator costs."""
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
    return text + (f" Uncertain: {'; '.join(unsure)}." if unsure else "")


def suggestions(
    device: Room, length: int, each: int, spec: DeploymentSpec, accelerator: Accelerator, *, fits: bool | None
) -> tuple[Suggestion, ...]:
    """Changes of the spec that help, the least change first; empty where all requests that may run fit together."""
    if fits is not True:
        return tuple(_remedies(device, length, spec, accelerator))
    most, held = spec.verifier.max_num_seqs, device.requests(each)
    if most is not None and held < most:
        why = f"{most} requests of {each:,} tokens do not fit together: the engine would preempt some"
        return (Suggestion("verifier.maxNumSeqs", str(max(int(held), 1)), why),)
    return ()


def product_names(spec: DeploymentSpec) -> list[str]:
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


def _remedies(device: Room, length: int, spec: DeploymentSpec, accelerator: Accelerator) -> Iterator[Suggestion]:
    longest = device.longest()
    if longest >= 16:
        yield Suggestion("verifier.maxModelLen", str(longest), "the longest request that fits")
    percent = round(device.share * 100)
    if percent < _MOST_PERCENT and _holds(replace(device, share=_MOST_PERCENT / 100), length):
        yield Suggestion("verifier.gpuMemoryUtilizationPercent", str(_MOST_PERCENT), f"{percent} % leaves too little")
    if device.speculator.weight_bytes and _holds(device.without_speculator, length):
        yield Suggestion("speculator", "none, or a smaller one", "the verifier alone fits")
    if ranks := _ranks(device, length):
        count = f"{ranks * spec.verifier.pipeline_parallel_size} x {accelerator.name}"
        yield Suggestion("verifier.tensorParallelSize", str(ranks), f"on {count} it fits")
    products = [
        (other.memory_bytes, name)
        for name in product_names(spec)
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
