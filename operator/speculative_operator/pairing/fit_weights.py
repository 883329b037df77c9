"""Bytes of weights as an engine holds them: those of the files, parted by what their config counts.

Used by `fit_room` and `shapes`. Counts leave norms, biases and vision towers out (under 0.1 % of a text model; a tower
is in the bytes of the files). Checked against the parameter counts of public checkpoints in tests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain.models import ModelFacts, WeightFacts
from speculative_operator.pairing.fit_caches import LINEAR_KEYS, key_shape, layer_kinds, value_bytes
from speculative_operator.pairing.reading import decoder, number, numbers, sequence

_UNGATED = ("relu2", "gelu_new", "gelu_fast")
"""Activations of feed-forward layers with two matrices; all others have three."""
_LETTERS = {"mamba": "M", "moe": "E", "mlp": "-"}
_ALONE = ("E", "-")
_LAYER = re.compile(r"(?:layers|h)\.(\d+)\.")
_DRAFTING = ("mtp", "eh_proj", "nextn")
AT_LOAD = {"fp8": 1.0, "fbgemm_fp8": 1.0, "bitsandbytes": 0.5, "experts_int8": 1.0, "int8": 1.0}
"""Quantizations that engines apply to 16-bit files while they load: bytes of a weight. Embedding and head stay."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Weights of a model without its draft layers."""

    total: float
    experts: float
    """Weights in routed experts."""
    active: float
    """Weights that one token passes through."""
    embedding: float
    """Weights of embedding and output head; once where they are tied."""
    layer: float
    """Weights of the largest layer."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of one checkpoint as an engine holds them, over all ranks."""

    verifier: float
    """Bytes without the draft layers that lie in the same files."""
    draft_layers: float
    """Bytes of the draft layers in the same files; 0 without any."""
    expert_share: float = 0.0
    """Share of routed experts in all weights."""
    embedding: float = 0.0
    """Bytes of embedding and output head."""

    @property
    def files(self) -> float:
        """Bytes of all weights in the files."""
        return self.verifier + self.draft_layers


def weights(facts: ModelFacts, dtype: str = "", quantization: str = "") -> Weights | None:
    """Bytes of a checkpoint loaded in `dtype` and `quantization` (both as in the spec, empty: as stored).

    None where the files have no weights that are known here.
    """
    stored = float(facts.weights.bytes)
    if stored <= 0.0:
        return None
    config = decoder(facts.config)
    found = counts(config)
    drafting = _draft_share(facts.weights, config, found)
    head = min(found.embedding * 2.0, stored) if found else 0.0
    loaded = _loaded_bytes(stored * (1.0 - drafting), head, facts, dtype, quantization)
    return Weights(
        verifier=loaded,
        draft_layers=loaded * drafting / (1.0 - drafting),
        expert_share=found.experts / found.total if found else 0.0,
        embedding=min(head, loaded),
    )


def counts(config: Mapping[str, Any]) -> Counts | None:
    """Weights of a flat config; None where it does not say enough, or has layers that are not known here."""
    basic = numbers(config, "hidden", "vocabulary")
    kinds = layer_kinds(config)
    if basic is None or kinds is None:
        return None
    hidden, vocabulary = basic
    pattern = _pattern(config)
    total = experts = active = largest = 0.0
    for index, kind in enumerate(kinds):
        mixer = _mixer(config, hidden, kind)
        if mixer is None:
            return None
        letter = pattern[index : index + 1]
        if letter in _ALONE:
            mixer = 0.0
        dense, routed, used = _forward(config, hidden, index, letter)
        layer = mixer + dense + routed
        total, experts, active = total + layer, experts + routed, active + mixer + dense + used
        largest = max(largest, layer)
    head = float(number(config, "draft_vocab_size") or vocabulary) * hidden
    tied = config.get("tie_word_embeddings") is True
    embedding = vocabulary * hidden + (0.0 if tied else head)
    return Counts(total + embedding, experts, active + head, embedding, largest)


def elements(facts: WeightFacts) -> float:
    """Weights in the files, those of 4 bits that are packed into I32 or U8 counted singly."""
    packed = {"I32": 8, "U8": 2}
    return float(sum(count * packed.get(name, 1) for name, count in facts.parameters.items()))


def _pattern(config: Mapping[str, Any]) -> str:
    """A letter for each layer of models whose layers are attention, state space, feed-forward or experts alone; empty
    for all others."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return pattern
    listed = [str(one) for one in sequence(config, "layers_block_type") or ()]
    return "".join(_LETTERS.get(one, "*") for one in listed) if {"moe", "mlp"} & set(listed) else ""


def _mixer(config: Mapping[str, Any], hidden: int, kind: str) -> float | None:
    """Weights of attention, or of what stands in its place."""
    if kind == "linear":
        return _linear(config, hidden)
    if kind == "state":
        found = numbers(config, "state_heads", "state_head_dim", "state_size")
        if found is None:
            return None
        heads, size, states = found
        inner = heads * size
        return float(hidden * (3 * inner + 2 * (number(config, "state_groups") or 1) * states + heads))
    if number(config, "kv_lora_rank"):
        return _latent(config, hidden)
    return _attention(config, hidden, windowed=kind == "window")


def _attention(config: Mapping[str, Any], hidden: int, *, windowed: bool) -> float | None:
    heads, shape = number(config, "heads"), key_shape(config, windowed=windowed)
    if heads is None or shape is None:
        return None
    keys, size, value = shape
    query, output = number(config, "q_lora_rank"), number(config, "o_lora_rank")
    if query and output:
        grouped = heads * size * output + (number(config, "o_groups") or 1) * output * hidden
        return float(hidden * query + query * heads * size + hidden * keys * size + grouped)
    queries = 2 if config.get("attn_output_gate") is True else 1
    return float(hidden * (queries * heads * size + keys * (size + value) + heads * value))


def _latent(config: Mapping[str, Any], hidden: int) -> float | None:
    found = numbers(config, "heads", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    if found is None:
        return None
    heads, rank, rope, nope, value = found
    query = number(config, "q_lora_rank")
    wide = heads * (nope + rope)
    queries = hidden * query + query * wide if query else hidden * wide
    total = queries + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden
    index, index_heads = number(config, "index_head_dim"), number(config, "index_n_heads")
    if index and index_heads:
        total += (query or hidden) * index * index_heads + hidden * (index + index_heads)
    return float(total)


def _linear(config: Mapping[str, Any], hidden: int) -> float | None:
    own = config.get("linear_attn_config")
    if isinstance(own, Mapping):
        heads, size = own.get("num_heads"), own.get("head_dim")
        return float(6 * hidden * heads * size) if isinstance(heads, int) and isinstance(size, int) else None
    found = numbers(config, *LINEAR_KEYS)
    if found is None:
        return None
    keys, values, key_size, value_size = found
    return float(hidden * (2 * keys * key_size + 3 * values * value_size + 2 * values))


def _forward(config: Mapping[str, Any], hidden: int, index: int, letter: str) -> tuple[float, float, float]:
    """(dense or shared, routed, routed that a token uses) weights of a layer's feed-forward part."""
    inner = number(config, "inner") or 4 * hidden
    activation = str(config.get("mlp_hidden_act") or config.get("hidden_act") or "")
    matrices = (2 if activation in _UNGATED else 3) * hidden
    experts = number(config, "experts")
    if letter in ("M", "*"):
        return 0.0, 0.0, 0.0
    if not experts or letter == "-" or not _has_routed_experts(config, index):
        return float(matrices * (number(config, "dense_inner") or inner)), 0.0, 0.0
    size = number(config, "expert_inner") or inner
    shared = number(config, "shared_inner") or (number(config, "shared_experts") or 0) * size
    beside = matrices * (inner if config.get("enable_moe_block") is True else shared)
    if number(config, "interleave_moe_layer_step"):
        beside = matrices * inner
    narrow = number(config, "expert_hidden")
    routed = float(experts * matrices // hidden * (narrow or hidden) * size)
    used = routed * (number(config, "experts_per_token") or 1) / experts
    return float(beside + hidden * experts + 2 * hidden * (narrow or 0)), routed, used


def _has_routed_experts(config: Mapping[str, Any], index: int) -> bool:
    """True where layer `index` has routed experts."""
    listed = sequence(config, "moe_layer_freq")
    if listed and index < len(listed):
        return bool(listed[index])
    if index < (number(config, "first_dense") or 0) or index in (sequence(config, "mlp_only_layers") or ()):
        return False
    step = number(config, "interleave_moe_layer_step") or config.get("decoder_sparse_step")
    return not isinstance(step, int) or step < 1 or (index + 1) % step == 0


def _loaded_bytes(stored: float, head: float, facts: ModelFacts, dtype: str, quantization: str) -> float:
    """`stored` bytes after the casts and quantizations that an engine does while it loads."""
    if isinstance(decoder(facts.config).get("quantization_config"), Mapping):
        return stored
    held = value_bytes(dtype)
    parts = facts.weights.parameters
    wide = sum(4.0 * count for name, count in parts.items() if name == "F32")
    if wide > 0.5 * stored:
        stored, head = stored - wide + wide * held / 4.0, head * held / 2.0
    elif held > 2.0 and sum(count for name, count in parts.items() if name in ("BF16", "F16")) * 2.0 > 0.5 * stored:
        stored, head = stored * held / 2.0, head * held / 2.0
    size = AT_LOAD.get(quantization.lower())
    return stored if size is None else head + (stored - head) * size / held


def _draft_share(facts: WeightFacts, config: Mapping[str, Any], found: Counts | None) -> float:
    """Share of the files' bytes that draft layers inside the checkpoint hold; 0 where none lie there."""
    layers, kinds = number(config, "draft_layers"), layer_kinds(config)
    if not layers or found is None or kinds is None or not facts.bytes:
        return 0.0
    inside = facts.layers > len(kinds) or any(part in name for name in facts.shapes for part in _DRAFTING)
    if not inside:
        return 0.0
    present = max(facts.layers - len(kinds), 1) if facts.layers > len(kinds) else layers
    drafting = min(present, layers) * draft_layer(config, found) + _copies(facts, len(kinds))
    return drafting / (found.total + drafting)


def _copies(facts: WeightFacts, layers: int) -> float:
    """Weights of embeddings and heads that draft layers bring a second time; engines share the verifier's."""
    total = 0.0
    for name, shape in facts.shapes.items():
        place = _LAYER.search(name)
        if place and int(place.group(1)) >= layers and ("embed_tokens" in name or "head" in name):
            total += math.prod(shape)
    return total


def draft_layer(config: Mapping[str, Any], found: Counts) -> float:
    """A layer of the verifier and the projection of its hidden state beside the token's embedding."""
    return found.layer + 2.0 * float(number(config, "hidden") or 0) ** 2
