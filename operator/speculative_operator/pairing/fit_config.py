"""Reads a `config.json` where its keys matter for memory: one name for what model families spell differently.

Used by `fit_caches` and `fit_weights`. Families nest the decoder (`text_config`), and speculators nest theirs
(`transformer_layer_config`); `decoder` gives one flat mapping. No function guesses: a missing value is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NESTED = ("text_config", "language_config", "llm_config", "thinker_config", "transformer_layer_config", "model")
_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
    "inner": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "experts": ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"),
    "experts_per_token": (
        "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "experts_per_token", "moe_topk", "moe_k",
    ),
    "expert_inner": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "expert_hidden": ("routed_expert_hidden_size", "moe_latent_size"),
    "expert_period": ("interleave_moe_layer_step",),
    "dense_inner": ("intermediate_size_mlp", "dense_intermediate_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared_inner": ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
    "first_dense": ("first_k_dense_replace", "moe_layer_start_index"),
    "max_position": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "window": ("sliding_window", "sliding_window_size", "attention_chunk_size"),
    "draft_layers": ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers"),
    "draft_vocabulary": ("draft_vocab_size",),
    "latent": ("kv_lora_rank",),
    "query_latent": ("q_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
    "nope_dim": ("qk_nope_head_dim",),
    "value_dim": ("v_head_dim",),
    "index_dim": ("index_head_dim",),
    "index_heads": ("index_n_heads",),
    "output_latent": ("o_lora_rank",),
    "output_groups": ("o_groups",),
    "global_kv_heads": ("num_global_key_value_heads",),
    "global_head_dim": ("global_head_dim",),
    "window_kv_heads": ("swa_num_key_value_heads",),
    "window_head_dim": ("swa_head_dim",),
    "window_value_dim": ("swa_v_head_dim",),
    "shared_layers": ("num_kv_shared_layers",),
    "key_heads": ("linear_num_key_heads",),
    "value_heads": ("linear_num_value_heads",),
    "linear_key_dim": ("linear_key_head_dim",),
    "linear_value_dim": ("linear_value_head_dim",),
    "linear_kernel": ("linear_conv_kernel_dim",),
    "state_heads": ("mamba_num_heads", "mamba_n_heads"),
    "state_head_dim": ("mamba_head_dim", "mamba_d_head"),
    "state_size": ("ssm_state_size", "mamba_d_state"),
    "state_groups": ("n_groups", "mamba_n_groups"),
    "state_kernel": ("conv_kernel", "mamba_d_conv"),
    "bits": ("bits", "w_bit", "num_bits"),
    "group": ("group_size", "q_group_size"),
}  # fmt: skip
_OTHER = (
    "architectures", "attn_layer_offset", "attn_layer_period", "attn_output_gate", "block_configs", "compress_ratios",
    "config_groups", "decoder_sparse_step", "dtype", "enable_moe_block", "format", "full_attention_interval",
    "full_attn_layers", "hidden_act", "hybrid_layer_pattern", "hybrid_override_pattern", "kv_cache_quant_algo",
    "layer_types", "layers_block_type", "linear_attn_config", "mamba_ssm_cache_dtype", "mamba_ssm_dtype",
    "max_window_layers", "mlp_hidden_act", "mlp_only_layers", "model_type", "moe_layer_freq", "num_heads",
    "quant_algo", "quant_method", "quantization_config", "short_conv_kernel_size", "sliding_window_pattern",
    "tie_word_embeddings", "torch_dtype", "use_sliding_window", "weights",
)  # fmt: skip
CONFIG_KEYS = frozenset({*(name for names in _NAMES.values() for name in names), *_NESTED, *_OTHER})
"""Every key that the arithmetic of memory may read: what an inspector must keep of a `config.json`."""

_LARGEST = 1 << 32
"""A number beyond is no size of a model: files are written by anybody."""
_SIZES = {"float32": 4.0, "fp32": 4.0, "float64": 8.0, "float16": 2.0, "bfloat16": 2.0, "half": 2.0}


def decoder(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """One flat mapping of a config: the keys of its nested decoder win over the keys of the whole."""
    for name in _NESTED:
        inner = config.get(name)
        if isinstance(inner, Mapping) and inner:
            return decoder({**{key: value for key, value in config.items() if key != name}, **inner})
    return config


def number(config: Mapping[str, Any], what: str) -> int | None:
    """The first whole number > 0 under one of the names of `what` (a key of the table above); None without one."""
    for name in _NAMES[what]:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST:
            return value
    return None


def numbers(config: Mapping[str, Any], *what: str) -> tuple[int, ...] | None:
    """Whole numbers for all of `what`, in order; None where one is missing."""
    found = [number(config, one) for one in what]
    return tuple(one for one in found if one is not None) if None not in found else None


def sequence(config: Mapping[str, Any], name: str) -> Sequence[Any] | None:
    """The list under `name`; None where it is empty or missing."""
    value = config.get(name)
    return value if isinstance(value, list | tuple) and value else None


def value_bytes(config: Mapping[str, Any], asked: str = "") -> float:
    """Bytes of a value of the model's dtype: the asked one, the config's, or 2. `auto` and float32 checkpoints: 2,
    because engines then serve in 16 bits."""
    named = asked if asked not in ("", "auto") else ""
    return _SIZES.get(named.removeprefix("torch."), 2.0) if named else 2.0


def stored_bytes(config: Mapping[str, Any]) -> float:
    """Bytes of an unquantized value as the config says it is stored."""
    named = config.get("dtype") or config.get("torch_dtype")
    return _SIZES.get(named.removeprefix("torch."), 2.0) if isinstance(named, str) else 2.0
