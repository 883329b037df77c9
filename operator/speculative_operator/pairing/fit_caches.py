"""Caches that a model keeps for a request: key and value of every attention layer, windows, latents, recurrent states.

Used by `fit_weights`, `memory` and `shapes`. One group holds the layers whose cache grows alike; bytes are those of one
rank.

| layers | a token costs, in one layer | kept |
|---|---|---|
| attention | KV heads x (key + value of a head) | the whole context |
| sliding or chunked attention | the same | window - 1 + one batch of prefill: what vLLM admits a request by |
| latent (MLA) | rank + rotary part, on every rank whole | the whole context |
| sparse index (DeepSeek-V3.2) | its dimension in 8 bits, 4 bytes of scale per 128, on every rank whole | the same |
| compressed (DeepSeek-V4) | one entry for every 4 or 128 tokens, and a window | the same |
| linear attention, state space | nothing | one state, and a copy, and one more for each draft token |

Sources: vLLM's `kv_cache_interface.py` (`SlidingWindowSpec`, `MambaSpec`); vLLM blog 2026-04-24 for compressed caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.pairing.reading import number, numbers, sequence

_SIZES = {"float32": 4.0, "fp32": 4.0, "float64": 8.0, "float16": 2.0, "bfloat16": 2.0, "half": 2.0}


def value_bytes(asked: str) -> float:
    """Bytes of a value in the dtype `asked`; 2 for `auto` and where none is asked for, because engines then serve in 16
    bits."""
    return _SIZES.get(asked.removeprefix("torch."), 2.0)


LINEAR_KEYS = (
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
)  # fmt: skip
"""Numbers of key and value heads, and values in each."""
INDEX_BYTES = 1.0 + 4.0 / 128.0
"""Bytes of a value of a sparse index: 8 bits, and a 4-byte scale for each 128 values."""
STATE_COPIES = 2
"""States of one request: the running one and the one at the last block, which prefix caching keeps."""
_COMPRESSED = 4
"""Layers that compress by this have a sparse index too."""
_MOST_LAYERS = 4096
_FULL, _WINDOW, _LINEAR, _STATE, _NONE = "full", "window", "linear", "state", "none"
RECURRENT = frozenset({_LINEAR, _STATE})
"""Kinds of layers that keep one state in place of a cache of tokens."""
_KINDS = {
    "full_attention": _FULL, "attention": _FULL, "sliding_attention": _WINDOW, "chunked_attention": _WINDOW,
    "linear_attention": _LINEAR, "mamba": _STATE, "mamba2": _STATE, "moe": _NONE, "mlp": _NONE,
    "*": _FULL, "M": _STATE, "E": _NONE, "-": _NONE, 0: _FULL, 1: _WINDOW,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Widths:
    """Bytes of one cached value."""

    value: float = 2.0
    index: float = INDEX_BYTES
    state: float = 2.0
    """Bytes of a value in the states of convolutions; recurrent states have a width of their own."""


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers whose cache grows alike."""

    layers: int
    heads: int = 1
    """KV heads, spread over the ranks; 1 where every rank holds all."""
    token_bytes: float = 0.0
    """Bytes of one token in one head."""
    window: int = 0
    """Tokens kept; 0: all."""
    tokens_per_entry: int = 1
    state_bytes: float = 0.0
    """Bytes of one request, whatever its length; spread over the ranks."""

    def bytes(self, tokens: float, ranks: int, *, batch: int = 0, copies: int = STATE_COPIES) -> float:
        """Bytes on one of `ranks` for a request of `tokens`; `batch` is the largest batch of prefill, in tokens."""
        held = min(tokens, self.window - 1 + batch) if self.window else tokens
        heads = max(self.heads / ranks, 1.0)
        grown = heads * self.token_bytes * max(held, 0.0) / self.tokens_per_entry
        return self.layers * (grown + copies * self.state_bytes / ranks)


def caches(config: Mapping[str, Any], widths: Widths, layers: int | None = None) -> tuple[CacheGroup, ...] | None:
    """Groups of a flat config (`reading.decoder`); None where the config does not say layers or heads.

    `layers` replaces the count that the config says: draft layers inside a verifier are built like its last ones.
    """
    kinds = layer_kinds(config)
    if kinds is None:
        return None
    if ratios := sequence(config, "compress_ratios"):
        return _compressed_groups(config, widths, [ratio for ratio in ratios if isinstance(ratio, int)][: len(kinds)])
    counts = {kind: kinds.count(kind) for kind in (_FULL, _WINDOW, _LINEAR, _STATE)}
    if layers is not None:
        counts = {_FULL: layers}
    made = [_group(config, widths, kind, count) for kind, count in counts.items() if count]
    if any(group is None for group in made):
        return None
    return tuple(one for group in made if group is not None for one in group)


def layer_kinds(config: Mapping[str, Any]) -> list[str] | None:
    """Kind of each layer, in order; None where the config does not say the count, or every layer has a shape of its own
    (`block_configs`). Layers that reuse another's cache have none."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return [_KINDS.get(letter, _FULL) for letter in pattern[:_MOST_LAYERS]]
    names = ("layer_types", "layers_block_type", "hybrid_layer_pattern")
    listed = next((found for name in names if (found := sequence(config, name))), None)
    layers = number(config, "layers") or (len(listed) if listed else None)
    if layers is None or layers > _MOST_LAYERS or sequence(config, "block_configs"):
        return None
    kinds = [_kind(one) for one in listed] if listed else _by_rule(config, layers)
    kinds = (kinds + [_FULL] * layers)[:layers]
    shared = min(number(config, "num_kv_shared_layers") or 0, layers)
    return kinds[: layers - shared] + [_NONE] * shared


def _kind(value: Any) -> str:
    return _KINDS.get(value, _FULL) if isinstance(value, str | int) else _FULL


def _by_rule(config: Mapping[str, Any], layers: int) -> list[str]:
    """Kind of each layer, in order, for families whose config gives a period instead of a list."""
    linear = config.get("linear_attn_config")
    if isinstance(linear, Mapping) and (full := sequence(linear, "full_attn_layers")):
        return [_FULL if index + 1 in full else _LINEAR for index in range(layers)]
    for name, other in (("full_attention_interval", _LINEAR), ("sliding_window_pattern", _WINDOW)):
        period = config.get(name)
        if isinstance(period, int) and period > 0:
            return [_FULL if (index + 1) % period == 0 else other for index in range(layers)]
    period, offset = config.get("attn_layer_period"), config.get("attn_layer_offset", 0)
    if isinstance(period, int) and period > 0 and isinstance(offset, int):
        return [_FULL if index % period == offset else _STATE for index in range(layers)]
    family = str(config.get("model_type") or "")
    if family == "gemma2" or family.startswith("llama4"):
        period = 2 if family == "gemma2" else 4
        return [_WINDOW if (index + 1) % period else _FULL for index in range(layers)]
    windowed = number(config, "window") and config.get("use_sliding_window") is not False
    first = config.get("max_window_layers")
    whole = first if config.get("use_sliding_window") is True and isinstance(first, int) else 0
    return [_WINDOW if windowed and index >= whole else _FULL for index in range(layers)]


def _group(config: Mapping[str, Any], widths: Widths, kind: str, layers: int) -> tuple[CacheGroup, ...] | None:
    if kind == _LINEAR:
        return _linear(config, widths, layers)
    if kind == _STATE:
        return _state_space(config, widths, layers)
    if number(config, "kv_lora_rank"):
        return _latent(config, widths, layers)
    return _attention(config, widths, kind, layers)


def _attention(config: Mapping[str, Any], widths: Widths, kind: str, layers: int) -> tuple[CacheGroup, ...] | None:
    shape = key_shape(config, windowed=kind == _WINDOW)
    if shape is None:
        return None
    kv_heads, size, value = shape
    window = (number(config, "window") or 0) if kind == _WINDOW else 0
    return (CacheGroup(layers, kv_heads, (size + value) * widths.value, window),)


def key_shape(config: Mapping[str, Any], *, windowed: bool) -> tuple[int, int, int] | None:
    """(KV heads, values of a key in each, values of a value) of a layer of attention; None where config.json does not
    say."""
    heads, hidden = number(config, "heads"), number(config, "hidden")
    kv_heads = number(config, "kv_heads") or heads
    size = number(config, "head_dim") or (hidden // heads if hidden and heads else None)
    if kv_heads is None or size is None:
        return None
    value = number(config, "v_head_dim") or size
    if windowed:
        kv_heads, size = number(config, "swa_num_key_value_heads") or kv_heads, number(config, "swa_head_dim") or size
        value = number(config, "swa_v_head_dim") or value
    elif own := number(config, "global_head_dim"):
        kv_heads, size, value = number(config, "num_global_key_value_heads") or kv_heads, own, own
    return kv_heads, size, value


def _latent(config: Mapping[str, Any], widths: Widths, layers: int) -> tuple[CacheGroup, ...]:
    rank, rope = number(config, "kv_lora_rank") or 0, number(config, "qk_rope_head_dim") or 0
    index = number(config, "index_head_dim")
    found = [CacheGroup(layers, 1, (rank + rope) * widths.value)]
    if index:
        found.append(CacheGroup(layers, 1, index * widths.index))
    return tuple(found)


def _compressed_groups(config: Mapping[str, Any], widths: Widths, ratios: list[int]) -> tuple[CacheGroup, ...] | None:
    size, index = number(config, "head_dim"), number(config, "index_head_dim") or 0
    if size is None:
        return None
    found = [CacheGroup(len(ratios), 1, size * widths.value, number(config, "window") or 0)]
    for ratio in sorted({one for one in ratios if one > 1}):
        entry = size * widths.value + (index * widths.index if ratio == _COMPRESSED else 0.0)
        found.append(CacheGroup(ratios.count(ratio), 1, entry, tokens_per_entry=ratio))
    return tuple(found)


def _linear(config: Mapping[str, Any], widths: Widths, layers: int) -> tuple[CacheGroup, ...] | None:
    """Cache groups of gated delta nets (Qwen3-Next and later) and Kimi's delta attention."""
    own = config.get("linear_attn_config")
    if isinstance(own, Mapping):
        heads, size, kernel = own.get("num_heads"), own.get("head_dim"), own.get("short_conv_kernel_size")
        if not (isinstance(heads, int) and isinstance(size, int) and isinstance(kernel, int)):
            return None
        state = heads * size * size * 4.0 + 3 * (kernel - 1) * heads * size * widths.state
        return (CacheGroup(layers, state_bytes=state),)
    found = numbers(config, *LINEAR_KEYS, "linear_conv_kernel_dim")
    if found is None:
        return None
    keys, values, key_size, value_size, kernel = found
    channels = 2 * keys * key_size + values * value_size
    state = values * value_size * key_size * _state_width(config) + (kernel - 1) * channels * widths.state
    return (CacheGroup(layers, state_bytes=state),)


def _state_space(config: Mapping[str, Any], widths: Widths, layers: int) -> tuple[CacheGroup, ...] | None:
    found = numbers(config, "state_heads", "state_head_dim", "state_size", "state_kernel")
    if found is None:
        return None
    heads, size, states, kernel = found
    channels = heads * size + 2 * (number(config, "state_groups") or 1) * states
    state = heads * size * states * _state_width(config) + (kernel - 1) * channels * widths.state
    return (CacheGroup(layers, state_bytes=state),)


def _state_width(config: Mapping[str, Any]) -> float:
    named = config.get("mamba_ssm_dtype") or config.get("mamba_ssm_cache_dtype")
    return 4.0 if named == "float32" else 2.0
