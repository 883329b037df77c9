"""Shapes of models and accelerators: what physics needs to price a step and pairing to judge memory."""

from __future__ import annotations

from dataclasses import dataclass

from speculative_operator.domain.spec import Method


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A transformer as the step-time model sees it. Counts, not bytes, unless said."""

    name: str
    parameters: float
    """All weights that lie in accelerator memory."""
    active_parameters: float
    """Weights that one token passes through: equal to `parameters` for dense models."""
    layers: int
    hidden_size: int
    kv_heads: int
    head_dim: int
    bytes_per_parameter: float = 2.0
    kv_bytes_per_value: float = 2.0
    experts: int = 0
    experts_per_token: int = 0
    max_position: int = 0

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.bytes_per_parameter

    @property
    def kv_bytes_per_token(self) -> float:
        """Key and value of every layer for one token, in bytes."""
        return 2.0 * self.layers * self.kv_heads * self.head_dim * self.kv_bytes_per_value


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Dense peak rates of one accelerator."""

    name: str
    bf16_flops: float
    """FLOP/s, dense."""
    fp8_flops: float
    """FLOP/s, dense; equal to `bf16_flops` where 8-bit brings no speed."""
    memory_bytes: float
    memory_bandwidth: float
    """bytes/s"""
    source: str = ""


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Facts of an object's hardware and models before its first run. Every part may be unknown."""

    verifier: ModelShape | None = None
    speculator: ModelShape | None = None
    accelerator: Accelerator | None = None
    accelerators: int = 1
    """Accelerators that share one step (tensor parallel ranks)."""
    kv_capacity_tokens: int | None = None
    kv_capacity_tokens_without_speculator: int | None = None
    method: Method | None = None
    """How drafts are made; None when unknown (then told from the knobs and the speculator's shape)."""
