"""Rules of an engine's release for the judge: filled by `engines.pairs`, read by the modules of `compared`.

`pairing` knows no engine. Every field has the value that finds least, so that an engine of which nothing is known
leads to no Error that rests on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from speculative_operator.domain.spec import EngineType, Method


@dataclass(frozen=True, slots=True)
class EngineRules:
    """One engine at one release, for one spec."""

    engine: EngineType = EngineType.VLLM
    version: str = ""
    refusals: tuple[tuple[str, str], ...] = ()
    """(field, message with remedy) of what the engine refuses of the spec whatever the files say."""
    largest_k: int | None = None
    """K that the engine is started with; None: unknown, then that of the spec counts."""
    same_vocabulary_size: bool = False
    """A draft_model whose `vocab_size` differs at all, padding included, is refused at start."""
    whole_heads: bool = False
    """An EAGLE-3 head that drafts as many tokens as the verifier has is taken to need no map: its own `vocab_size` must
    be as many too, or its first draft ends the engine."""
    heterogeneous: bool | None = None
    """Whether the engine can map one vocabulary to another; None: unknown."""
    renames: tuple[tuple[str, Method], ...] = ()
    """(part of the speculator's name, method): what the engine takes a `draft_model` of such a name for."""
    speculators_types: frozenset[str] | None = None
    """`speculators_model_type` that the release reads; None: unknown."""
    mtp_types: frozenset[str] | None = None
    """`model_type` of verifiers and speculators whose modules the release runs; None: unknown."""
    no_inner_states: frozenset[str] = frozenset()
    """Architectures of verifiers whose inner hidden states the release does not give (EAGLE-3, block speculators)."""
    divisible_modules: bool = False
    """A K above the number of mtp modules must be a multiple of it."""
    divisible_heads: bool = False
    """Attention heads of speculator and verifier must divide by their tensor parallel size."""
    parallel_token: bool = False
    """Drafting in one pass needs a token for places to fill in the speculator's `config.json`."""
    stretches_positions: bool = False
    """Heads that draft by the verifier's positions are served beyond their own `max_position_embeddings`."""
    checks_lengths: bool = False
    """A `maxModelLen` beyond what `config.json` allows is refused at start."""
    checks_quantization: bool = False
    """A quantization that differs from the checkpoint's own is refused at start."""
