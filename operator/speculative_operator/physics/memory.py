"""Computes how many tokens of context fit beside the weights, with and without a speculator.

Called by `cases` (requests that run at once) and meant for the engine adapters, which fill `PairFacts.kv_capacity_*`.
Metrics do not show what a speculator holds: the tuner must be told both capacities to judge hard off.

    tokens = (memory x share - weights of verifier [and speculator] - reserve) / (KV bytes of both, a token)
"""

from __future__ import annotations

from speculative_operator.domain.models import ModelShape, PairFacts
from speculative_operator.physics.draft_costs import speculator_shape

RESERVE_BYTES = 3e9
"""Bytes an accelerator keeps for activations, graphs and the communication library, within its share: an assumption;
vLLM profiles 1-4 GB for models of 8B to 70B."""
_ASSUMED_K = 3


def kv_tokens(
    facts: PairFacts, *, with_speculator: bool, memory_share: float = 0.9, reserve_bytes: float = RESERVE_BYTES
) -> int | None:
    """Tokens of context that all accelerators of one replica hold together; 0 when the weights leave no room.

    A capacity stated in `facts` (`kv_capacity_tokens`, `..._without_speculator`) comes first. None when verifier or
    accelerator is unknown. A speculator of unknown shape is taken as `draft_costs` derives it from the method.
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
    room = facts.accelerators * (accelerator.memory_bytes * memory_share - reserve_bytes) - weights
    return max(int(room / a_token), 0) if a_token > 0.0 else None


def speculator_of(facts: PairFacts) -> ModelShape | None:
    """The speculator's shape, given or derived; None without a verifier, for lookups and when no method is known."""
    if facts.speculator is not None:
        return facts.speculator
    if facts.verifier is None or facts.method is None or facts.method.draft_free:
        return None
    return speculator_shape(facts.verifier, facts.method, _ASSUMED_K)
