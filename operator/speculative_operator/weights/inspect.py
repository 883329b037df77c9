"""A model's facts from its small files and the headers of its tensors: what judging a pair needs, in seconds and in
little memory, whatever the model's size. Run in a Job, and by `speculative check` on a user's machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import headers, reading, tokenizers
from speculative_operator.weights.source import Entry, Source, WeightsError

_KEYS = """
    architectures model_type model text_config llm_config language_config thinker_config

    vocab_size hidden_size num_hidden_layers num_layers n_layer n_embd n_head num_attention_heads num_key_value_heads
    head_dim intermediate_size max_position_embeddings tie_word_embeddings dtype torch_dtype
    d_model n_layers n_heads num_kv_heads n_head_kv multi_query_group_num kv_channels attention_head_dim ffn_dim n_inner
    ffn_hidden_size padded_vocab_size n_positions seq_length max_seq_len

    layer_types sliding_window use_sliding_window max_window_layers attention_chunk_size sliding_window_pattern
    num_kv_shared_layers global_head_dim num_global_key_value_heads hybrid_layer_pattern sliding_window_size
    swa_head_dim swa_num_key_value_heads swa_v_head_dim compress_ratios block_configs

    rope_scaling rope_parameters rope_type type factor original_max_position_embeddings

    num_experts num_local_experts n_routed_experts n_shared_experts num_experts_per_tok moe_intermediate_size
    shared_expert_intermediate_size first_k_dense_replace num_experts_per_token top_k_experts experts_per_token moe_topk
    moe_k moe_num_experts moe_num_shared_experts num_shared_experts moe_shared_expert_intermediate_size
    expert_ffn_hidden_size routed_expert_hidden_size moe_latent_size interleave_moe_layer_step intermediate_size_mlp
    dense_intermediate_size enable_moe_block moe_layer_freq moe_layer_start_index mlp_only_layers decoder_sparse_step
    hidden_act mlp_hidden_act

    kv_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim index_head_dim
    index_n_heads o_lora_rank o_groups attn_output_gate

    full_attention_interval hybrid_override_pattern linear_num_value_heads linear_num_key_heads linear_key_head_dim
    linear_value_head_dim linear_conv_kernel_dim mamba_num_heads mamba_head_dim mamba_n_groups mamba_d_state
    mamba_d_conv ssm_state_size n_groups conv_kernel mamba_n_heads mamba_d_head mamba_ssm_dtype mamba_ssm_cache_dtype
    layers_block_type attn_layer_period attn_layer_offset linear_attn_config full_attn_layers short_conv_kernel_size

    num_nextn_predict_layers mtp_num_hidden_layers mtp_num_layers num_mtp_modules n_predict

    quantization_config quant_method kv_cache_quant_algo

    mask_token_id draft_vocab_size truncated_vocab_size target_hidden_size num_target_layers target_layer_ids
    eagle_config eagle_aux_hidden_state_layer_ids aux_hidden_state_layer_ids use_aux_hidden_state ptd_token_id
    pard_token num_aux_hidden_states

    speculators_model_type speculators_config verifier name_or_path transformer_layer_config

    dflash_config block_size medusa_num_heads num_heads base_model_name_or_path emb_dim backbone_hidden_size hc_count
    hc_mult dspark_block_size dspark_noise_token_id dspark_target_layer_ids mtp_config sample_from_anchor
"""
CONFIG_KEYS = frozenset(_KEYS.split())
"""Keys of `config.json` that are kept, at any depth. What they mean is for `pairing` to know. By paragraph: what the
model is; its shape; attention of limited reach; positions; experts; latent attention; state-space and linear attention;
drafting layers inside a verifier; quantization; speculators as their trainers write them; as the library `speculators`
writes them; those of others."""

_MOST_CONFIG = 16 << 20
_MOST_CARD = 64 << 10
_LONGEST_TEXT = 200
_LONGEST_LIST = 256
_WITHOUT_CONFIG = ("params.json",)


def inspect(source: Source) -> ModelFacts:
    """All facts of one model that judging needs. Raises WeightsError, with the file that could not be read."""
    files = {entry.path: entry for entry in source.files}
    weights = headers.facts_of(source, files)
    base_models, relation = _lineage(source, files)
    return ModelFacts(
        pin=source.pin,
        config=_config(source, files, weights.format),
        tokenizer=tokenizers.facts_of(source, files),
        weights=weights,
        base_models=base_models,
        relation=relation,
    )


def cut(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` without keys that nobody judges by, and without long lists and texts, which are no settings."""
    content = {key: _cut(value) for key, value in config.items() if key in CONFIG_KEYS}
    return {key: value for key, value in content.items() if value is not None and value != {}}


def _cut(value: Any) -> Any:
    if isinstance(value, Mapping):
        return cut(value)
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
    if isinstance(value, list):
        return [_cut(one) for one in value] if len(value) <= _LONGEST_LIST else None
    return value


def _config(source: Source, files: Mapping[str, Entry], weights: str) -> dict[str, Any]:
    if "config.json" not in files:
        if weights == "gguf" or any(name in files for name in _WITHOUT_CONFIG):
            return {}
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND,
            f"{source.pin.source.uri}: none of its {len(files)} files is config.json",
            file="config.json",
            remedy="use the folder or repository that has the model itself",
        )
    config = cut(reading.json_object(source, files["config.json"], _MOST_CONFIG))
    if "quantization_config" not in config and "hf_quant_config.json" in files:
        # NVIDIA ModelOpt's own file, where it did not write its settings into config.json as well.
        own = reading.json_object(source, files["hf_quant_config.json"], _MOST_CONFIG).get("quantization")
        if isinstance(own, Mapping):
            config["quantization_config"] = {"quant_method": "modelopt", **cut(own)}
    return config


def _lineage(source: Source, files: Mapping[str, Entry]) -> tuple[tuple[str, ...], str]:
    """`base_model` and `base_model_relation` of the model card. A card that cannot be read tells nothing: it is prose
    for people, and no reason to refuse a model."""
    if "README.md" not in files:
        return (), ""
    text = reading.part(source, files["README.md"], 0, _MOST_CARD).decode("utf-8", "replace")
    opening, _, rest = text.partition("\n")
    front, closing, _ = rest.partition("\n---")
    if opening.strip() != "---" or not closing:
        return (), ""
    try:
        card = yaml.safe_load(front)
    except (yaml.YAMLError, ValueError, RecursionError):
        return (), ""
    if not isinstance(card, Mapping):
        return (), ""
    base, relation = card.get("base_model"), card.get("base_model_relation")
    names = [base] if isinstance(base, str) else base if isinstance(base, list) else []
    bases = tuple(name[:_LONGEST_TEXT] for name in names[:8] if isinstance(name, str) and name)
    return bases, relation[:40] if isinstance(relation, str) else ""
