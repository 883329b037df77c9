"""How many KV blocks the accelerator holds beside the weights (pure). Called by `config.EngineConfig.pool`."""

from __future__ import annotations

from dataclasses import dataclass

from speculative_lab.emulator.errors import LateError
from speculative_lab.emulator.shapes import Shapes

GIB = 2**30
RESERVE_BYTES = 2 * GIB
"""Activations, CUDA graphs and runtime of one accelerator: an assumption, of the order of what an 8B model needs."""


@dataclass(frozen=True, slots=True)
class KvPool:
    """Blocks of `block_size` tokens. Verifier and drafter share them: a token takes room in both."""

    blocks: int
    block_size: int
    bytes: float

    @property
    def tokens(self) -> int:
        return self.blocks * self.block_size


def pool(
    shapes: Shapes,
    *,
    block_size: int,
    utilization: float,
    max_model_len: int,
    given_bytes: int | None = None,
    given_blocks: int | None = None,
) -> KvPool:
    """Blocks left of `utilization` x memory after both models' weights; `given_*` override as their flags do.

    Raises LateError when nothing is left or one request of `max_model_len` tokens does not fit.
    """
    ranks = shapes.tensor_parallel_size
    weights = shapes.verifier.weight_bytes + (shapes.speculator.weight_bytes if shapes.speculator else 0.0)
    free = shapes.accelerator.memory_bytes * utilization - weights / ranks - RESERVE_BYTES
    free = float(given_bytes) if given_bytes is not None else free
    per_block = bytes_per_token(shapes) * block_size
    blocks = int(free // per_block) if given_blocks is None else given_blocks
    if blocks <= 0:
        raise LateError(
            "No available memory for the cache blocks."
            " Try increasing `gpu_memory_utilization` when initializing the engine."
        )
    if blocks * block_size < max_model_len:
        needed, there = -(-max_model_len // block_size) * per_block / GIB, blocks * per_block / GIB
        raise LateError(
            f"To serve at least one request with the model's max seq len ({max_model_len}), {needed:.2f} GiB KV cache"
            f" is needed, which is larger than the available KV cache memory ({there:.2f} GiB). Try increasing"
            " `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
        )
    return KvPool(blocks, block_size, blocks * per_block)


def bytes_per_token(shapes: Shapes) -> float:
    """KV bytes of one token on one accelerator, in verifier and drafter together."""
    drafter = shapes.speculator.kv_bytes_per_token if shapes.speculator else 0.0
    return (shapes.verifier.kv_bytes_per_token + drafter) / shapes.tensor_parallel_size
