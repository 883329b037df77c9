"""Flags of `trtllm-serve` and keys of its YAML file, as data. `config` reads both.

Flags are those of tensorrt_llm/commands/serve.py (click: underscores, no abbreviations), keys those of
tensorrt_llm/llmapi/llm_args.py, whose models forbid any other.
"""

from __future__ import annotations

from speculative_lab.emulator.flags import Flag, Kind, flags_of

EFFECTIVE = (
    Flag(("--host",), Kind.TEXT, "localhost"),
    Flag(("--port",), Kind.INT, 8000),
    Flag(("--backend",), Kind.TEXT, "pytorch", ("pytorch", "tensorrt", "_autodeploy", "trt")),
    Flag(("--max_batch_size",), Kind.INT, 2048),
    Flag(("--max_num_tokens",), Kind.INT, 8192),
    Flag(("--max_seq_len",), Kind.INT),
    Flag(("--tensor_parallel_size", "--tp_size"), Kind.INT, 1),
    Flag(("--free_gpu_memory_fraction", "--kv_cache_free_gpu_memory_fraction"), Kind.FLOAT, 0.9),
    Flag(("--enable_chunked_prefill",), Kind.SWITCH),
)
"""Flags that change what the emulator does, beside the one that names the file."""
CONFIG_FLAGS = ("--config", "--extra_llm_api_options")
"""Two names of the flag of the file."""

INERT = (
    *flags_of(
        Kind.TEXT,
        "--tokenizer --custom_tokenizer --custom_module_dirs --log_level --revision --reasoning_parser --tool_parser"
        " --metadata_server_config_file --server_role --otlp_traces_endpoint --disagg_cluster_uri --media_io_kwargs"
        " --chat_template",
    ),
    *flags_of(
        Kind.INT,
        "--max_beam_width --pipeline_parallel_size/--pp_size --context_parallel_size/--cp_size"
        " --moe_expert_parallel_size/--ep_size --moe_cluster_parallel_size/--cluster_size --gpus_per_node"
        " --num_postprocess_workers",
    ),
    *flags_of(Kind.SWITCH, "--trust_remote_code --fail_fast_on_attention_window_too_large"),
)
"""Flags that are accepted and change nothing here."""

_KEYS = """
    backend model tokenizer tokenizer_mode skip_tokenizer_init trust_remote_code revision tokenizer_revision dtype
    max_batch_size max_num_tokens max_seq_len max_beam_width max_input_len tensor_parallel_size pipeline_parallel_size
    context_parallel_size gpus_per_node moe_expert_parallel_size moe_cluster_parallel_size moe_tensor_parallel_size
    enable_attention_dp attention_dp_config enable_lora lora_config quant_config kv_cache_config enable_chunked_prefill
    guided_decoding_backend scheduler_config cache_transceiver_config speculative_config return_perf_metrics
    enable_iter_perf_stats enable_iter_req_stats print_iter_log perf_metrics_max_requests cuda_graph_config moe_config
    attn_backend sampler_type disable_overlap_scheduler stream_interval num_postprocess_workers load_format
    torch_compile_config enable_min_latency allreduce_strategy batched_logits_processor iter_stats_max_iterations
    request_stats_max_iterations postprocess_tokenizer_dir reasoning_parser otlp_traces_endpoint
    garbage_collection_gen0_threshold use_torch_sampler enable_sleep force_dynamic_quantization mm_encoder_only
"""
KEYS = frozenset(_KEYS.split())
"""Keys of the file."""
_SPECULATIVE_KEYS = """
    decoding_type max_draft_len max_total_draft_tokens speculative_model speculative_model_dir
    draft_len_schedule load_format acceptance_window acceptance_length_threshold acceptance_rate_window_size
    acceptance_rate_threshold allow_advanced_sampling num_nextn_predict_layers use_relaxed_acceptance_for_thinking
    relaxed_topk relaxed_delta use_mtp_vanilla begin_thinking_phase_token end_thinking_phase_token
    max_matching_ngram_size is_keep_all is_use_oldest is_public_pool eagle_choices greedy_sampling posterior_threshold
    use_dynamic_tree dynamic_tree_max_topK num_eagle_layers max_non_leaves_per_layer eagle3_one_model
    eagle3_layers_to_capture eagle3_model_arch mask_token_id
"""
SPECULATIVE_KEYS = frozenset(_SPECULATIVE_KEYS.split())
"""Keys of `speculative_config`."""
DECODING_TYPES = {
    "MTP": "mtp",
    "Eagle3": "eagle3",
    "Eagle": "eagle3",
    "NGram": "ngram",
    "Draft_Target": "draft_model",
    "PARD": "draft_model",
    "DFlash": "dflash",
    "DSpark": "dspark",
    "SA": "suffix",
}
"""decoding_type to the method whose acceptance is emulated."""
WHOLE_BLOCK = frozenset({"PARD", "DFlash", "DSpark"})
"""One pass drafts all tokens."""
DRAFT_FREE = frozenset({"NGram", "SA"})
