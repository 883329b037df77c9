"""Room for a KV cache on the fullest accelerator of a replica, with and without a speculator.

Used by `memory` and `shapes`. All sizes are bytes on one accelerator (one tensor-parallel rank of one pipeline stage).
Pipeline stages are as even as layers allow; speculators and their caches lie on the last. Under data parallelism each
engine has its own KV cache; experts are spread over all ranks of all of them (vLLM, data_parallel_deployment.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain.models import Accelerator, ModelFacts
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode
from speculative_operator.domain.vllm import drafting_kv_cache_dtype
from speculative_operator.pairing.fit_caches import (
    STATE_COPIES,
    CacheGroup,
    Widths,
    caches,
    layer_kinds,
    value_bytes,
)
from speculative_operator.pairing.fit_weights import weights
from speculative_operator.pairing.reading import decoder, number
from speculative_operator.physics.draft_costs import RESERVE_BYTES

MEMORY_SHARE = 0.9
"""Share of an accelerator's memory that vLLM takes unless told otherwise."""
LARGE_BATCH, SMALL_BATCH = 8192, 2048
"""Tokens of prefill in one step that vLLM serves with unless told otherwise, on accelerators of 70 GiB and on smaller
ones. Layers with a window keep so much beyond it."""
_LARGE_MEMORY = 70 * 2**30
_MOST_TOKENS = 1 << 26
_BLOCK = 16
_SHARING_FAMILIES = ("gemma4_assistant", "gemma4_unified_assistant")
"""Speculators that attend to the verifier's cache and keep none (vLLM, speculative_decoding/mtp.md)."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Memory that one model holds: weights, and caches that grow with requests."""

    weight_bytes: float = 0.0
    groups: tuple[CacheGroup, ...] = ()
    ranks: int = 1
    stage: float = 1.0
    """Share of the model's layers on the fullest stage."""

    def request_bytes(self, tokens: float, batch: int, copies: int) -> float:
        return self.stage * sum(one.bytes(tokens, self.ranks, batch=batch, copies=copies) for one in self.groups)


@dataclass(frozen=True, slots=True)
class Room:
    """Memory of one accelerator, and what both models hold of it."""

    memory_bytes: float
    verifier: Holding
    speculator: Holding = Holding()
    share: float = MEMORY_SHARE
    reserve_bytes: float = RESERVE_BYTES
    batch: int = LARGE_BATCH
    drafts: int = 0
    """Draft tokens a step: recurrent layers keep a state for each."""

    @property
    def cache_bytes(self) -> float:
        """Bytes left for the KV cache; below 0 where the weights do not fit."""
        held = self.verifier.weight_bytes + self.speculator.weight_bytes
        return self.memory_bytes * self.share - self.reserve_bytes - held

    @property
    def without_speculator(self) -> Room:
        return replace(self, speculator=Holding(), drafts=0)

    def request_bytes(self, tokens: float) -> float:
        """Bytes of KV cache that both models need for one request of `tokens`."""
        copies = STATE_COPIES + self.drafts
        return sum(one.request_bytes(tokens, self.batch, copies) for one in (self.verifier, self.speculator))

    def requests(self, tokens: float) -> float:
        """Number of requests of `tokens` that fit at once, not rounded; 0 where there is no room."""
        each = self.request_bytes(tokens)
        return max(self.cache_bytes, 0.0) / each if each > 0.0 else math.inf

    def tokens(self, each: float) -> int | None:
        """Tokens that all requests of `each` tokens hold together; None where a request needs no cache."""
        found = self.requests(each) * each
        return int(found + 1e-6) if math.isfinite(found) else None

    def longest(self) -> int:
        """Tokens of the longest request that fits alone, in whole blocks."""
        low, high = 0, _MOST_TOKENS // _BLOCK
        while low < high:
            middle = (low + high + 1) // 2
            if self.request_bytes(middle * _BLOCK) <= self.cache_bytes:
                low = middle
            else:
                high = middle - 1
        return low * _BLOCK


def widths(config: Mapping[str, Any], spec: DeploymentSpec, asked: str | None = None) -> Widths:
    """Bytes of cached values: as `asked` (None: `kvCacheDtype`) says, or the checkpoint's own 8 bits, or the model's
    dtype."""
    dtype = spec.verifier.kv_cache_dtype if asked is None else asked
    plain = value_bytes(spec.verifier.dtype)
    quantized = config.get("quantization_config")
    own = quantized.get("kv_cache_quant_algo") if isinstance(quantized, Mapping) else None
    small = dtype.startswith(("fp8", "int8")) or (dtype in ("", "auto") and str(own or "").upper() == "FP8")
    if dtype and not small and dtype != "auto":
        plain = value_bytes(dtype)
    return Widths(value=1.0 if small else plain, state=plain)


def verifier_holding(facts: ModelFacts, spec: DeploymentSpec) -> Holding | None:
    """Memory that the verifier holds; None where its files do not tell weights or caches."""
    config, options = decoder(facts.config), spec.verifier
    loaded, groups = weights(facts, options.dtype, options.quantization), caches(config, widths(config, spec))
    if loaded is None or groups is None:
        return None
    ranks, stages = max(options.tensor_parallel_size, 1), max(options.pipeline_parallel_size, 1)
    layers = max(len(layer_kinds(config) or ()), 1)
    stage = math.ceil(layers / stages) / layers
    experts = loaded.verifier * loaded.expert_share
    everywhere = ranks * max(options.data_parallel_size, 1)
    dense = (loaded.verifier - experts - loaded.embedding) * stage + loaded.embedding / min(stages, 2)
    return Holding(dense / ranks + experts * stage / everywhere, groups, ranks, stage)


def speculator_holding(verifier: ModelFacts, speculator: ModelFacts | None, spec: DeploymentSpec) -> Holding | None:
    """Memory that the speculator holds; empty where it has no weights, None where its files do not tell."""
    requested = spec.speculator
    if requested is None or spec.speculation.mode is Mode.DISABLED or requested.method.draft_free:
        return Holding()
    ranks = requested.tensor_parallel_size or max(spec.verifier.tensor_parallel_size, 1)
    inside = speculator is None and requested.source is None and requested.method.may_sit_in_verifier
    config = decoder(verifier.config if speculator is None else speculator.config)
    size = widths(decoder(verifier.config), spec, drafting_kv_cache_dtype(spec))
    if inside:
        found = weights(verifier, spec.verifier.dtype, spec.verifier.quantization)
        groups = caches(config, size, number(config, "draft_layers") or 1)
        return Holding(found.draft_layers / ranks, groups, ranks) if found and groups is not None else None
    own = weights(speculator, spec.verifier.dtype, requested.quantization) if speculator is not None else None
    if speculator is None or own is None:
        return None
    keeps = requested.method is not Method.MEDUSA and speculator.config.get("model_type") not in _SHARING_FAMILIES
    groups = caches(config, size) if keeps else ()
    return Holding(own.files / ranks, groups, ranks) if groups is not None else None


def room(accelerator: Accelerator, verifier: Holding, speculator: Holding, spec: DeploymentSpec) -> Room:
    """The accelerator with both models on it, as the spec asks for them."""
    percent = spec.verifier.gpu_memory_utilization_percent
    usual = LARGE_BATCH if accelerator.memory_bytes >= _LARGE_MEMORY else SMALL_BATCH
    return Room(
        memory_bytes=accelerator.memory_bytes,
        verifier=verifier,
        speculator=speculator,
        share=percent / 100.0 if percent is not None else MEMORY_SHARE,
        batch=spec.verifier.max_num_batched_tokens or usual,
        drafts=_drafts(spec),
    )


def _drafts(spec: DeploymentSpec) -> int:
    """Draft tokens that the engine makes room for."""
    if not spec.speculates:
        return 0
    speculation = spec.speculation
    return (
        speculation.num_speculative_tokens or 0
        if speculation.mode is Mode.STATIC
        else speculation.max_speculative_tokens
    )
