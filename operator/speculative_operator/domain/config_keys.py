"""Keys of a model's `config.json`, as families spell them. `weights.inspect` keeps them, `pairing.reading` reads them.

Names of keys are those of Hugging Face Transformers 5, of the speculators library 0.5 and of the EAGLE, Medusa and
DFlash repositories.
"""

from __future__ import annotations

NAMES = {
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
    "dense_inner": ("intermediate_size_mlp", "dense_intermediate_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared_inner": ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
    "first_dense": ("first_k_dense_replace", "moe_layer_start_index"),
    "max_position": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "window": ("sliding_window", "sliding_window_size", "attention_chunk_size"),
    "draft_layers": ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers"),
    "state_heads": ("mamba_num_heads", "mamba_n_heads"),
    "state_head_dim": ("mamba_head_dim", "mamba_d_head"),
    "state_size": ("ssm_state_size", "mamba_d_state"),
    "state_groups": ("n_groups", "mamba_n_groups"),
    "state_kernel": ("conv_kernel", "mamba_d_conv"),
}  # fmt: skip
"""What is read -> its keys, as families spell them."""
_OTHERS = """
    architectures model_type model text_config llm_config language_config thinker_config tie_word_embeddings dtype
    torch_dtype

    layer_types use_sliding_window max_window_layers sliding_window_pattern hybrid_layer_pattern compress_ratios
    block_configs full_attention_interval hybrid_override_pattern layers_block_type attn_layer_period attn_layer_offset
    linear_attn_config full_attn_layers short_conv_kernel_size mamba_ssm_dtype mamba_ssm_cache_dtype attn_output_gate

    rope_scaling rope_parameters rope_type type factor original_max_position_embeddings

    kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim index_head_dim index_n_heads o_lora_rank
    o_groups num_global_key_value_heads global_head_dim swa_num_key_value_heads swa_head_dim swa_v_head_dim
    num_kv_shared_layers linear_num_key_heads linear_num_value_heads linear_key_head_dim linear_value_head_dim
    linear_conv_kernel_dim

    interleave_moe_layer_step enable_moe_block moe_layer_freq mlp_only_layers decoder_sparse_step hidden_act
    mlp_hidden_act n_predict

    quantization_config quant_method kv_cache_quant_algo

    mask_token_id draft_vocab_size truncated_vocab_size target_hidden_size num_target_layers target_layer_ids
    eagle_config eagle_aux_hidden_state_layer_ids aux_hidden_state_layer_ids use_aux_hidden_state ptd_token_id
    pard_token num_aux_hidden_states

    speculators_model_type speculators_config verifier name_or_path transformer_layer_config

    dflash_config block_size medusa_num_heads num_heads base_model_name_or_path emb_dim backbone_hidden_size hc_count
    hc_mult dspark_block_size dspark_noise_token_id dspark_target_layer_ids mtp_config sample_from_anchor
"""
CONFIG_KEYS = frozenset(_OTHERS.split()).union(*NAMES.values())
"""Keys that are kept, at any depth. By paragraph, those without a name of ours are: what the model is; kinds of layers;
positions; attention with shapes of its own; experts and drafting layers; quantization; speculators as their trainers
write them; as the library `speculators` writes them; those of others."""
