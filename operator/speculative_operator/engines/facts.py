"""Facts of an object before its pods run: catalogue entries of its models and accelerator. Used by reconcile."""

from __future__ import annotations

from dataclasses import replace

from speculative_operator.domain.models import ModelShape, PairFacts
from speculative_operator.domain.spec import DeploymentSpec, ModelSource
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.memory import kv_tokens

_WEIGHT_BYTES = (("fp4", 0.5), ("mxfp4", 0.5), ("awq", 0.5), ("gptq", 0.5), ("int4", 0.5), ("fp8", 1.0), ("int8", 1.0))
"""Bytes per parameter by what the name of a quantization contains; scales and zero points are neglected."""

_MEMORY_SHARE = 0.9
"""Share of an accelerator's memory that vLLM takes unless told otherwise."""


def pair_facts(spec: DeploymentSpec) -> PairFacts:
    """Shapes of verifier, speculator and accelerator as far as the catalogue knows them, and what KV cache they leave
    room for; the rest is None."""
    small_kv = spec.verifier.kv_cache_dtype.startswith("fp8")
    verifier = _shape(spec.verifier.source, small_kv)
    if verifier is not None:
        size = min(verifier.bytes_per_parameter, _weight_bytes(spec.verifier.quantization))
        verifier = replace(verifier, bytes_per_parameter=size)
    facts = PairFacts(
        verifier=verifier,
        speculator=_shape(spec.speculator.source, small_kv) if spec.speculator is not None else None,
        accelerator=find_accelerator(spec.accelerator.product) if spec.accelerator.product else None,
        accelerators=spec.verifier.tensor_parallel_size,
        method=spec.speculator.method if spec.speculator is not None else None,
    )
    held, whole = (_capacity(spec, facts, with_speculator=one) for one in (True, False))
    return replace(facts, kv_capacity_tokens=held, kv_capacity_tokens_without_speculator=whole)


def _capacity(spec: DeploymentSpec, facts: PairFacts, *, with_speculator: bool) -> int | None:
    """Tokens that the KV cache of one engine holds; None when unknown, or when the weights alone seem not to fit."""
    percent = spec.verifier.gpu_memory_utilization_percent
    share = percent / 100.0 if percent is not None else _MEMORY_SHARE
    together = replace(facts, accelerators=facts.accelerators * spec.verifier.pipeline_parallel_size)
    return kv_tokens(together, with_speculator=with_speculator, memory_share=share) or None


def _shape(source: ModelSource | None, small_kv: bool) -> ModelShape | None:
    """The catalogue's shape; an 8-bit KV cache holds for the speculator too, which takes over the verifier's."""
    shape = find_model(source.location) if source is not None else None
    return replace(shape, kv_bytes_per_value=1.0) if shape is not None and small_kv else shape


def _weight_bytes(quantization: str) -> float:
    """Bytes per weight at `quantization`; 2 when it is empty or unknown."""
    return next((size for part, size in _WEIGHT_BYTES if part in quantization.lower()), 2.0)
