"""Values of public `config.json` files that tests of memory build models from, and sizes of public checkpoints.

Configs: model_configs of ai-dynamo/aiconfigurator @095f58a (Apache-2.0); EAGLE heads: configs as in vllm#11126 and of
the base models named by the table in the README of SafeAILab/EAGLE @cb7e084.
"""

from __future__ import annotations

from typing import Any

from speculative_operator.domain.models import ModelFacts, Pin, WeightFacts
from speculative_operator.domain.spec import (
    AcceleratorRequest,
    DeploymentSpec,
    EngineSettings,
    Method,
    ModelSource,
    Scheme,
    Speculation,
    Speculator,
    Verifier,
)

LLAMA_8B = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_8B_BYTES = 16_060_522_496
LLAMA_70B = LLAMA_8B | {
    "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "intermediate_size": 28672,
}  # fmt: skip
LLAMA_405B = LLAMA_8B | {
    "hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128, "intermediate_size": 53248,
}  # fmt: skip
EAGLE3_8B = LLAMA_8B | {"num_hidden_layers": 1, "draft_vocab_size": 32000}
QWEN_30B = {
    "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936, "max_position_embeddings": 40960,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN_235B = QWEN_30B | {
    "hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64, "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
}  # fmt: skip
QWEN35_35B = {
    "model_type": "qwen3_5_moe", "tie_word_embeddings": False,
    "text_config": {
        "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 256, "attn_output_gate": True, "full_attention_interval": 4, "moe_intermediate_size": 512,
        "num_experts": 256, "num_experts_per_tok": 8, "shared_expert_intermediate_size": 512, "vocab_size": 248320,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1, "max_position_embeddings": 262144, "dtype": "bfloat16",
    },
}  # fmt: skip
DEEPSEEK_V3 = {
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "num_nextn_predict_layers": 1, "vocab_size": 129280, "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip
DEEPSEEK_V32 = DEEPSEEK_V3 | {"index_head_dim": 128, "index_n_heads": 64}
DEEPSEEK_V4_PRO = {
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 1,
    "head_dim": 512, "index_head_dim": 128, "sliding_window": 128, "vocab_size": 129280,
    "max_position_embeddings": 1048576, "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0],
}  # fmt: skip
GPT_OSS_120B = {
    "hidden_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "intermediate_size": 2880, "num_local_experts": 128, "num_experts_per_tok": 4, "vocab_size": 201088,
    "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 18, "tie_word_embeddings": False,
    "max_position_embeddings": 131072, "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
GEMMA_31B = {
    "model_type": "gemma4",
    "text_config": {
        "hidden_size": 5376, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16,
        "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 4, "intermediate_size": 21504,
        "vocab_size": 262144, "sliding_window": 1024, "tie_word_embeddings": True, "num_kv_shared_layers": 0,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10, "max_position_embeddings": 262144,
    },
}  # fmt: skip
NEMOTRON_NANO = {
    "hidden_size": 2688, "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "mlp_hidden_act": "relu2",
    "intermediate_size": 1856, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
    "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 6, "n_groups": 8, "conv_kernel": 4,
    "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "mamba_ssm_cache_dtype": "float32",
    "vocab_size": 131072, "max_position_embeddings": 262144,
}  # fmt: skip


def model(config: dict[str, Any], size: int = 0, name: str = "org/model", **weights: Any) -> ModelFacts:
    """A model of this config whose weight files have `size` bytes (0: they were not read)."""
    pin = Pin(Scheme.HF, name, "main", "0" * 40)
    return ModelFacts(pin, config=config, weights=WeightFacts(files=1 if size else 0, bytes=size, **weights))


def eagle_head(base: dict[str, Any]) -> dict[str, Any]:
    """The config of an EAGLE head for `base`: one of its layers."""
    return base | {"num_hidden_layers": 1}


def spec(
    method: Method | None = Method.EAGLE3,
    *,
    product: str = "H100-SXM",
    args: tuple[str, ...] = (),
    own_weights: bool = True,
    drafter_ranks: int | None = None,
    speculation: Speculation | None = None,
    **verifier: Any,
) -> DeploymentSpec:
    """A deployment of `hf://org/model` with a speculator of `method`; further words are fields of the verifier."""
    source = ModelSource(Scheme.HF, "org/speculator") if own_weights else None
    speculator = Speculator(method, source, tensor_parallel_size=drafter_ranks) if method is not None else None
    return DeploymentSpec(
        name="pair",
        namespace="llm",
        uid="u",
        generation=1,
        verifier=Verifier(ModelSource(Scheme.HF, "org/model"), "pair", **verifier),
        speculator=speculator,
        speculation=speculation or Speculation(),
        engine=EngineSettings(args=args),
        accelerator=AcceleratorRequest(product=product),
    )
